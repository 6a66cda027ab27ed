import { cp, mkdir, readdir, readFile, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { withChange } from '../mutants/checkout.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { execute } from '../support/clients/clients.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';

// What `npm start` builds, in a copy of the checkout.

const root = join(import.meta.dirname, '../..');
const token = 'bootstrap-token-of-the-build-test';

function form(name: string, content: string | Buffer<ArrayBuffer>, fields: Record<string, string> = {}): FormData {
  const made = new FormData();
  for (const [key, value] of Object.entries(fields)) made.set(key, value);
  made.set('file', new Blob([content]), name);
  return made;
}

const change = (text: string) => text.replace('serve until SIGTERM', 'SERVE until SIGTERM');

test('the program is what was built from exactly these sources, or the sources; its threads run', async (t) => {
  const folder = await folderUntilEnd(t);
  for (const name of ['bin', 'config', 'package.json', 'src'])
    await cp(join(root, name), join(folder, name), { recursive: true });
  await mkdir(join(folder, 'scripts'));
  await cp(join(root, 'scripts/build.ts'), join(folder, 'scripts/build.ts'));
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
  const run = async (...words: string[]) => {
    const { code, stdout, stderr } = await execute(process.execPath, words);
    t.is(code, 0, stderr);
    return stdout;
  };
  const program = join(folder, 'bin/entrepot.js');
  const help = () => run(program, 'serve', '--help');
  const build = () => run(join(folder, 'scripts/build.ts'));
  const builds = join(folder, '.cache/build');
  /** Adds a line to the output of what was built. */
  const mark = async () => {
    const { folder: name } = JSON.parse(await readFile(join(builds, 'build.json'), 'utf8')) as { folder: string };
    const main = join(builds, name, 'main.cjs');
    await writeFile(main, `console.log('from the build');\n${await readFile(main, 'utf8')}`);
  };

  const plain = await help();
  t.regex(plain, /serve until SIGTERM/);
  await build();
  const built = (await readdir(builds)).find((name) => name !== 'build.json');
  t.regex(await readFile(join(builds, built!, 'LICENSES.txt'), 'utf8'), /^sequelize [\d.]+: MIT\n\nMIT License\n/m);
  await mark();
  t.is(await help(), `from the build\n${plain}`);
  await build();
  t.is(await help(), `from the build\n${plain}`, 'it is not made again');

  const commands = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]', ENTREPOT_BOOTSTRAP_TOKEN: token });
  const server = await commands.serve({}, program);
  const { url } = server;
  t.regex(server.said(), /^from the build\n/);
  const headers = { authorization: `Bearer ${token}`, 'x-nuget-apikey': token };
  // So long a nuspec is read in a thread, as READMEs and files for a prefetch are.
  const nupkg = await makeNupkg({
    id: 'Made',
    version: '1.0.0',
    readme: '# Read *me*',
    description: 'x'.repeat(10_000),
  });
  const pushed = await fetch(`${url}/v3/push`, { method: 'PUT', headers, body: form('a.nupkg', Buffer.from(nupkg)) });
  t.is(pushed.status, 201, await pushed.text());
  const body = form('list.txt', 'A', { kind: 'packages', dry_run: 'true' });
  const prefetch = await fetch(`${url}/v1/prefetch`, { method: 'POST', headers, body });
  t.regex(await prefetch.text(), /"detail":"list\.txt:1: \\"A\\" is not id@version or/);
  const signedIn = await fetch(`${url}/console/sign-in`, {
    method: 'POST',
    headers: { origin: url },
    body: new URLSearchParams({ token }),
    redirect: 'manual',
  });
  const [cookie] = signedIn.headers.getSetCookie().map((each) => each.split(';')[0]!);
  const page = await (await fetch(`${url}/console/packages/Made`, { headers: { cookie: cookie! } })).text();
  t.regex(page, /<h3>Read <em>me<\/em><\/h3>/);
  const [, style] = /href="(\/console\/assets\/[^"]+\.css)"/.exec(page)!;
  t.is((await fetch(url + style)).status, 200);
  await server.stop();

  // The new text has the same length, and the file gets its old time of modification.
  const source = join(folder, 'src/cli/serve.ts');
  const { atime, mtime } = await stat(source);
  await withChange(source, change, async () => {
    await utimes(source, atime, mtime);
    t.is(await help(), plain.replaceAll('serve until', 'SERVE until'), 'from the source');
  });
  t.is(await help(), `from the build\n${plain}`, 'the same text with a later time');
  await withChange(source, change, async () => {
    await build();
    await mark();
    t.is(await help(), `from the build\n${plain.replaceAll('serve until', 'SERVE until')}`);
    t.is((await readdir(builds)).length, 3, 'the last one stays, for a server that runs');
  });
  t.is(await help(), plain, 'it is not what was built last');
});
