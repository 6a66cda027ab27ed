import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import test from 'ava';
import packageFile from '../../package.json' with { type: 'json' };
import { makeNupkg } from '../support/builders/nupkg.ts';
import { commandLine, requiredCommand, temporaryFolder } from '../support/clients/clients.ts';
import { testWith } from '../support/clients/test-with.ts';
import { answers, freePort } from '../support/processes/services.ts';
import { until } from '../support/until.ts';

// The package of `npm pack`, installed and started in an empty folder.

const root = join(import.meta.dirname, '../..');
const token = 'bootstrap-token-of-the-package-test';
const folder = await temporaryFolder();
test.after.always(() => folder.remove());

const isForeign = (name: string) => /^(?:ENTREPOT_|npm_(?!config_)|npm_config_local_prefix$)/.test(name);

/** The environment of a user, whose `node` is Node 24, and not that of this npm script. */
function userEnvironment(settings: Record<string, string> = {}): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !isForeign(name));
  const path = `${dirname(process.execPath)}${delimiter}${process.env.PATH}`;
  return { ...Object.fromEntries(kept), PATH: path, ...settings };
}

/** The command line of each process below `pid`. */
async function commandsBelow(pid: number): Promise<string[]> {
  const children = (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).trim().split(' ').filter(Boolean);
  const below = await Promise.all(children.map((child) => commandsBelow(Number(child))));
  return [(await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ').trim(), ...below.flat()];
}

testWith('npm', 'curl')('the package of npm pack serves from an empty folder', async (t) => {
  t.timeout(600_000);
  const env = userEnvironment();
  const [packed, empty] = [join(folder.path, 'packed'), join(folder.path, 'empty')];
  for (const path of [packed, empty]) await mkdir(path);
  const npm = (cwd: string) => commandLine('npm', requiredCommand('npm'), [], { env, cwd });
  await npm(root).run('pack', '--silent', '--pack-destination', packed);
  const [tarball] = await readdir(packed);
  t.is(tarball, `entrepot-${packageFile.version}.tgz`);
  await npm(empty).run('install', '--silent', '--prefer-offline', join(packed, tarball!));

  const npx = commandLine('npx', requiredCommand('npx'), [], { env, cwd: empty });
  t.is((await npx.run('entrepot', '--version')).trim(), packageFile.version);

  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const settings = { ENTREPOT_PORT: `${port}`, ENTREPOT_BOOTSTRAP_TOKEN: token, ENTREPOT_UPSTREAMS: '[]' };
  // In a group of its own, so that a signal also reaches the server, as Ctrl-C in a terminal does: npx does not forward it.
  const options = { cwd: empty, env: userEnvironment(settings), detached: true };
  const server = spawn(requiredCommand('npx'), ['entrepot', 'serve'], options);
  const signal = (name: NodeJS.Signals) => process.kill(-server.pid!, name);
  let output = '';
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (chunk: Buffer) => (output += String(chunk)));
  const closed = once(server, 'close');
  t.teardown(() => {
    try {
      signal('SIGKILL');
    } catch {
      // Every process of the group has ended.
    }
  });
  await until(async () => {
    if (server.exitCode !== null) throw new Error(`the server ended: ${output}`);
    return answers(`${url}/readyz`);
  }, 120_000);
  const [serving] = (await commandsBelow(server.pid!))
    .filter((command) => command.endsWith('entrepot serve'))
    .slice(-1);
  t.regex(serving!, /^node --max-semi-space-size=8 --initial-old-space-size=64 .*node_modules\/.*entrepot serve$/);

  const nupkg = await makeNupkg({ id: 'Made.In.Package', version: '1.0.0' });
  const file = join(empty, 'made.nupkg');
  await writeFile(file, nupkg);
  const curl = commandLine('curl', requiredCommand('curl'), ['--silent', '--show-error', '--fail'], {
    env,
    cwd: empty,
  });
  await curl.run(
    '--header',
    `X-NuGet-ApiKey: ${token}`,
    '--form',
    `package=@${file}`,
    '--request',
    'PUT',
    `${url}/v3/push`,
  );
  const copy = join(empty, 'copy.nupkg');
  const content = `${url}/v3/package/made.in.package/1.0.0/made.in.package.1.0.0.nupkg`;
  await curl.run('--user', `api:${token}`, '--output', copy, content);
  t.deepEqual(await readFile(copy), nupkg);

  signal('SIGTERM');
  await closed;
  t.regex(output, /"msg":"closing"/);
  t.notRegex(output, /^entrepot: |"level":[56]0/m);
});

testWith('npm')('the bill of materials lists what the package needs, and nothing else', async (t) => {
  const npm = commandLine('npm', requiredCommand('npm'), [], { env: userEnvironment(), cwd: root });
  const bill = JSON.parse(await npm.run('run', '--silent', 'sbom')) as {
    bomFormat: string;
    metadata: { component: { purl: string } };
    components: { purl: string }[];
  };
  t.is(bill.bomFormat, 'CycloneDX');
  t.is(bill.metadata.component.purl, `pkg:npm/entrepot@${packageFile.version}`);
  const lock = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string; dev?: true; devOptional?: true }>;
  };
  const needed = Object.entries(lock.packages).filter(([path, { dev, devOptional }]) => path && !dev && !devOptional);
  const purls = needed.map(([path, { version }]) => {
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
    return `pkg:npm/${name.replace('@', '%40')}@${version}`;
  });
  t.true(purls.length > Object.keys(packageFile.dependencies).length);
  t.deepEqual(bill.components.map(({ purl }) => purl).sort(), [...new Set(purls)].sort());
});
