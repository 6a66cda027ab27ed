import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

const lockOf = (id: string) =>
  JSON.stringify({ version: 1, dependencies: { net8: { [id]: { type: 'Direct', resolved: '1.0.0' } } } });
const projectOf = (reference: string) => `<Project><ItemGroup><PackageReference ${reference} /></ItemGroup></Project>`;
const centralOf = (id: string) =>
  `<Project><ItemGroup><PackageVersion Include="${id}" Version="1.0.0" /></ItemGroup></Project>`;

/** The rest of the lines that begin with `start`. */
function linesAfter(text: string, start: string): string[] {
  return text.split('\n').flatMap((each) => (each.startsWith(start) ? [each.slice(start.length)] : []));
}

/** A folder with files, upstreams that have the packages `ids` in version 1.0.0 and two images, and the command. */
async function setUp(t: ExecutionContext, ids: readonly string[], files: Record<string, string>) {
  const folder = await folderUntilEnd(t);
  const feed = await UpstreamFeed.start(t);
  for (const id of ids) await feed.offer({ id, versions: [{ version: '1.0.0' }] });
  const registry = await startUpstreamRegistry(t);
  registry.image('library/redis', '7');
  registry.image('team/app', '1');
  const upstreams = [feed.as('feed.test'), registry.settings('docker.io', { default: true })];
  const write = async (name: string, text: string) => {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  };
  for (const [name, text] of Object.entries(files)) await write(name, text);
  const environment = { ENTREPOT_DATA: join(folder, 'data'), ENTREPOT_UPSTREAMS: JSON.stringify(upstreams) };
  const prefetch = async (...words: string[]) => {
    const { code, stdout, stderr } = await entrepot(environment, 'prefetch', '--no-referrers', ...words);
    return {
      code,
      stdout,
      stderr,
      read: linesAfter(stdout, 'reading '),
      missing: linesAfter(stderr, 'missing: ').sort(),
    };
  };
  return { folder, feed, registry, write, prefetch };
}

test('a folder: what its files list is fetched, without links, build output and files of other kinds', async (t) => {
  const ids = ['Locked', 'Central', 'Old', 'Tool', 'Sdk.X'];
  const { folder, feed, prefetch, write } = await setUp(t, [...ids, 'Hidden', 'Outside'], {
    'repo/src/Locked/packages.lock.json': lockOf('Locked'),
    // The lock file has its packages exactly.
    'repo/src/Locked/Locked.csproj': projectOf('Include="Hidden" Version="1.0.0"'),
    'repo/src/Central/Central.csproj': projectOf('Include="Central"'),
    'repo/Directory.Packages.props': centralOf('Central'),
    'repo/old/packages.config': '<packages><package id="Old" version="1.0.0" /></packages>',
    'repo/old/Old.csproj': projectOf('Include="Hidden" Version="1.0.0"'),
    'repo/.config/dotnet-tools.json': '{"tools": {"Tool": {"version": "1.0.0"}}}',
    'repo/global.json': '{"sdk": {"version": "10.0.100"}, "msbuild-sdks": {"Sdk.X": "1.0.0"}}',
    'repo/Dockerfile': 'FROM team/app:1\n',
    'repo/deploy/compose.yaml': 'services: { cache: { image: "redis:7" } }',
    'repo/appsettings.json': '{',
    'repo/deploy/values.yaml': '- not: [',
    'repo/notes.txt': 'Hidden@1.0.0',
    'other/packages.lock.json': lockOf('Outside'),
  });
  for (const each of ['bin', 'obj', 'node_modules', '.git'])
    await write(`repo/src/${each}/packages.lock.json`, lockOf('Hidden'));
  await symlink('../other', join(folder, 'repo/linked'));
  await symlink('../../other/packages.lock.json', join(folder, 'repo/src/packages.lock.json'));
  const { code, read, stdout, stderr } = await prefetch(join(folder, 'repo'));
  t.deepEqual([code, stderr], [0, '']);
  t.deepEqual(
    read,
    [
      '.config/dotnet-tools.json',
      'Directory.Packages.props',
      'Dockerfile',
      'deploy/compose.yaml',
      'global.json',
      'old/packages.config',
      'src/Central/Central.csproj',
      'src/Locked/packages.lock.json',
    ].map((each) => join(folder, 'repo', each)),
  );
  t.regex(stdout, /^packages: 5 \(.*fetched, 0 here already\nmanifests: 2 /m);
  t.deepEqual(
    feed.asked.filter((path) => /hidden|outside/i.test(path)),
    [],
  );

  await write('locked/a/packages.lock.json', lockOf('Locked'));
  await write('locked/a/A.csproj', projectOf('Include="Locked"'));
  await write('locked/Directory.Packages.props', centralOf('Hidden'));
  const locked = await prefetch(join(folder, 'locked'));
  t.deepEqual([locked.code, locked.read.length], [0, 1], 'lock files alone, if all projects have one');
});

test('a solution: the lock files of its projects, else the projects, without what is outside its folder', async (t) => {
  const { folder, feed, prefetch } = await setUp(t, ['Locked', 'Central', 'Tool', 'Hidden'], {
    'repo/src/A/A.csproj': projectOf('Include="Hidden" Version="1.0.0"'),
    'repo/src/A/packages.lock.json': lockOf('Locked'),
    'repo/src/B/B.fsproj': projectOf('Include="Central"'),
    'repo/src/Directory.Packages.props': centralOf('Central'),
    'repo/.config/dotnet-tools.json': '{"tools": {"Tool": {"version": "1.0.0"}}}',
    'repo/src/NotNamed/packages.lock.json': lockOf('Hidden'),
    'repo/Dockerfile': 'FROM team/none:1\n',
    'outside/C.csproj': projectOf('Include="Hidden" Version="1.0.0"'),
    'repo/All.slnx':
      '<Solution><Folder Name="/f/"><Project Path="src/A/A.csproj" /></Folder><Project Path="src\\B\\B.fsproj" /></Solution>',
    'repo/All.sln': `
Microsoft Visual Studio Solution File, Format Version 12.00
Project("{2150E333-8FDC-42A3-9474-1A3956D46DE8}") = "src", "src", "{1}"
EndProject
${['src\\A\\A.csproj', 'src\\B\\B.fsproj', '..\\outside\\C.csproj', 'linked\\C.csproj', 'gone\\D.csproj']
  .map((path) => `Project("{FAE04EC0-301F-11D3-BF4B-00C04F79EFBC}") = "X", "${path}", "{2}"\nEndProject`)
  .join('\n')}
Global
EndGlobal
`,
    'repo/Empty.sln': 'Microsoft Visual Studio Solution File, Format Version 12.00\n',
  });
  await symlink('../outside', join(folder, 'repo/linked'));
  const expected = [
    'src/B/B.fsproj',
    'src/A/packages.lock.json',
    '.config/dotnet-tools.json',
    'src/Directory.Packages.props',
  ].map((each) => join(folder, 'repo', each));
  const xml = await prefetch(join(folder, 'repo/All.slnx'));
  t.deepEqual([xml.code, xml.stderr, xml.read.toSorted()], [0, '', expected.toSorted()]);
  t.regex(xml.stdout, /^packages: 3 /m);

  const solution = join(folder, 'repo/All.sln');
  const text = await prefetch(solution);
  t.deepEqual(text.read.toSorted(), expected.toSorted());
  t.deepEqual(text.missing, [
    `../outside/C.csproj (${solution}): it is outside the folder of the solution; give it as a file of its own`,
    `gone/D.csproj (${solution}): there is no such file`,
    `linked/C.csproj (${solution}): it is outside the folder of the solution; give it as a file of its own`,
  ]);
  t.is(text.code, 1);
  t.deepEqual(
    feed.asked.filter((path) => /hidden/i.test(path)),
    [],
  );
  t.regex((await prefetch(join(folder, 'repo/Empty.sln'))).stderr, /Empty\.sln: the solution has no project/);
});

test('a file of a folder that cannot be read is missing, with its line; the other ones are fetched', async (t) => {
  const { folder, prefetch } = await setUp(t, ['Locked'], {
    'repo/a/packages.lock.json': lockOf('Locked'),
    'repo/b/packages.lock.json': '{\n "version": 1,\n "dependencies": {{\n',
    'repo/c/Dockerfile': 'FROM\n',
  });
  const { code, missing, stdout } = await prefetch(join(folder, 'repo'));
  t.is(code, 1);
  t.regex(stdout, /^packages: 1 \(/m);
  t.is(missing.length, 2);
  t.regex(missing[0]!, /^what this file lists \(.*\/repo\/b\/packages\.lock\.json:3\): not JSON/);
  t.regex(missing[1]!, /^what this file lists \(.*\/repo\/c\/Dockerfile:1\): /);
});

test('a folder is refused if it has nothing to read, too much or too deep', async (t) => {
  const { folder, feed, prefetch } = await setUp(t, [], {
    'empty/README.md': '',
    'unknown.json': '{}',
    [`deep/${'d/'.repeat(33)}Dockerfile`]: 'FROM team/app:1',
  });
  await mkdir(join(folder, 'many'));
  for (let index = 0; index <= 2000; index += 1)
    await writeFile(join(folder, `many/Dockerfile.${index}`), 'FROM team/app:1');
  for (const [words, message] of [
    [
      ['empty'],
      /empty: the folder has no file that a search finds: packages\.lock\.json, [^;]*global\.json, compose\.yaml, Dockerfile; name/,
    ],
    [['deep'], /more than 32 folders below/],
    [['many'], /many: has more than 2000 files to read/],
    [['many', '--kind', 'dockerfile'], /--kind is for files, not for a folder/],
    [['unknown.json'], /unknown\.json: the kind of this file is unknown; known are packages\.lock\.json, .*\*\.sln/],
  ] as const) {
    const [path, ...more] = words;
    const { code, stdout, stderr } = await prefetch(join(folder, path), ...more);
    t.deepEqual([code, stdout], [1, ''], path);
    t.regex(stderr, message);
  }
  t.deepEqual(feed.asked, []);
});
