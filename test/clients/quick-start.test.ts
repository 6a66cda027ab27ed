import { mkdir, readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { paste } from '../support/clients/paste.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { testWith } from '../support/clients/test-with.ts';

// The quick start of the README, pasted into a shell in an empty folder.

const folder = await temporaryFolder();
let entrepot: Entrepot;

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
});

test.after.always(async () => {
  await entrepot?.stop();
  await folder.remove();
});

/** The commands of the README below `title`, from the code block with number `index`. */
async function pasted(title: string, index: number): Promise<string> {
  const readme = await readFile(join(import.meta.dirname, '../../README.md'), 'utf8');
  const section = readme.split(`\n## ${title}\n`)[1]!.split('\n## ')[0]!;
  return [...section.matchAll(/^```sh\n([^]*?)^```$/gm)][index]![1]!;
}

testWith('dotnet', 'curl')('the quick start works when it is pasted into an empty folder', async (t) => {
  t.timeout(600_000);
  const [empty, home] = [join(folder.path, 'empty'), join(folder.path, 'home')];
  for (const path of [empty, home]) await mkdir(path);
  const commands = await pasted('Quick start', 3);
  t.true(commands.startsWith('export TOKEN=ent_…'));
  const text = commands.replace('ent_…', entrepot.token).replaceAll('127.0.0.1:8080', entrepot.host);
  const { code, stdout, stderr } = await paste(text, empty, home);
  t.is(code, 0, stdout + stderr);
  t.regex(stdout, /Your package was pushed/);
  t.regex(stdout, /Hello, World!/);
  t.regex(stdout, /"id":"My\.Package".*"origin":"hosted"/);
  t.true((await readdir(join(home, 'packages'))).includes('my.package'), 'restored from the feed');
});

testWith('curl')('the example of two teams works when it is pasted', async (t) => {
  const home = join(folder.path, 'teams');
  await mkdir(home);
  const commands = await pasted('Example: two teams', 0);
  const program = `ENTREPOT_DATA=${join(folder.path, 'data')} ENTREPOT_UPSTREAMS=[] '${process.execPath}' '${join(import.meta.dirname, '../../bin/entrepot.js')}'`;
  const text = commands
    .replaceAll('npx --no-install entrepot', program)
    .replaceAll('127.0.0.1:8080', entrepot.host)
    .replaceAll('curl ', 'curl --fail --silent ');
  const { code, stdout, stderr } = await paste(text, home, home);
  t.is(code, 0, stdout + stderr);
  t.regex(stdout, /"name":"web"/);
  t.regex(stdout, /"period":/);
});
