import { rmSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import test from 'ava';
import { packageInputs } from '../../src/nuget/prefetch/inputs.ts';
import { prefetchItemsIn } from '../../src/prefetch/folders.ts';
import { Inputs } from '../../src/prefetch/inputs.ts';
import { isUnclear } from '../../src/prefetch/item.ts';
import { inputs } from '../../src/server/installation.ts';
import { folderUntilEnd } from '../support/folder.ts';

const values: ReadonlyMap<string, string> = new Map();
const config = '<packages><package id="A" version="1.0.0" /></packages>';

/** The projects of a folder that a search reads. */
function left(...paths: string[]): string[] {
  return inputs.reduce(paths).filter((path) => path.endsWith('proj'));
}

function overflow(): never {
  throw new RangeError(`Maximum call stack size exceeded${'!'.repeat(200)}`);
}

test('a file or a folder that vanishes, and a parser that fails, do not end a search', async (t) => {
  const folder = await folderUntilEnd(t);
  const at = (...names: string[]) => join(folder, ...names);
  for (const each of ['deep', 'gone', 'left', 'vanishes']) await mkdir(at(each));
  for (const each of ['left', 'vanishes']) await writeFile(at(each, 'packages.config'), config);
  await writeFile(at('deep', 'global.json'), '{}');
  // The entries of the folder are read before the folders below it.
  await writeFile(at('first.csproj'), '<Project/>');
  const fragile = new Inputs([
    {
      ...packageInputs,
      finds: (name) => {
        if (name === 'first.csproj') rmSync(at('gone'), { recursive: true });
        return packageInputs.finds(name);
      },
      readers: packageInputs.readers.map((each) => (each.kind === 'sdks' ? { ...each, read: overflow } : each)),
    },
  ]);
  const onFound = (file: string) => {
    if (file === at('vanishes', 'packages.config')) rmSync(file);
  };
  const found = await prefetchItemsIn(folder, { inputs: fragile, values, onFound });
  const unclear = found.filter(isUnclear).map(({ what, reason, location }) => [what, location.file, reason]);
  const reasonOf = (path: string) => unclear.find(([, file]) => file === path)?.[2] ?? '';
  t.is(unclear.length, 3);
  t.regex(reasonOf(at('gone')), /^cannot be read: ENOENT/);
  t.regex(reasonOf(at('vanishes', 'packages.config')), /^cannot be read: ENOENT/);
  const long = `Maximum call stack size exceeded${'!'.repeat(168)}`;
  t.is(reasonOf(at('deep', 'global.json')), `cannot be read: ${long}`, 'the first 200 characters');
  t.deepEqual(
    found.filter((each) => !isUnclear(each)).map(({ location }) => location.file),
    [at('left', 'packages.config')],
  );
});

test('a lock file with the name of a project is for this project only', (t) => {
  const projects = ['a/X.csproj', 'a/Y.csproj', 'a/Y.Z.fsproj', 'a/Y Z.vbproj', 'b/X.csproj'];
  t.deepEqual(left('a/packages.X.lock.json', ...projects), projects.slice(1));
  t.deepEqual(left('a/packages.y.z.lock.json', 'a/packages.Y_Z.lock.json', ...projects), [
    'a/X.csproj',
    'a/Y.csproj',
    'b/X.csproj',
  ]);
  t.deepEqual(left('a/packages.lock.json', ...projects), ['b/X.csproj']);
  t.deepEqual(left('a/packages.config', ...projects), ['b/X.csproj']);
  t.deepEqual(inputs.reduce(['a/packages.X.lock.json', 'a/X.csproj', 'a/Y.csproj', 'Directory.Packages.props']), [
    'a/packages.X.lock.json',
    'a/Y.csproj',
    'Directory.Packages.props',
  ]);
});

const read = (path: string) => prefetchItemsIn(path, { inputs, values });

test('a file that is missing or no text is refused', async (t) => {
  const folder = await folderUntilEnd(t);
  const [missing, binary] = [join(folder, 'none.txt'), join(folder, 'list.txt')];
  await writeFile(binary, Buffer.from([0xff, 0x41]));
  const { message } = await t.throwsAsync(read(missing), { name: 'Invalid' });
  t.true(message.startsWith(`${missing}: cannot be read: ENOENT`), message);
  await t.throwsAsync(read(binary), { name: 'Invalid', message: `${binary}: is not text in UTF-8` });
  await writeFile(binary, Buffer.from('\ufeffA@1.0.0', 'utf16le'));
  t.is((await read(binary)).length, 1, 'UTF-16 with a byte order mark');
});

test('an empty folder names only files that a search finds', async (t) => {
  const folder = await folderUntilEnd(t);
  const error = await t.throwsAsync(prefetchItemsIn(folder, { inputs, values }), { name: 'Invalid' });
  const named = /finds: ([^;]*);/.exec(error.message)?.[1]?.split(', ') ?? [];
  t.deepEqual(
    named.filter((each) => !inputs.finds(basename(each).replace('*', 'a'))),
    [],
  );
  t.true(named.length > 5);
});

test('a folder with too many bytes is refused as a whole', async (t) => {
  const folder = await folderUntilEnd(t);
  const half = Buffer.alloc(33 * 2 ** 20, ' ');
  for (const each of ['a.csproj', 'b.csproj']) await writeFile(join(folder, each), half);
  await t.throwsAsync(prefetchItemsIn(folder, { inputs, values }), {
    name: 'Invalid',
    message: /: its files have more than 64 MiB together$/,
  });
});
