import { Readable } from 'node:stream';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import test from 'ava';
import type { ImportOptions, ImportResult } from '../../../src/import/item.ts';
import { packagesInFolder } from '../../../src/nuget/import/folder.ts';
import type { PackageImport } from '../../../src/nuget/import/packages.ts';
import type { PlainFile } from '../../../src/prefetch/plain.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { makeNupkg } from '../../support/builders/nupkg.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { plainFile, plainFolder } from '../../support/plain-files.ts';

const { signal } = new AbortController();

type Offered = Parameters<PackageImport['version']>[0];

/** What is in these files, by phases: `name reference`, or the error of the item; and all that was called. */
async function phasesOf(
  files: Record<string, Buffer | PlainFile | string>,
  more: Partial<ImportOptions> = {},
  { path = 'images', decides }: { path?: string; decides?: Error } = {},
) {
  const calls: [what: string, ...of: unknown[]][] = [];
  const offers: (Pick<Offered, 'digest' | 'fill'> & { size?: number | undefined })[] = [];
  const call =
    (what: string) =>
    async (...of: any[]): Promise<ImportResult> => {
      const { digest, fill, size, ...offered } = of[what === 'version' ? 0 : 2];
      offers.push({ digest, fill, size });
      calls.push(what === 'version' ? [what, offered, of[1]] : [what, of[0], of[1], offered]);
      return { outcome: 'imported', bytes: size };
    };
  const into = {
    decide: async (...of: unknown[]) => {
      calls.push(['decide', ...of]);
      if (decides) throw decides;
      return 'the place';
    },
    version: call('version'),
    symbols: call('symbols'),
  } as unknown as PackageImport;
  const options = { isWanted: () => true, signal, ...more } as ImportOptions;
  const source = { type: 'folder', from: 'a folder', files: { ...plainFolder(files), path } } as const;
  const phases: string[][] = [];
  for (const phase of packagesInFolder(into, source, options, 5000)) {
    const items: string[] = [];
    for await (const group of phase)
      try {
        for await (const { name, reference, run } of group.items())
          items.push(
            await run().then(
              () => `${group.name}: ${name} ${reference}`,
              (error: Error) => `${group.name}: ${name} ${reference}: ${error.message}`,
            ),
          );
      } catch (error) {
        items.push(`${group.name}: ${(error as Error).message}`);
      }
    phases.push(items);
  }
  return { phases, calls, offers };
}

const nupkg = (id: string, version: string) => makeNupkg({ id, version, payloadBytes: 0 });

/** What a version is offered with, apart from its file. */
function offeredAs(id: string, version: string, more: object) {
  const usual = { from: 'a folder', tellsState: true, listed: true, downloads: 0, deprecation: undefined };
  return { ...usual, id, version, ...more };
}

test('a file is what its nuspec says; all versions of an id are decided together, symbols come last', async (t) => {
  const first = await nupkg('Lib', '1.0');
  const { phases, calls, offers } = await phasesOf({
    'symbols/a.snupkg': plainFile(await nupkg('Lib', '1.0'), 30),
    'any/name.nupkg': plainFile(first, 10),
    'b.NUPKG': await nupkg('Other', '2.0.0-Beta'),
    'c.nupkg': plainFile(await nupkg('LIB', '2.0.0'), 20),
    'lib.symbols.nupkg': await nupkg('Lib', '3.0.0'),
    'd.nupkg.old': await nupkg('Lib', '4.0.0'),
    'broken.nupkg': 'no zip',
  });
  const [packages = [], lost, symbols] = phases;
  t.regex(packages[0]!, /^broken\.nupkg: broken\.nupkg : .+/);
  t.deepEqual(packages.slice(1), ['Lib: Lib 1.0.0', 'Lib: LIB 2.0.0', 'Other: Other 2.0.0-beta']);
  t.deepEqual([lost, symbols], [[], ['Lib: Lib 1.0.0 symbols']]);
  const plain = { tellsState: false };
  t.deepEqual(calls, [
    ['decide', 'lib', ['1.0.0', '2.0.0']],
    ['version', offeredAs('lib', '1.0.0', { ...plain, publishedAt: 10 }), 'the place'],
    ['version', offeredAs('lib', '2.0.0', { ...plain, publishedAt: 20 }), 'the place'],
    ['decide', 'other', ['2.0.0-beta']],
    ['version', offeredAs('other', '2.0.0-beta', { ...plain, publishedAt: undefined }), 'the place'],
    ['symbols', 'lib', '1.0.0', {}],
  ]);
  const { fill, ...one } = offers[0]!;
  t.deepEqual([one.size, await one.digest!()], [first.length, digestOf(first)]);
  const got: unknown[] = [];
  const append = async (body: Readable, options: unknown) => {
    const pieces: Buffer[] = [];
    for await (const each of body as AsyncIterable<Buffer>) pieces.push(each);
    if (body.readableObjectMode) throw new Error('a body is a stream of bytes');
    got.push(Buffer.concat(pieces), options);
  };
  const staged = { append } as unknown as StagedFile;
  await fill(staged);
  t.deepEqual(got, [first, { limit: 5000 }]);
});

test('names, wishes and dates leave files out, apart from files that cannot be read', async (t) => {
  const files = {
    'a.nupkg': plainFile(await nupkg('A', '1.0.0'), 10),
    'b.nupkg': plainFile(await nupkg('B', '1.0.0'), 20),
    'c.nupkg': await nupkg('C', '1.0.0'),
    'b.snupkg': plainFile(await nupkg('B', '1.0.0'), 19),
    'c.snupkg': await nupkg('C', '1.0.0'),
  };
  const phases = async (more: Partial<ImportOptions>) => (await phasesOf(files, more)).phases.flat();
  t.deepEqual(await phases({ names: ['b', 'none'] }), ['B: B 1.0.0', 'B: B 1.0.0 symbols']);
  t.deepEqual(await phases({ isWanted: (name) => name === 'a' }), ['A: A 1.0.0']);
  t.deepEqual(await phases({ since: 20 }), ['B: B 1.0.0', 'C: C 1.0.0', 'C: C 1.0.0 symbols']);
  t.deepEqual(await phases({ since: 21 }), ['C: C 1.0.0', 'C: C 1.0.0 symbols']);
  t.deepEqual(await phases({ names: [] }), []);
  t.deepEqual(await phases({ signal: AbortSignal.abort() }), []);
});

test('the database of BaGetter tells dates, downloads and what is listed, and which files are missing', async (t) => {
  const path = await folderUntilEnd(t);
  const database = new DatabaseSync(join(path, 'bagetter.db'));
  database.exec('CREATE TABLE Packages ("Key" INTEGER PRIMARY KEY, Id, Version, Listed, Published, Downloads)');
  const insert = database.prepare(
    'INSERT INTO Packages (Id, Version, Listed, Published, Downloads) VALUES (?, ?, ?, ?, ?)',
  );
  insert.run('Lib', '1.0.0', 0, '2024-01-31 12:00:00', 5);
  insert.run('Lib', '3.0.0', 1, null, 0);
  insert.run('Lib', '4.0.0', 1, '2024-01-31 12:00:00', 0);
  insert.run('Gone', '1.0.0', 1, '2024-01-31 12:00:00', 0);
  database.close();
  const files = {
    'bagetter.db': '',
    'packages/a.nupkg': plainFile(await nupkg('Lib', '1.0.0'), 10),
    'packages/b.nupkg': plainFile(await nupkg('Lib', '2.0.0'), 20),
    'packages/c.nupkg': plainFile(await nupkg('Lib', '3.0.0'), 30),
  };
  const { phases, calls } = await phasesOf(files, {}, { path });
  t.deepEqual(
    calls.filter(([what]) => what === 'version').map(([, each]) => each),
    [
      offeredAs('lib', '1.0.0', { publishedAt: Date.UTC(2024, 0, 31, 12), listed: false, downloads: 5 }),
      offeredAs('lib', '2.0.0', { publishedAt: 20, tellsState: false }),
      offeredAs('lib', '3.0.0', { publishedAt: 30 }),
    ],
  );
  const missing = 'The database lists this version, and its file is missing.';
  t.deepEqual(phases.slice(1), [[`Lib: Lib 4.0.0: ${missing}`, `Gone: Gone 1.0.0: ${missing}`], []]);
  const lostOf = async (more: Partial<ImportOptions>) => (await phasesOf(files, more, { path })).phases[1];
  t.deepEqual(await lostOf({ names: ['GONE'] }), [`Gone: Gone 1.0.0: ${missing}`]);
  t.deepEqual((await lostOf({ isWanted: (name) => name === 'lib' }))!.length, 1);
  t.deepEqual(await lostOf({ names: [] }), []);
  const unknown = await phasesOf(files, {}, { path, decides: new Error('It is not known.') });
  t.deepEqual(unknown.phases.slice(0, 2), [['Lib: It is not known.'], phases[1]!]);
});
