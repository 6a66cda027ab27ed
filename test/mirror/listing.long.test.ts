import test from 'ava';
import type { Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { entryId } from '../../src/mirror/store/entries.ts';
import { allNames, entriesUnder, usedEntries } from '../../src/mirror/store/listing.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const number = (index: number) => String(index).padStart(4, '0');

function row(upstream: string, kind: string, name: string, reference: string, usedAt: number): Row {
  return {
    id: entryId({ upstream, kind, name, reference }),
    upstream,
    kind,
    name,
    reference,
    digest: digestOf(name),
    size_bytes: 1,
    content_type: 'x',
    attributes: '{}',
    stored_at: 1,
    validated_at: 1,
    used_at: usedAt,
  };
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const each of items) list.push(each);
  return list;
}

for (const dialect of dialects) {
  test(`${dialect}: used entries of a kind are read in pages, each once`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const rows: Row[] = [];
    for (let index = 0; index < 1100; index += 1) {
      rows.push(row('a', 'nupkg', `p${number(index)}`, '1.0.0', 5), row('b', 'nupkg', `p${number(index)}`, '2.0.0', 5));
      // Many with the same time, so that a page ends between them.
      rows.push(row('r', 'manifest', `n${number(index)}`, 'v1', index < 900 ? 2000 : 1000 + index));
      rows.push(row('r', 'manifest', `n${number(index)}`, digestOf(String(index)), 2000));
    }
    rows.push(
      row('a', 'flat', 'z', '', 2000),
      row('r', 'manifest', 'old', 'v1', 999),
      row('r', 'blob', 'x', 'v1', 2000),
    );
    await database.transaction(async (tx) => {
      for (let at = 0; at < rows.length; at += 50) await tx.insertNew('mirror_entries', rows.slice(at, at + 50));
    });
    const packages = await all(allNames(database, { kind: 'nupkg' }));
    t.is(packages.length, 1100);
    t.is(packages[1099], 'p1099');
    const used = await all(usedEntries(database, 'manifest', 1000));
    t.is(used.length, 2200);
    t.is(new Set(used.map(({ name, reference }) => `${name} ${reference}`)).size, 2200);
    t.is(used.filter(({ reference }) => reference === 'v1').length, 1100);
    t.is((await all(usedEntries(database, 'manifest', 2001))).length, 99);
  });

  test(`${dialect}: all entries under a name with very many are read, each once, and none of other names`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const rows: Row[] = [row('a', 'nupkg', 'many.more', '0000', 5), row('a', 'symbols', 'many', '0000', 5)];
    for (let index = 0; index < 2100; index += 1) rows.push(row('a', 'nupkg', 'many', number(index), 5));
    // Several upstreams have the reference at which a page ends.
    for (const upstream of ['b', 'c']) rows.push(row(upstream, 'nupkg', 'many', '1999', 5));
    await database.transaction(async (tx) => {
      for (let start = 0; start < rows.length; start += 500)
        await tx.insertNew('mirror_entries', rows.slice(start, start + 500));
    });
    const found = await entriesUnder(database, 'nupkg', ['many', 'none']);
    t.is(found.length, 2102);
    t.deepEqual([...new Set(found.map(({ name }) => name))], ['many']);
    t.is(new Set(found.map(({ upstream, reference }) => `${upstream} ${reference}`)).size, 2102);
    t.deepEqual(
      (await entriesUnder(database, 'nupkg', ['many.more'])).map(({ name, reference }) => [name, reference]),
      [['many.more', '0000']],
    );
  });
}
