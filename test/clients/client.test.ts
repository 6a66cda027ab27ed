import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { findCommand } from '../../scripts/packages.ts';
import { run } from '../../src/cli/commands.ts';
import type { ClientKind } from '../../src/clients/client.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { createLayout, sha256, type Image } from '../support/builders/images.ts';
import { commandLine, requiredCommand, temporaryFolder, type CommandLine } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startContainerd } from '../support/clients/containerd.ts';
import { pullAsKubelet } from '../support/clients/cri.ts';
import { startDockerEngine } from '../support/clients/docker-engine.ts';
import { dotnet, dotnetEnvironment } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { entrepot } from '../support/in-process.ts';
import { applyPolicy, tokenOf } from '../support/inside.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startTlsServer } from '../support/tls.ts';
import { until } from '../support/until.ts';

// The files that `entrepot client` writes, used by real clients over HTTPS with a private authority, and checks of these clients.
// What they know as docker.io is another server of this project for the mirror.

const folder = await temporaryFolder();
const needed = ['skopeo', 'umoci'];
const tool = 'docker.io/library/tool:1';
const closing: (() => unknown)[] = [];
let server: TestServer;
let upstreams: object[];
let token: string;
let image: Image;

test.before(async () => {
  if (needed.some((name) => findCommand(name) === undefined)) return;
  const later = { teardown: (work: () => unknown) => void closing.push(work) } as Pick<ExecutionContext, 'teardown'>;
  const hub = await startTestServer(later);
  const { host } = new URL(hub.url);
  image = await (await createLayout(join(folder.path, 'images'))).image('app', { layers: 2 });
  const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [host]);
  for (const name of ['tool', 'bad'])
    await skopeo.run('copy', '--dest-creds', `api:${hub.token}`, image.reference, `docker://${host}/library/${name}:1`);
  const auth = { username: 'api', password: hub.token };
  upstreams = [{ name: 'docker.io', kind: 'registry', url: hub.url, default: true, allowPrivateNetwork: true, auth }];
  const started = await startTlsServer(later, { upstreams });
  server = started.server;
  await applyPolicy(server, { rules: [{ name: 'no-bad', images: ['docker.io/library/bad'], verdict: 'deny' }] });
  token = await tokenOf(server, ['read']);
  await writeFile(join(folder.path, 'ca.crt'), started.pair.authority.ca);
});

test.after.always(async () => {
  for (const each of closing.toReversed()) await each();
  await folder.remove();
});

/** The settings of the server for commands beside it. */
const environment = () => ({
  ENTREPOT_DATA: server.data,
  ENTREPOT_BASE_URL: server.url,
  ENTREPOT_UPSTREAMS: JSON.stringify(upstreams),
  HUB_TOKEN: token,
});

/** Lets the command write the files of a client below a new folder. */
async function written(t: ExecutionContext, kind: ClientKind, ...words: string[]): Promise<string> {
  const place = join(folder.path, `${kind}${words.length}`);
  const line = ['client', kind, '--ca-file', join(folder.path, 'ca.crt'), '--write', place, ...words];
  const { code, stderr } = await entrepot(environment(), ...line);
  t.is(code, 0, stderr);
  return place;
}

/** Runs a check, and `ask` with the name in its line; resolves to its exit code and all that it printed. */
async function check(
  words: string[],
  ask: (name: string) => Promise<unknown>,
): Promise<{ code: number; text: string }> {
  let text = '';
  const output = { write: (piece: string) => (text += piece) };
  const done = run(['client', 'check', ...words], environment(), {
    stdout: output,
    stderr: output,
    once: () => {},
    on: () => {},
    exit: () => {},
  });
  await until(() => text.includes('\n\n  '));
  await ask(/(\S*entrepot-check[./][0-9a-f]{32}|docker\.io\/library\/bad)/.exec(text)![1]!);
  return { code: await done, text };
}

testWith(...needed, 'podman')(
  'podman and skopeo use the mirror by the written files, and a check says so',
  async (t) => {
    const place = await written(t, 'podman');
    const { host } = new URL(server.url);
    const clients = new Map<string, CommandLine>();
    const trust = ['--cert-dir', join(place, 'etc/containers/certs.d', host)];
    for (const name of ['podman', 'skopeo'] as const) {
      const client = await containerClient(name, join(folder.path, `${name}-here`), []);
      const configuration = join(place, 'etc/containers/registries.conf.d/entrepot.conf');
      await writeFile(join(folder.path, `${name}-here`, 'registries.conf'), await readFile(configuration));
      clients.set(name, client);
    }
    const [podman, skopeo] = [clients.get('podman')!, clients.get('skopeo')!];
    const unknown = await check(['podman', '--wait', '3s'], (name) => podman.fails('pull', ...trust, `${name}:latest`));
    t.is(unknown.code, 1);
    t.regex(unknown.text, /stops before the name because it has no credential/);
    for (const client of [podman, skopeo]) await client.run('login', ...trust, '-u', 'api', '-p', token, host);
    await podman.run('pull', '--quiet', ...trust, tool);
    t.is((await podman.run('image', 'inspect', '--format', '{{.Digest}}', tool)).trim(), image.digest);
    t.is(sha256(await skopeo.run('inspect', '--raw', ...trust, `docker://${tool}`)), image.digest);
    const used = await check(['podman'], (name) => podman.fails('pull', ...trust, `${name}:latest`));
    t.is(used.code, 0, used.text);
    t.regex(
      used.text,
      /404 \S+\/v2\/docker\.io\/entrepot-check\S+ with the token "a test" of the account default, by containers\//,
    );
    const denied = await check(['podman', '--denied', 'docker.io/library/bad:1'], (name) =>
      podman.fails('pull', ...trust, `${name}:1`),
    );
    t.is(denied.code, 0, denied.text);
    t.regex(denied.text, /403 \S+\/v2\/docker\.io\/library\/bad\/manifests\/1/);
    await podman.run('rmi', '--all', '--force');
  },
);

testWith(
  ...needed,
  'containerd',
  'ctr',
)('containerd and the kubelet use the mirror by the written files, and a check says so', async (t) => {
  const place = await written(t, 'containerd', '--token-env', 'HUB_TOKEN');
  const hosts = join(place, 'etc/containerd/certs.d');
  const file = join(hosts, 'docker.io/hosts.toml');
  // The files are not below the root of this machine.
  await writeFile(file, (await readFile(file, 'utf8')).replaceAll('/etc/containerd/certs.d', hosts));
  const home = join(folder.path, 'containerd');
  const ctr = await startContainerd(t, home, hosts);
  const socket = join(home, 'socket');
  await pullAsKubelet(socket, tool);
  t.regex(await ctr.run('--namespace', 'k8s.io', 'images', 'list'), new RegExp(`${tool} .*${image.digest}`));
  const used = await check(['containerd'], (name) => t.throwsAsync(pullAsKubelet(socket, `${name}:latest`)));
  t.is(used.code, 0, used.text);
  t.regex(used.text, /404 \S+\?ns=docker\.io with the token "a test" .* by containerd\//);
  await writeFile(file, (await readFile(file, 'utf8')).replaceAll(token, `${token}x`));
  const refused = await check(['containerd'], (name) => t.throwsAsync(pullAsKubelet(socket, `${name}:latest`)));
  t.is(refused.code, 1);
  t.regex(refused.text, /Its credential is wrong/);
});

testWith(...needed, 'dockerd')('docker uses a prefix by its login, and a check says so', async (t) => {
  const engine = await startDockerEngine(join(folder.path, 'engine'));
  t.teardown(() => engine.stop());
  const { host } = new URL(server.url);
  await engine.docker.run('login', '-u', 'api', '-p', token, host);
  t.regex(await engine.docker.run('pull', `${host}/${tool}`), new RegExp(`Digest: ${image.digest}`));
  const used = await check(['docker', '--form', 'prefix'], (name) => engine.docker.fails('pull', `${name}:latest`));
  t.is(used.code, 0, used.text);
  t.regex(used.text, /404 .* by docker\//);
});

testWith(...needed, 'dotnet')('dotnet uses the feed by the written files, and a check says so', async (t) => {
  const place = await written(t, 'dotnet');
  const env = {
    ...dotnetEnvironment(place),
    NUGET_TOKEN: token,
    SSL_CERT_FILE: join(place, 'entrepot-ca.crt'),
  };
  const cli = commandLine('dotnet', requiredCommand('dotnet'), [], { env, cwd: place });
  const feed = { url: `${server.url}/v3/index.json`, username: 'api', password: server.token };
  const nupkg = join(folder.path, 'own.nupkg');
  await writeFile(nupkg, await makeNupkg({ id: 'Own.Library' }));
  await cli.run('nuget', 'push', nupkg, '--source', 'entrepot', '--api-key', server.token);
  const used = await check(['dotnet'], (name) =>
    cli.fails('tool', 'install', name, '--version', '1.0.0', '--no-http-cache', '--tool-path', 'entrepot-check'),
  );
  t.is(used.code, 0, used.text);
  t.regex(used.text, /404 \S+\/v3\/\S+entrepot-check\S+ with the token "a test" .* by NuGet/);
  // The project is below the file, and there is no other configuration.
  const project = await (await dotnet(join(place, 'code'), feed, env)).project('Program', { 'Own.Library': '1.0.0' });
  await writeFile(join(place, 'code/nuget.config'), '<configuration />');
  t.notRegex(await cli.run('restore', project), /warning/);
});
