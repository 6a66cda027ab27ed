import test from 'ava';
import { readInThread } from '../../src/prefetch/reader-thread.ts';
import { inputs } from '../../src/server/installation.ts';
import { wishesIn } from '../support/prefetch.ts';

const read = (file: string, text: string, limit?: number) => readInThread(inputs.modules, [{ file, text }], limit);

test('a thread reads the same as the command', async (t) => {
  const project = '<Project><ItemGroup><PackageReference Include="A" Version="[1.0.0, 2.0.0)" /></ItemGroup></Project>';
  for (const [file, text] of [
    ['list.txt', 'docker.io/library/alpine:3\nA@1.0.0'],
    ['a.csproj', project],
    ['Dockerfile', 'FROM --platform=linux/arm64 alpine:3'],
  ] as const) {
    t.deepEqual(await read(file, text), wishesIn(file, text));
  }
  await t.throwsAsync(read('compose.yaml', 'services: ['), { name: 'Invalid', message: /^compose\.yaml:1: / });
});

test('a file that cannot be sent is refused, and no such file is offered instead', async (t) => {
  const solution = await t.throwsAsync(read('All.sln', 'Microsoft Visual Studio Solution File'), { name: 'Invalid' });
  t.regex(
    solution.message,
    /^All\.sln: a solution lists no packages; send the lock files or projects that it names\.$/,
  );
  const other = await t.throwsAsync(read('data.json', '{}'), { name: 'Invalid' });
  t.regex(other.message, /^data\.json: .*known are packages\.lock\.json, .*\*\.txt\); choose its kind\.$/);
});

for (const [file, root, element] of [
  ['packages.config', 'packages', '<package id="A" version="1.0.0" />'],
  ['a.csproj', 'Project', '<ItemGroup><PackageReference Include="A" Version="1.0.0" /></ItemGroup>'],
] as const) {
  test(`${file}: many lines and many packages are read in time`, async (t) => {
    const [lines, packages] = [2 ** 20, 20_000];
    const text = `<${root}>${'\n'.repeat(lines)}${element.repeat(packages)}</${root}>`;
    const found = await read(file, text, 60_000);
    t.deepEqual([found.length, found.at(-1)?.location.line], [packages, lines + 1]);
  });
}

test('a file that takes a parser too long or too deep is refused, and this thread does not wait', async (t) => {
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 10);
  const slow = read('Dockerfile', `FROM a${'\\\n'.repeat(2 ** 20)}`, 1500);
  await t.throwsAsync(slow, { name: 'Invalid', message: 'The files cannot be read within 1.5 seconds.' });
  clearInterval(timer);
  t.true(turns > 3);
  await t.throwsAsync(read('k.yaml', `a: ${'['.repeat(20_000)}`), { name: 'Invalid' });
});
