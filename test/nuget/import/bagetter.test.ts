import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { writeFile } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { versionsOfBagetter } from '../../../src/nuget/import/bagetter.ts';
import type { PlainSource } from '../../../src/prefetch/plain.ts';
import { folderUntilEnd } from '../../support/folder.ts';

type Row = readonly [id: string, version: string, listed: number, published: string | null, downloads: number | string];

const sourceOf = (path: string, ...names: string[]) =>
  ({ path, files: new Map(names.map((name) => [name, {}])) }) as unknown as PlainSource;

async function read(t: ExecutionContext, rows: readonly Row[], name = 'bagetter.db') {
  const path = await folderUntilEnd(t);
  const database = new DatabaseSync(join(path, name));
  database.exec('CREATE TABLE Packages ("Key" INTEGER PRIMARY KEY, Id, Version, Listed, Published, Downloads)');
  const insert = database.prepare(
    'INSERT INTO Packages (Id, Version, Listed, Published, Downloads) VALUES (?, ?, ?, ?, ?)',
  );
  for (const row of rows) insert.run(...row);
  database.close();
  return versionsOfBagetter(sourceOf(path, 'packages/lib/1.0.0/lib.nupkg', name));
}

test('what the database of BaGetter says is read by id and version', async (t) => {
  const found = await read(t, [
    ['Lib', '1.0', 1, '2024-01-31 12:00:00.1234567', 5],
    ['LIB', '2.0.0-Beta', 0, '2024-01-31T12:00:00Z', 2 ** 41],
    ['Lib', 'no version', 1, null, 1],
    ['Other', '1.0.0', 1, '0001-01-01 00:00:00', -3],
    ['Other', '1.1.0', 1, 'once', 'many'],
    ['Other', '1.2.0', 1, '1970-01-01 00:00:00', 0],
    ['Other', '1.3.0', 1, null, 1],
  ]);
  const noon = Date.UTC(2024, 0, 31, 12);
  const lib = found!.get('lib')!;
  t.deepEqual([...lib.keys()], ['1.0.0', '2.0.0-beta']);
  t.deepEqual(lib.get('1.0.0'), { name: 'Lib', listed: true, publishedAt: noon + 123, downloads: 5 });
  t.deepEqual(lib.get('2.0.0-beta'), { name: 'LIB', listed: false, publishedAt: noon, downloads: 2 ** 40 });
  const other = [...found!.get('other')!].map(([key, { publishedAt, downloads }]) => [key, publishedAt, downloads]);
  t.deepEqual(other, [
    ['1.0.0', undefined, 0],
    ['1.1.0', undefined, 0],
    ['1.2.0', undefined, 0],
    ['1.3.0', undefined, 1],
  ]);
});

test('only a database beside a folder of packages is one of BaGetter', async (t) => {
  t.is((await read(t, [['Lib', '1.0.0', 1, null, 0]], 'BaGet.DB'))!.size, 1);
  for (const names of [
    ['bagetter.db'],
    ['packages/a.nupkg'],
    ['packages/a.nupkg', 'data/bagetter.db'],
    ['packages/a.nupkg', 'bagetter.db.old'],
    ['old/packages/a.nupkg', 'bagetter.db'],
  ])
    t.is(await versionsOfBagetter(sourceOf('/nowhere', ...names)), undefined, names.join(' '));
});

test('a file that is no such database is refused with its name', async (t) => {
  const path = await folderUntilEnd(t);
  await writeFile(join(path, 'broken.db'), 'no database, but a text that is long enough to be read as one'.repeat(20));
  await t.throwsAsync(versionsOfBagetter(sourceOf(path, 'packages/a.nupkg', 'broken.db')), {
    name: 'Invalid',
    message: /^broken\.db cannot be read/,
  });
});
