import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { findCommand } from '../../scripts/packages.ts';
import { temporaryFolder, type CommandLine } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startDebianRegistry, type DebianRegistry } from '../support/upstreams/debian-registry.ts';
import { startDockerEngine, type DockerEngine } from '../support/clients/docker-engine.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { createLayout, sha256, type Image } from '../support/builders/images.ts';
import { testWith } from '../support/clients/test-with.ts';

// Entrepot in front of the registry of another project, used by real clients: first with the upstream, then without it.

const folder = await temporaryFolder();
const needed = ['docker-registry', 'umoci', 'skopeo'];
let upstream: DebianRegistry | undefined;
let entrepot: Entrepot | undefined;
let engine: DockerEngine | undefined;
let mirroring: DockerEngine | undefined;
let skopeo: CommandLine;
let podman: CommandLine;
let single: Image;
let index: Image;

test.after.always(async () => {
  await engine?.stop();
  await mirroring?.stop();
  await entrepot?.stop();
  await upstream?.stop();
  await folder.remove();
});

/** Starts an upstream with a single image and a multi-platform image, and Entrepot in front of it. */
test.before(async () => {
  if (needed.some((name) => findCommand(name) === undefined)) return;
  const registry = join(folder.path, 'registry');
  await mkdir(registry);
  upstream = await startDebianRegistry(registry);
  const source = { name: 'upstream', kind: 'registry', url: `http://${upstream.host}`, default: true };
  const auth = { username: upstream.username, password: upstream.password };
  entrepot = await startEntrepot(folder.path, {
    // A Docker engine sends no credentials to its mirror.
    ENTREPOT_ANONYMOUS_READ: 'true',
    ENTREPOT_UPSTREAMS: JSON.stringify([{ ...source, auth, freshFor: '1s', allowPrivateNetwork: true }]),
  });
  skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [upstream.host, entrepot.host]);
  await skopeo.run('login', '-u', upstream.username, '-p', upstream.password, upstream.host);
  await skopeo.run('login', '-u', entrepot.username, '-p', entrepot.password, entrepot.host);

  const layout = await createLayout(join(folder.path, 'images'));
  single = await layout.image('single', { layers: 4, bytes: 2_000_000 });
  const arm64 = await layout.image('arm64', { architecture: 'arm64' });
  index = await layout.index('multi', [single, arm64]);
  await skopeo.run('copy', single.reference, `docker://${upstream.host}/library/single:1`);
  await skopeo.run('copy', '--all', index.reference, `docker://${upstream.host}/team/multi:1`);
});

testWith(...needed)('skopeo reads both through the mirror, by prefix and without one', async (t) => {
  await copyFrom(`${mirror()}/upstream/library/single:1`, 'single');
  await copyFrom(`${mirror()}/upstream/team/multi:1`, 'multi');
  t.is(await digestOf(`${mirror()}/upstream/library/single:1`), single.digest);
  t.is(await digestOf(`${mirror()}/team/multi:1`), index.digest);
  t.regex(await skopeo.fails('inspect', '--raw', `docker://${mirror()}/upstream/team/none:1`), /unknown|not found/i);
});

testWith(...needed, 'podman')('podman pulls through the mirror', async (t) => {
  podman = await containerClient('podman', join(folder.path, 'podman'), [mirror()]);
  await podman.run('login', '-u', 'api', '-p', entrepot?.token ?? '', mirror());
  await podman.run('pull', '--quiet', `${mirror()}/upstream/library/single:1`);
  const digest = await podman.run(
    'image',
    'inspect',
    '--format',
    '{{.Digest}}',
    `${mirror()}/upstream/library/single:1`,
  );
  t.is(digest.trim(), single.digest);
});

testWith(...needed, 'dockerd')('docker pulls through the mirror', async (t) => {
  engine = await startDockerEngine(join(folder.path, 'engine'));
  await engine.docker.run('login', '-u', 'api', '-p', entrepot?.token ?? '', mirror());
  const output = await engine.docker.run('pull', `${mirror()}/upstream/library/single:1`);
  t.regex(output, new RegExp(`Digest: ${single.digest}`));
});

testWith(...needed, 'dockerd')(
  'a Docker engine with Entrepot as its mirror pulls official images by their own name',
  async (t) => {
    mirroring = await startDockerEngine(join(folder.path, 'mirroring'), { mirrors: [`http://${mirror()}`] });
    const output = await mirroring.docker.run('pull', 'single:1');
    t.regex(output, new RegExp(`Digest: ${single.digest}`));
    t.regex(output, /docker\.io\/library\/single:1/);
  },
);

testWith(...needed)('an image that was pulled once can be pulled when the upstream is down', async (t) => {
  await upstream?.stop();
  upstream = undefined;
  await copyFrom(`${mirror()}/upstream/library/single:1`, 'single-again');
  await copyFrom(`${mirror()}/upstream/team/multi:1`, 'multi-again');
  t.is(await digestOf(`${mirror()}/upstream/team/multi:1`), index.digest);
  // An image that was never pulled is not "not found", because the upstream cannot answer.
  const output = await skopeo.fails('inspect', '--raw', `docker://${mirror()}/upstream/team/other:1`);
  t.notRegex(output, /manifest unknown|name unknown/i);
});

testWith(...needed, 'podman')('podman pulls it again without the upstream', async (t) => {
  const name = `${mirror()}/upstream/library/single:1`;
  await podman.run('rmi', name);
  await podman.run('pull', '--quiet', name);
  t.is((await podman.run('image', 'inspect', '--format', '{{.Digest}}', name)).trim(), single.digest);
});

testWith(...needed, 'dockerd')('docker pulls it again without the upstream, by prefix and as its mirror', async (t) => {
  for (const [each, name] of [
    [engine, `${mirror()}/upstream/library/single:1`],
    [mirroring, 'single:1'],
  ] as const) {
    await each?.docker.run('rmi', name);
    const output = await each?.docker.run('pull', name);
    t.regex(output ?? '', new RegExp(`Digest: ${single.digest}`));
    t.regex(output ?? '', /Pull complete/);
  }
});

testWith(
  ...needed,
  'podman',
  'dockerd',
)('pushes need no upstream, also to a name that was mirrored', async (t) => {
  const mirrored = `${mirror()}/upstream/library/single:1`;
  await skopeo.run('copy', '--all', index.reference, `docker://${mirror()}/team/new:1`);
  t.is(await digestOf(`${mirror()}/team/new:1`), index.digest);
  for (const [client, name] of [
    [podman, 'team/podman'],
    [engine?.docker, 'team/docker'],
    // The engine pulled the layers from this registry, so it pushes none of them.
    [engine?.docker, 'library/single'],
  ] as const) {
    await client?.run('tag', mirrored, `${mirror()}/${name}:mine`);
    await client?.run('push', `${mirror()}/${name}:mine`);
    await copyFrom(`${mirror()}/${name}:mine`, `pushed-${name.replace('/', '-')}`);
  }
  // After the claim, every way to request the name gets the account's own content.
  const gone = await skopeo.fails('inspect', '--raw', `docker://${mirrored}`);
  t.regex(gone, /manifest unknown/i);
});

function mirror(): string {
  if (entrepot === undefined) throw new Error('entrepot did not start');
  return entrepot.host;
}

async function digestOf(name: string): Promise<string> {
  return sha256(await skopeo.run('inspect', '--raw', `docker://${name}`));
}

/** Copies into an empty folder, so that every blob is requested; the client checks each digest. */
async function copyFrom(name: string, to: string): Promise<void> {
  await skopeo.run('copy', '--all', '--preserve-digests', `docker://${name}`, `oci:${join(folder.path, to)}:1`);
}
