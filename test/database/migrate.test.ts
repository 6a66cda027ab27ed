import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Database, Transaction } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { migrations } from '../../src/database/migrations/index.ts';
import { readTables } from '../../src/database/tables.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { changedDatabase, dialects, openUntilEnd, emptyDatabase } from '../support/databases.ts';

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

/** Runs the first `count` migrations, as an older program does. */
function migrateUntil(database: Database, count: number): Promise<void> {
  return migrate(database, { version: '0.1.0', migrations: migrations.slice(0, count) });
}

for (const dialect of dialects) {
  const open = async (t: ExecutionContext) => {
    const url = await emptyDatabase(t, dialect);
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
    await migrateUntil(database, 1);
    for (let steps = 8; steps < migrations.length; steps += 7) {
      await t.throwsAsync(migrate(cutOff(database, 7)), { message: /cut off/ });
      t.is((await recorded(database)).length, steps);
    }
    await migrate(database);
    t.is((await recorded(database)).length, migrations.length);
  });
}

test('an interrupted start leaves a new SQLite database without tables', async (t) => {
  const database = await openUntilEnd(t, await emptyDatabase(t, 'sqlite'));
  await t.throwsAsync(migrate(cutOff(database, migrations.length - 1)), { message: /cut off/ });
  t.deepEqual(await recorded(database), []);
  await t.throwsAsync(database.select('SELECT * FROM accounts'), { message: /no such table/ });
  await migrate(database);
  t.is((await recorded(database)).length, migrations.length);
});

for (const dialect of dialects) {
  test(`${dialect}: the migration measures the bytes of existing packages in the database`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    const before = migrations.findIndex(({ name }) => name.startsWith('009-'));
    await migrateUntil(database, before);
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

for (const dialect of dialects) {
  test(`${dialect}: of the existing tokens, only the oldest token of "default" with all scopes gets operate`, async (t) => {
    const all = 'read,write,delete,admin';
    const run = async (revoked: number | null) => {
      const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
      const before = migrations.findIndex(({ name }) => name === '012-1-operate-scope');
      t.true(before > 0);
      await migrateUntil(database, before);
      await database.transaction(async (tx) => {
        const other = await tx.insert('accounts', { name: 'other', created_at: 1 });
        const own = await tx.insert('accounts', { name: 'default', created_at: 2 });
        const rows: [name: string, account: number, scopes: string, created: number, patterns?: string][] = [
          ['of another account', other, all, 1],
          ['with fewer scopes', own, 'read,write,delete', 2],
          ['limited to names', own, all, 3, '{"packages":["A"]}'],
          ['first', own, all, 4],
          ['second', own, all, 5],
        ];
        for (const [name, account, scopes, created, patterns = null] of rows) {
          const times = { created_at: created, expires_at: null, last_used_at: null };
          const revokedAt = name === 'first' ? revoked : null;
          const row = { id: name, account_id: account, name, token_prefix: 'ent_0000', hash: name, scopes, patterns };
          await tx.insert('tokens', { ...row, ...times, revoked_at: revokedAt });
        }
      });
      await migrate(database);
      const found = await database.select<{ name: string; scopes: string }>('SELECT name, scopes FROM tokens');
      return found.filter(({ scopes }) => scopes.includes('operate')).map((each) => ({ ...each }));
    };
    t.deepEqual(await run(null), [{ name: 'first', scopes: `${all},operate` }]);
    t.deepEqual(await run(9), [{ name: 'first', scopes: `${all},operate` }], 'a revoked one does not pass it on');
  });
}

for (const dialect of dialects) {
  test(`${dialect}: no prefix is kept of existing tokens that were chosen`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    const before = migrations.findIndex(({ name }) => name === '012-2-token-prefix');
    await migrateUntil(database, before);
    await database.transaction(async (tx) => {
      const account = await tx.insert('accounts', { name: 'default', created_at: 1 });
      for (const prefix of ['ent_0a1B', 'hunter2!', 'ENT_0000', 'entrepot', '']) {
        const times = { created_at: 1, expires_at: null, last_used_at: null, revoked_at: null };
        const row = { id: prefix, account_id: account, name: 'x', token_prefix: prefix, hash: prefix, scopes: 'read' };
        await tx.insert('tokens', { ...row, ...times });
      }
    });
    await migrate(database);
    const rows = await database.select<{ token_prefix: string }>(
      'SELECT token_prefix FROM tokens ORDER BY token_prefix',
    );
    t.deepEqual(
      rows.map((each) => each.token_prefix),
      ['', '', '', '', 'ent_0a1B'],
    );
  });
}

for (const dialect of dialects) {
  test(`${dialect}: existing people have used the accounts in which they have a session or a token`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    const before = migrations.findIndex(({ name }) => name.startsWith('084-'));
    await migrateUntil(database, before);
    await database.transaction(async (tx) => {
      const ids: number[] = [];
      for (const name of ['a', 'b', 'c']) ids.push(await tx.insert('accounts', { name, created_at: 1 }));
      for (const id of ['ann', 'bob']) await tx.insert('people', { id, person: '{}', signed_in_at: 1 });
      const times = { created_at: 1, expires_at: null, last_used_at: null, revoked_at: null };
      const token = { id: 'x', name: 'x', token_prefix: 'ent_0000', hash: 'x', scopes: 'read', owner_id: 'ann' };
      await tx.insert('tokens', { ...token, ...times, account_id: ids[0]! });
      for (const id of ['one', 'two']) {
        const session = { id, hash: id, person_id: 'ann', person: '{}', agent: '', created_at: 1, used_at: 1 };
        await tx.insert('sessions', { ...session, account_id: ids[1]! });
      }
    });
    await migrate(database);
    const rows = await database.select<{ used_accounts: string | null }>(
      'SELECT used_accounts FROM people ORDER BY id',
    );
    t.deepEqual(
      rows.map((each) => (JSON.parse(each.used_accounts ?? '[]') as string[]).sort()),
      [['a', 'b'], []],
    );
  });
}

const versionOf = async (database: Database) => ({
  ...(await database.get('SELECT newest_migration, oldest_program FROM schema_version')),
});

const newest = migrations.at(-1)!.name;
const column = (name: string) => ({
  name,
  sql: `ALTER TABLE accounts ADD COLUMN c${name.replaceAll('-', '')} INTEGER`,
});
const compatible = { version: '0.1.5', migrations: [...migrations, column('998-1')] };
const incompatible = {
  version: '0.12.0',
  migrations: [
    ...compatible.migrations,
    { ...column('998-2'), oldestProgram: '0.10.0' },
    { ...column('998-3'), oldestProgram: '0.9.0' },
  ],
};
const older = (version: string) => ({ version, migrations });

for (const dialect of dialects) {
  test(`${dialect}: an older program starts beside a newer, compatible schema, and changes nothing`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    await migrate(database);
    t.deepEqual(await versionOf(database), { newest_migration: newest, oldest_program: '0.1.0' });
    await migrate(database, compatible);
    const expected = { newest_migration: '998-1', oldest_program: '0.1.0' };
    t.deepEqual(await versionOf(database), expected);
    const locked = changedDatabase(database, { exclusively: () => Promise.reject(new Error('locked')) });
    await migrate(locked, older('0.1.0'));
    t.deepEqual(await versionOf(database), expected);
    t.is((await recorded(database)).length, migrations.length + 1);
  });

  test(`${dialect}: a program that is too old for the schema is refused, with both versions`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    await migrate(database, incompatible);
    t.deepEqual(await versionOf(database), { newest_migration: '998-3', oldest_program: '0.10.0' });
    for (const version of ['0.1.0', '0.9.9', '0.10.0-rc.1']) {
      const message = `it needs Entrepot 0.10.0 or later, and this is Entrepot ${version}. Start the newer version, or restore a backup from before the newer version first started`;
      await t.throwsAsync(migrate(database, older(version)), { message });
    }
    for (const version of ['0.10.0', '0.10.1-rc.1', '0.11.0', '1.0.0']) await migrate(database, older(version));
    t.is((await recorded(database)).length, migrations.length + 3);
  });

  test(`${dialect}: an old program is refused from the moment when an incompatible migration begins`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    const refused = { message: /^it needs Entrepot 0\.10\.0 or later, and this is Entrepot 0\.1\.0\./ };
    await migrate(database);
    // It waits for the lock while the newer program migrates.
    const waiting = changedDatabase(database, {
      exclusively: async (work) => {
        await t.throwsAsync(migrate(cutOff(database, 0), incompatible), { message: /cut off/ });
        return work();
      },
    });
    const behind = { version: '0.1.0', migrations: [...migrations, column('997-1')] };
    await t.throwsAsync(migrate(waiting, behind), refused);
    t.is((await recorded(database)).length, migrations.length);
    await t.throwsAsync(migrate(database), refused);
    await migrate(database, incompatible);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: the server starts on a newer, compatible schema, and refuses a newer, incompatible one in one line`, async (t) => {
    const url = await emptyDatabase(t, dialect);
    const server = await startTestServer(t, { database: { url } });
    const inject = (oldest: string) =>
      databaseOf(server).transaction(async (tx) => {
        await tx.insertNew('migrations', [{ name: '999-1-newer' }]);
        await tx.run("UPDATE schema_version SET newest_migration = '999-1-newer', oldest_program = ?", [oldest]);
      });
    await inject('0.1.0');
    const beside = await startTestServer(t, { data: server.data, database: { url } });
    t.is((await beside.fetch('/v1/account')).status, 200);
    t.like(await databaseOf(server).get('SELECT * FROM schema_version'), { newest_migration: '999-1-newer' });
    await inject('99.0.0');
    for (const words of ['doctor', 'adopt', 'serve']) {
      const environment = { ENTREPOT_DATA: server.data, ENTREPOT_DATABASE_URL: url, ENTREPOT_PORT: '0' };
      const { code, stderr } = await entrepot(environment, words);
      t.is(code, 1);
      t.regex(
        stderr,
        /^entrepot: ENTREPOT_DATABASE_URL: the database cannot be used: it needs Entrepot 99\.0\.0 or later, and this is Entrepot 0\.\d+\.\d+\.[^\n]*\n$/,
      );
    }
    t.is((await beside.fetch('/v1/account')).status, 200, 'a running instance goes on');
  });
}

for (const dialect of dialects) {
  test(`${dialect}: a migration that fails is not recorded, and runs at the next start`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    await migrate(database);
    const before = await recorded(database);
    const index = { name: '999-1', sql: 'CREATE INDEX accounts_of_test ON accounts (c9992)' };
    const broken = { version: '0.1.0', migrations: [...migrations, index, column('999-2')] };
    await t.throwsAsync(migrate(database, broken), { message: /c9992/ });
    t.deepEqual(await recorded(database), before);
    const mended = [{ ...column('999-2'), name: '999-0' }, index];
    await migrate(database, { version: '0.1.0', migrations: [...migrations, ...mended] });
    t.deepEqual(await recorded(database), [...before, '999-0', '999-1']);
  });
}

test('every migration has a unique name', (t) => {
  const names = migrations.map(({ name }) => name);
  t.is(new Set(names).size, names.length);
});

for (const dialect of dialects) {
  test(`${dialect}: a start that cannot read the version of the schema fails, and changes nothing`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    await migrate(database, incompatible);
    const before = await recorded(database);
    const failing = (table: string) => {
      const check = (sql: string) => {
        if (sql.includes(`FROM ${table}`)) throw new Error('cannot be read now');
      };
      return changedDatabase(database, {
        get: async (sql, values) => (check(sql), database.get(sql, values)),
        select: async (sql, values) => (check(sql), database.select(sql, values)),
      });
    };
    for (const table of ['schema_version', 'migrations']) {
      await t.throwsAsync(
        migrate(failing(table), { ...incompatible, migrations: [...incompatible.migrations, column('999')] }),
        {
          message: 'cannot be read now',
        },
      );
    }
    t.deepEqual(await recorded(database), before);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: the database of another program stays as it is`, async (t) => {
    const url = await emptyDatabase(t, dialect);
    const database = await openUntilEnd(t, url);
    const data = join(await folderUntilEnd(t), 'data');
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' };
    const others = {
      jobs: 'CREATE TABLE jobs (id INTEGER PRIMARY KEY, name VARCHAR(50))',
      migrations: 'CREATE TABLE migrations (id INTEGER PRIMARY KEY, migration VARCHAR(50), batch INTEGER)',
    };
    const known: string[] = [];
    // Other programs keep a table of migrations, too, which may have no rows.
    const names = 'CREATE TABLE migrations (name VARCHAR(100) PRIMARY KEY)';
    for (const sql of [others.jobs, names]) await database.transaction(async (tx) => void (await tx.run(sql)));
    await t.throwsAsync(migrate(database), { message: /tables that Entrepot did not make/ });
    t.deepEqual((await readTables(database)).map(({ name }) => name).toSorted(), ['jobs', 'migrations']);
    for (const table of ['jobs', 'migrations'])
      await database.transaction(async (tx) => void (await tx.run(`DROP TABLE ${table}`)));
    for (const [table, sql] of Object.entries(others)) {
      await database.transaction(async (tx) => void (await tx.run(sql)));
      await database.transaction(async (tx) => void (await tx.run(`INSERT INTO ${table} (id) VALUES (1)`)));
      known.push(table);
      const list = await entrepot(environment, 'token', 'list');
      t.deepEqual([list.code, list.stdout], [1, ''], table);
      t.regex(list.stderr, /no installation in/);
      const create = await entrepot(environment, 'token', 'create', '--name', 'x');
      t.deepEqual([create.code, create.stdout], [1, ''], table);
      const message = /ENTREPOT_DATABASE_URL: .*tables that Entrepot did not make/;
      t.regex(create.stderr, message);
      await t.throwsAsync(startTestServer(t, { data, database: { url } }), { message });
      t.deepEqual(
        (await readTables(database)).map(({ name }) => name),
        known,
      );
    }
  });
}
