import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmod,
  chown,
  copyFile,
  cp,
  lchown,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rm,
  stat,
  symlink,
} from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import packageFile from '../../package.json' with { type: 'json' };
import { findCommand } from '../../scripts/packages.ts';
import { copyFiles } from '../mutants/checkout.ts';
import { nobody } from '../support/as-root.ts';
import { execute, requiredCommand, type Finished } from '../support/clients/clients.ts';
import { testWith } from '../support/clients/test-with.ts';
import { answers, freePort } from '../support/processes/services.ts';
import { until } from '../support/until.ts';

// The blocks of docs/install.md, pasted where this machine can. Some run as `nobody`, so these tests need root.

const root = join(import.meta.dirname, '../..');
const isRoot = process.getuid?.() === 0;
const asRootWith = (...names: string[]) => (isRoot ? testWith(...names) : test.serial.skip);

/** Other users reach it, which is not so for the folder of this run. */
const folder = await mkdtemp('/tmp/entrepot-install-');
await chmod(folder, 0o755);
const at = (...names: string[]) => join(folder, ...names);
const clone = at('clone');
/** Where `npm install --global` puts programs, and Node 24, which the whole machine has. */
const global = at('global');
const path = [
  at('global/bin'),
  ...(process.env.PATH ?? '').split(delimiter).filter((each) => !each.includes('node_modules')),
];
let port: number;

test.before(async () => {
  port = await freePort();
  await mkdir(at('global/bin'), { recursive: true });
  await copyFile(process.execPath, at('global/bin/node'));
  await copyFiles(clone);
  // Other users may not reach the packages of the checkout. Links are not possible to another disk.
  const copied = await execute(requiredCommand('cp'), ['-a', '--link', join(root, 'node_modules'), at('node_modules')]);
  if (copied.code !== 0) {
    await rm(at('node_modules'), { recursive: true, force: true });
    await cp(join(root, 'node_modules'), at('node_modules'), { recursive: true, verbatimSymlinks: true });
  }
  await symlink(at('node_modules'), join(clone, 'node_modules'));
});

test.after.always(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** The code blocks of docs/install.md below `title`. */
async function blocks(title: string): Promise<string[]> {
  const text = await readFile(join(root, 'docs/install.md'), 'utf8');
  const section = text.split(`\n## ${title}\n`)[1]!.split('\n## ')[0]!;
  return [...section.matchAll(/^```sh\n([^]*?)^```$/gm)].map(([, block]) => block!);
}

interface Shell {
  cwd: string;
  /** The number of the user. */
  user?: number;
  env?: Record<string, string>;
}

/** Settings that say where npm gets packages. */
const ofNpm = /^npm_config_(?:registry|cafile|userconfig|globalconfig|cache|noproxy|strict_ssl)$/i;

/** A shell of a user who has the programs of `path` and a home of their own, and no settings but `env`. */
function shell(text: string, { cwd, user = 0, env = {} }: Shell): [program: string, args: string[], options: object] {
  const settings = {
    PATH: path.join(delimiter),
    LANG: 'C.UTF-8',
    // The settings of npm of this machine, such as its registry, are those of root.
    HOME: user === 0 ? process.env.HOME : at(`home-${user}`),
    ...Object.fromEntries(
      Object.entries(process.env).filter(
        ([name]) => /^(?:\w+_proxy|NODE_EXTRA_CA_CERTS)$/i.test(name) || (user === 0 && ofNpm.test(name)),
      ),
    ),
    npm_config_update_notifier: 'false',
    ...env,
  };
  const become = user === 0 ? [] : ['setpriv', `--reuid=${user}`, `--regid=${user}`, '--clear-groups'];
  const [program, ...args] = [...become, 'bash', '-e', '-o', 'pipefail', '-c', text];
  return [findCommand(program)!, args, { cwd, env: settings }];
}

async function run(t: ExecutionContext, text: string, where: Shell): Promise<string> {
  const { code, stdout, stderr } = await attempt(text, where);
  t.is(code, 0, `${text}\n${stdout}${stderr}`);
  return stdout;
}

function attempt(text: string, where: Shell): Promise<Finished> {
  const [program, args, options] = shell(text, where);
  return execute(program, args, { ...options, milliseconds: 590_000 });
}

/** Starts what does not end, and waits until it is ready; resolves to what it prints until then. */
async function serve(
  t: ExecutionContext,
  text: string,
  where: Shell,
): Promise<{ said: () => string; child: ChildProcess }> {
  const [program, args, options] = shell(text, { ...where, env: { ...serving(), ...where.env } });
  // In a group of its own, so that a signal reaches what npm starts.
  const child = spawn(program, args, { ...options, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  t.teardown(() => stop(child, 'SIGKILL'));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`the server ended: ${output}`);
    return (await answers(`http://127.0.0.1:${port}/readyz`)) && output.includes('ready');
  }, 120_000);
  t.regex(output, /This is its first token/);
  return { said: () => output, child };
}

const serving = () => ({ ENTREPOT_PORT: `${port}`, ENTREPOT_UPSTREAMS: '[]' });

function stop(child: ChildProcess, signal: NodeJS.Signals): void {
  try {
    process.kill(-child.pid!, signal);
  } catch {
    // Every process of the group has ended.
  }
}

async function end(t: ExecutionContext, { child, said }: { child: ChildProcess; said: () => string }): Promise<void> {
  const closed = once(child, 'close');
  stop(child, 'SIGTERM');
  await closed;
  t.notRegex(said(), /"level":[56]0/);
}

/** That the token, which a command has printed as its last line, is one of the server. */
async function isValid(output: string): Promise<boolean> {
  const token = output.match(/^ent_\w+$/m)?.[0];
  const answer = await fetch(`http://127.0.0.1:${port}/v1/packages`, { headers: { authorization: `Bearer ${token}` } });
  return answer.status === 200;
}

/** Gives all files of the folder to the user; what symbolic links name stays. */
async function give(path: string, user: number): Promise<void> {
  for (const name of ['.', ...(await readdir(path, { recursive: true }))]) await lchown(join(path, name), user, user);
}

async function home(user: number): Promise<void> {
  await mkdir(at(`home-${user}`), { recursive: true });
  await chown(at(`home-${user}`), user, user);
}

asRootWith(
  'npm',
  'npx',
  'setpriv',
)('from a clone: its owner pastes the blocks, and npx elsewhere runs no package of this name', async (t) => {
  t.timeout(600_000);
  await home(nobody);
  await give(clone, nobody);
  const [start, commands] = await blocks('From a clone');
  const owner = { cwd: clone, user: nobody };
  const server = await serve(t, start!, owner);
  const { uid, mode } = await stat(join(clone, 'data'));
  t.deepEqual([uid, mode & 0o777], [nobody, 0o700]);

  // A registry with a package of this name, which would run.
  const asked: string[] = [];
  const registry = createServer((request, response) => {
    asked.push(request.url!);
    const dist = { tarball: `http://${request.headers.host}/entrepot.tgz`, shasum: '0'.repeat(40) };
    const version = { name: 'entrepot', version: '9.9.9', bin: { entrepot: 'run.js' }, dist };
    response.end(
      JSON.stringify({ name: 'entrepot', 'dist-tags': { latest: '9.9.9' }, versions: { '9.9.9': version } }),
    );
  });
  registry.listen(0, '127.0.0.1');
  await once(registry, 'listening');
  t.teardown(() => registry.close());
  const { port: itsPort } = registry.address() as AddressInfo;
  const env = { ...serving(), npm_config_registry: `http://127.0.0.1:${itsPort}/` };
  t.true(await isValid(await run(t, commands!, { ...owner, env })), 'the token of the block');
  t.deepEqual(asked, []);
  const elsewhere = await attempt(commands!, { ...owner, cwd: at(`home-${nobody}`), env });
  t.not(elsewhere.code, 0);
  t.is(elsewhere.stdout, '');
  t.false(asked.includes('/entrepot.tgz'), 'nothing is downloaded');

  // The same line, of root: refused, with a line that works.
  const refused = await attempt(commands!.split('\n')[1]!, { cwd: clone, env: serving() });
  t.is(refused.code, 1);
  t.regex(
    refused.stderr,
    /^entrepot: ENTREPOT_DATA: \S+ belongs to the user 65534.* Type: sudo -u '#65534' .* token list\n$/m,
  );
  const line = / Type: (sudo .*)$/m.exec(refused.stderr)![1]!;
  if (findCommand('sudo') === undefined) t.log('sudo is not installed: its line is not pasted');
  else t.regex(await run(t, line, { cwd: clone, env: serving() }), /\tlaptop\tby command\n/);
  const second = await attempt('npm start', { cwd: clone, env: { ...serving(), ENTREPOT_PORT: '0' } });
  t.is(second.code, 1, 'a server of root is refused, too');
  t.regex(second.stderr, / Type: sudo -u '#65534' .* serve\n/);
  await end(t, server);
});

asRootWith('npm', 'setpriv')(
  'as a package, and with systemd: pasted, the server and its commands run as another user from another folder',
  async (t) => {
    t.timeout(600_000);
    await home(nobody);
    await mkdir(at('private'), { mode: 0o700 });
    await give(clone, 0);
    const npmSettings = { npm_config_prefix: global, npm_config_prefer_offline: 'true' };
    const [install, start, commands] = await blocks('As a package');
    t.true(install!.includes(`entrepot-${packageFile.version}.tgz`));
    t.regex(await run(t, install!, { cwd: clone, env: npmSettings }), new RegExp(`^${packageFile.version}$`, 'm'));

    const user = { cwd: '/', user: nobody };
    const server = await serve(t, start!, user);
    t.is((await stat(at(`home-${nobody}/entrepot/entrepot.db`))).uid, nobody);
    const listed = await run(t, commands!, { ...user, env: { ENTREPOT_UPSTREAMS: '[]' } });
    t.true(await isValid(listed));
    t.regex(listed, /\tlaptop\tby command\n/);
    await end(t, server);

    const [service, beside] = await blocks('With systemd');
    // What changes the machine is not run: this machine has no systemd that runs.
    const lines = service!.trim().split('\n');
    const left = lines.filter((line) => /^sudo (?:useradd|systemctl|journalctl) /.test(line));
    t.is(left.length, 4);
    const units = at('units');
    await mkdir(units);
    const done = lines.filter((line) => !left.includes(line)).join('\n');
    t.true(done.includes('/etc/systemd/system/entrepot.service'));
    const text = done.replaceAll('sudo ', '').replace('/etc/systemd/system/', `${units}/`);
    await run(t, text, { cwd: clone, env: npmSettings });
    const unit = await readFile(join(units, 'entrepot.service'), 'utf8');
    t.is(unit, await readFile(join(root, 'scripts/entrepot.service'), 'utf8'));
    const value = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)![1]!;
    const state = at('var/lib', value('StateDirectory'));
    await mkdir(state, { recursive: true });
    await chmod(state, Number.parseInt(value('StateDirectoryMode'), 8));
    await chown(state, nobody, nobody);
    t.is(value('User'), 'entrepot');
    const settings = Object.fromEntries(
      value('Environment')
        .split(' ')
        .map((each) => each.split('=') as [string, string]),
    );
    t.is(settings['ENTREPOT_DATA'], '/var/lib/entrepot');
    const started = `umask ${value('UMask')}; exec ${value('ExecStart')}`;
    const running = await serve(t, started, { cwd: state, user: nobody, env: { ...settings, ENTREPOT_DATA: state } });

    // From a folder that this user cannot read.
    const typed = beside!.replaceAll('/var/lib/entrepot', state);
    t.is(typed.match(/^sudo -u entrepot env /gm)?.length, 2);
    const become = `setpriv --reuid=${nobody} --regid=${nobody} --clear-groups env HOME=/nonexistent `;
    const printed = await run(t, typed.replaceAll('sudo -u entrepot env ', become), { cwd: at('private') });
    t.true(await isValid(printed));
    t.regex(printed, /\tlaptop\tby command\n/);
    const asRoot = await attempt(typed.replaceAll('sudo -u entrepot env ', 'env '), { cwd: at('private') });
    t.regex(
      asRoot.stderr,
      /belongs to the user 65534, and this command runs as root: .* Type: sudo -u '#65534' --preserve-env=ENTREPOT_DATA(?:,NODE_EXTRA_CA_CERTS)? /,
    );
    await end(t, running);
  },
);

asRootWith('setpriv')(
  'in Kubernetes: the folder of the file is made in a volume of root that the group may write',
  async (t) => {
    t.timeout(600_000);
    const volume = at('volume');
    await mkdir(volume);
    await chown(volume, 0, 1000);
    await chmod(volume, 0o2775);
    await home(1000);
    const env = { ENTREPOT_DATA: join(volume, 'entrepot') };
    const server = await serve(t, `exec node '${join(clone, 'bin/entrepot.js')}' serve`, { cwd: '/', user: 1000, env });
    const { uid, mode } = await stat(join(volume, 'entrepot'));
    t.deepEqual([uid, mode & 0o777], [1000, 0o700]);
    t.notRegex(server.said(), /"level":40/);
    // A user without an entry in passwd, and the owner.
    const line = `node '${join(clone, 'bin/entrepot.js')}' account list`;
    const refused = await attempt(line, { cwd: '/', user: 54_321, env });
    t.is(refused.code, 1);
    t.regex(
      refused.stderr,
      /^entrepot: ENTREPOT_DATA: \S+ belongs to the user 1000, and this command runs as the user 54321, who may not write there\. Type: sudo -u '#1000' /,
    );
    t.regex(await run(t, line, { cwd: '/', user: 1000, env }), /^default\b/m);
    await end(t, server);
  },
);

test('the blocks of containers and of Kubernetes, which no engine runs here, are correct for a shell and name files that exist', async (t) => {
  for (const title of ['As a container', 'In Kubernetes']) {
    const [block] = await blocks(title);
    const { code, stderr } = await execute(requiredCommand('bash'), ['-n', '-c', block!]);
    t.is(code, 0, stderr);
    const files = [...block!.matchAll(/(?:--file|--filename) (\S+)/g)].map(([, name]) => name!);
    t.is(files.length, 1, title);
    for (const file of files) t.true((await stat(join(root, file))).isFile(), file);
  }
  const [block] = await blocks('As a container');
  const readme = await readFile(join(root, 'README.md'), 'utf8');
  for (const line of block!.split('\n').filter((each) => /^docker (?:build|run)/.test(each)))
    t.true(readme.includes(line), line);
});
