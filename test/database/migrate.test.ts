import test, { type ExecutionContext } from 'ava';
import type { Database, Transaction } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { migrations } from '../../src/database/migrations/index.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

async function recorded(database: Database): Promise<string[]> {
  const rows = await database.select<{ name: string }>('SELECT name FROM migrations');
  return rows.map(({ name }) => name).sort();
}

/** A database that fails when migration number `steps` + 1 is recorded, as for a process that is interrupted there. */
function cutOff(database: Database, steps: number): Database {
  let left = steps;
  return changedDatabase(database, {
    transaction: (work) =>
      database.transaction((tx) => {
        const cut: Transaction = {
          dialect: tx.dialect,
          select: (sql, values) => tx.select(sql, values),
          get: (sql, values) => tx.get(sql, values),
          run: (sql, values) => tx.run(sql, values),
          insert: (table, row) => tx.insert(table, row),
          upsert: (table, key, rows, update) => tx.upsert(table, key, rows, update),
          insertNew: (table, rows) => {
            if ((left -= 1) < 0) throw new Error('cut off');
            return tx.insertNew(table, rows);
          },
        };
        return work(cut);
      }),
  });
}

for (const dialect of dialects) {
  const open = async (t: ExecutionContext) => {
    const url = await temporaryDatabase(t, dialect);
    return { url, database: await openUntilEnd(t, url) };
  };

  test(`${dialect}: a migration runs once`, async (t) => {
    const { database, url } = await open(t);
    await migrate(database);
    t.deepEqual(await recorded(database), migrations.map(({ name }) => name).sort());
    await database.transaction((tx) => tx.insert('accounts', { name: 'kept', created_at: 1 }));
    await migrate(database);
    await migrate(await openUntilEnd(t, url));
    t.like(await database.get('SELECT * FROM accounts'), { name: 'kept' });
  });

  test(`${dialect}: several concurrent starts run each migration once`, async (t) => {
    const { database, url } = await open(t);
    const others = await Promise.all([openUntilEnd(t, url), openUntilEnd(t, url)]);
    await Promise.all([database, ...others].map((each) => migrate(each)));
    t.is((await recorded(database)).length, migrations.length);
  });

  test(`${dialect}: the next start continues the migrations of an interrupted start`, async (t) => {
    const { database } = await open(t);
    for (let steps = 7; steps < migrations.length; steps += 7) {
      await t.throwsAsync(migrate(cutOff(database, 7)), { message: /cut off/ });
      t.is((await recorded(database)).length, steps);
    }
    await migrate(database);
    t.is((await recorded(database)).length, migrations.length);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: the migration measures the bytes of existing packages in the database`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const before = migrations.findIndex(({ name }) => name.startsWith('009-'));
    await t.throwsAsync(migrate(cutOff(database, before)), { message: /cut off/ });
    // MySQL has run the migration that was not recorded.
    const texts = [['{"id":"ä"}', '{"id":"A","title":"b"}'], ['{}'], []];
    await database.transaction(async (tx) => {
      for (const [index, metadata] of texts.entries()) {
        const key = `p${index}`;
        const row = { account_id: 1, package_key: key, package_id: key, standing: 0, created_at: 0, updated_at: 0 };
        const packageRow = await tx.insert('packages', row);
        for (const [version, text] of metadata.entries()) {
          const numbers = { published_at: 0, size_bytes: 1, listed: 1, prerelease: 0, semver2: 0 };
          const names = { version_key: `${version}`, version: `${version}`, full_version: `${version}`, sort_key: '' };
          const digests = { sha512: '', nupkg_digest: '', nuspec_digest: '' };
          const versionRow = await tx.insert('package_versions', {
            package_row: packageRow,
            ...names,
            ...numbers,
            ...digests,
            metadata: text,
          });
          if (index > 0) continue;
          const symbols = { account_id: 1, file_name: 'ä.pdb', signature: `${version}`, version_row: versionRow };
          await tx.insert('package_symbols', { ...symbols, path: 'lib/ä.pdb' });
        }
      }
    });
    await migrate(database);
    t.deepEqual(
      (await database.select('SELECT metadata_bytes FROM package_versions ORDER BY id')).map((row) => ({ ...row })),
      [{ metadata_bytes: 11 }, { metadata_bytes: 22 }, { metadata_bytes: 2 }],
    );
    t.deepEqual(
      (await database.select('SELECT metadata_bytes, largest_metadata FROM packages ORDER BY id')).map((row) => ({
        ...row,
      })),
      [
        { metadata_bytes: 33 + 2 * 116, largest_metadata: 22 },
        { metadata_bytes: 2, largest_metadata: 2 },
        { metadata_bytes: 0, largest_metadata: 0 },
      ],
    );
  });
}

test('every migration has a unique name', (t) => {
  const names = migrations.map(({ name }) => name);
  t.is(new Set(names).size, names.length);
});
