import { rmSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import test from 'ava';
import { packageInputs } from '../../src/nuget/prefetch/inputs.ts';
import { prefetchItemsIn } from '../../src/prefetch/folders.ts';
import { Inputs, openInput } from '../../src/prefetch/inputs.ts';
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

async function* piecesOf(...pieces: (Uint8Array | string)[]): AsyncGenerator<Uint8Array | string> {
  yield* pieces;
}

test('the standard input is read whole, as a list, up to 64 MiB', async (t) => {
  const given = new Map([['A', 'a']]);
  const most = 64 * 2 ** 20;
  const read = (stdin?: AsyncIterable<Uint8Array | string>) => openInput('-', given, stdin);
  const input = await read(piecesOf('Lib', Buffer.from('@1.0.0\n'), 'app:1'));
  t.deepEqual(input, { file: '-', text: 'Lib@1.0.0\napp:1', values: given });
  t.is((await prefetchItemsIn('-', { inputs, values, stdin: piecesOf('Lib@1.0.0\napp:1') })).length, 2);
  await t.throwsAsync(read(), { name: 'Invalid', message: '-: cannot be read: there is no standard input' });
  t.is((await read(piecesOf(Buffer.alloc(most, ' ')))).text.length, most);
  await t.throwsAsync(read(piecesOf(Buffer.alloc(most, ' '), ' ')), {
    name: 'Invalid',
    message: '-: is larger than 64 MiB',
  });
});

test('a kind is for files, and a folder or a solution that names nothing to read is refused', async (t) => {
  const folder = await folderUntilEnd(t);
  await t.throwsAsync(prefetchItemsIn(folder, { inputs, values, kind: 'list' }), {
    name: 'Invalid',
    message: `${folder}: --kind is for files, not for a folder`,
  });
  const solution = join(folder, 'All.slnx');
  await mkdir(join(folder, 'src/b'), { recursive: true });
  const project = '<Project><ItemGroup><PackageReference Include="A" Version="1.0.0" /></ItemGroup></Project>';
  await writeFile(join(folder, 'src/a.csproj'), project);
  await mkdir(join(folder, 'src/b/b.csproj'));
  const paths = ['src/a.csproj', 'src/b/b.csproj', 'src/none.csproj', '../up.csproj', '/root.csproj'];
  const text = `<Solution>${paths.map((path) => `<Project Path="${path}" />`).join('')}</Solution>`;
  await writeFile(solution, text);
  const found: string[] = [];
  const items = await prefetchItemsIn(solution, { inputs, values, onFound: (file) => found.push(file) });
  const outside = 'it is outside the folder of the solution; give it as a file of its own';
  const location = { file: solution, line: 0 };
  t.deepEqual(items.filter(isUnclear), [
    { kind: 'unclear', what: 'src/b/b.csproj', reason: 'it is not a file', location },
    { kind: 'unclear', what: 'src/none.csproj', reason: 'there is no such file', location },
    { kind: 'unclear', what: '../up.csproj', reason: outside, location },
    { kind: 'unclear', what: '/root.csproj', reason: outside, location },
  ]);
  t.deepEqual([items.length, items.at(-1)!.location], [5, { file: join(folder, 'src/a.csproj'), line: 1 }]);
  t.deepEqual(found, [join(folder, 'src/a.csproj')]);
  const listed = prefetchItemsIn(solution, { inputs, values, kind: 'project' });
  await t.throwsAsync(listed, { message: `${solution}:1: expected a <Project>` });
});
