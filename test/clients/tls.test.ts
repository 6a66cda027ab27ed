import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { createLayout, type Image } from '../support/builders/images.ts';
import { execute, requiredCommand, temporaryFolder, type CommandLine } from '../support/clients/clients.ts';
import { containerClient, type ContainerClient } from '../support/clients/container-clients.ts';
import { startContainerd } from '../support/clients/containerd.ts';
import { startDockerEngine } from '../support/clients/docker-engine.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { freePort } from '../support/processes/services.ts';

// `entrepot cert --self-signed`, and the lines that it prints for each client, pasted into a shell. The server listens on an
// address that is not a loopback one, because Docker verifies no certificate of those.

const main = join(import.meta.dirname, '../../bin/entrepot.js');
const folder = await temporaryFolder();
const address = Object.values(networkInterfaces())
  .flatMap((each) => each ?? [])
  .find(({ internal, family }) => !internal && family === 'IPv4')?.address;
/** Clients read these folders of the machine; the tests add only a folder for their own port. */
const machineFolders = ['/etc/docker/certs.d', '/etc/containers/certs.d', '/etc/containerd/certs.d'];
const untrusted = /x509: certificate signed by unknown authority/;
const canRun = address !== undefined && process.getuid?.() === 0;
const withClients = (...names: string[]) => (canRun ? testWith(...names) : test.serial.skip);
let entrepot: Entrepot;
let printed: string;
let image: Image;

test.before(async () => {
  if (!canRun) return;
  const [port, adminPort] = [await freePort(), await freePort()];
  const listen = { ENTREPOT_HOST: address, ENTREPOT_PORT: `${port}`, ENTREPOT_ADMIN_PORT: `${adminPort}` };
  const out = join(folder.path, 'certificates');
  const env = { PATH: process.env.PATH, ENTREPOT_DATA: folder.path, ...listen };
  const made = await execute(process.execPath, [main, 'cert', '--self-signed', '--host', address, '--out', out], {
    env,
  });
  if (made.code !== 0) throw new Error(made.stderr);
  printed = made.stdout;
  const tls = { ENTREPOT_TLS_CERT_FILE: join(out, 'server.crt'), ENTREPOT_TLS_KEY_FILE: join(out, 'server.key') };
  entrepot = await startEntrepot(folder.path, { ...listen, ...tls });
  image = await (await createLayout(join(folder.path, 'images'))).image('app', { layers: 2 });
});

test.after.always(async () => {
  await entrepot?.stop();
  for (const each of machineFolders)
    if (entrepot) await rm(join(each, entrepot.host), { recursive: true, force: true });
  await folder.remove();
});

/** Pastes the printed lines for one client into a shell of root, and prints a variable after them. */
async function paste(title: string, variable = 'PATH'): Promise<string> {
  const lines = printed.split(`\n${title}`)[1]!.split('\n\n')[0]!.split('\n').slice(1).join('\n');
  const script = `set -e\nsudo() { "$@"; }\nexec 3>&1 >&2\n${lines}\necho "\${${variable}}" >&3`;
  const { code, stdout, stderr } = await execute('bash', ['-c', script]);
  if (code !== 0) throw new Error(stderr);
  return stdout.trim();
}

const login = (client: CommandLine) => client.run('login', '-u', 'api', '-p', entrepot.token, entrepot.host);

withClients(
  'skopeo',
  'podman',
  'umoci',
)('skopeo and podman trust the certificate by the printed lines', async (t) => {
  const name = `${entrepot.host}/team/tls:1`;
  const clients = new Map<ContainerClient, CommandLine>();
  for (const client of ['skopeo', 'podman'] as const) {
    clients.set(client, await containerClient(client, join(folder.path, client), []));
    t.regex(await clients.get(client)!.fails('login', '-u', 'api', '-p', entrepot.token, entrepot.host), untrusted);
  }
  await paste('podman, skopeo and buildah:');
  const [skopeo, podman] = [clients.get('skopeo')!, clients.get('podman')!];
  for (const client of [skopeo, podman]) await login(client);
  await skopeo.run('copy', image.reference, `docker://${name}`);
  await podman.run('pull', '--quiet', name);
  t.is((await podman.run('image', 'inspect', '--format', '{{.Digest}}', name)).trim(), image.digest);
  await podman.run('push', name, `${entrepot.host}/other/tls:1`);
  await podman.run('rmi', '--all', '--force');
});

withClients(
  'dockerd',
  'skopeo',
  'umoci',
)('docker trusts the certificate by the printed lines', async (t) => {
  const engine = await startDockerEngine(join(folder.path, 'engine'));
  t.teardown(() => engine.stop());
  const { docker } = engine;
  t.regex(await docker.fails('login', '-u', 'api', '-p', entrepot.token, entrepot.host), untrusted);
  await paste('Docker:');
  t.regex(await login(docker), /Login Succeeded/);
  const build = join(folder.path, 'build');
  await mkdir(build);
  await writeFile(join(build, 'Dockerfile'), 'FROM scratch\nCOPY Dockerfile /\nCMD ["/none"]\n');
  const name = `${entrepot.host}/team/docker-tls:1`;
  await docker.run('build', '--network', 'none', '--tag', name, build);
  const pushed = /digest: (sha256:[0-9a-f]{64})/.exec(await docker.run('push', name))?.[1];
  await docker.run('image', 'rm', '--force', name);
  t.regex(await docker.run('pull', name), new RegExp(`Digest: ${pushed}`));
});

withClients(
  'containerd',
  'ctr',
  'skopeo',
  'umoci',
)('containerd trusts the certificate by the printed lines', async (t) => {
  const skopeo = await containerClient('skopeo', join(folder.path, 'for-containerd'), []);
  await paste('podman, skopeo and buildah:');
  await login(skopeo);
  const name = `${entrepot.host}/team/containerd:1`;
  await skopeo.run('copy', image.reference, `docker://${name}`);

  const ctr = await startContainerd(t, join(folder.path, 'containerd'));
  const user = ['--user', `api:${entrepot.token}`];
  const pull = ['images', 'pull', '--snapshotter', 'native', '--hosts-dir', '/etc/containerd/certs.d', ...user, name];
  t.regex(await ctr.fails(...pull), untrusted);
  await paste('containerd');
  await ctr.run(...pull);
  t.regex(await ctr.run('images', 'list'), new RegExp(`${name} .*${image.digest}`));
});

withClients('dotnet')('dotnet trusts the certificate by the printed lines', async (t) => {
  const feed = { url: `${entrepot.url}/v3/index.json`, username: 'api', password: entrepot.token };
  const id = 'Tls.Library';
  const first = await dotnet(join(folder.path, 'dotnet'), feed);
  const nupkg = await first.pack({ id, version: '1.0.0' });
  const push = ['nuget', 'push', nupkg, '--source', 'entrepot', '--api-key', entrepot.token];
  t.regex(await first.fails(...push), /SSL connection could not be established/);
  const env = { SSL_CERT_FILE: await paste('dotnet on Linux', 'SSL_CERT_FILE') };
  t.true((await readFile(env.SSL_CERT_FILE, 'utf8')).includes('BEGIN CERTIFICATE'));
  const trusting = await dotnet(join(folder.path, 'dotnet'), feed, env);
  await trusting.run(...push);
  const project = await trusting.project('Program', { [id]: '1.0.0' });
  await trusting.run('restore', project);
  t.regex(await trusting.run('run', '--no-restore', '--project', project), /1\.0\.0/);
});

withClients('curl')('curl trusts the certificate by the printed line, and plain HTTP says what to do', async (t) => {
  await paste('curl:');
  const { stdout } = await execute(requiredCommand('curl'), ['--silent', `http://${entrepot.host}/v3/index.json`]);
  t.is(stdout, 'This port accepts only HTTPS. Use a URL that begins with https://.\n');
});
