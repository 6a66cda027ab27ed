import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { createLayout, sha256, type Image } from '../support/builders/images.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { dotnet, sourceName, type Dotnet } from '../support/clients/dotnet.ts';
import { startPuller } from '../support/clients/puller.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { until } from '../support/until.ts';

// One Entrepot in front of another, whose users delete what clients have got through the mirror.

const folder = await temporaryFolder();
let upstream: Entrepot;
let mirror: Entrepot;

test.before(async () => {
  const [upstreamFolder, mirrorFolder] = [join(folder.path, 'upstream'), join(folder.path, 'mirror')];
  for (const each of [upstreamFolder, mirrorFolder]) await mkdir(each);
  upstream = await startEntrepot(upstreamFolder);
  const common = {
    freshFor: '1s',
    negativeFor: '1s',
    allowPrivateNetwork: true,
    auth: { username: upstream.username, password: upstream.password },
  };
  const upstreams = [
    { ...common, name: 'feed', kind: 'nuget', url: `${upstream.url}/v3/index.json` },
    { ...common, name: 'up.test', kind: 'registry', url: upstream.url },
  ];
  mirror = await startEntrepot(mirrorFolder, { ENTREPOT_UPSTREAMS: JSON.stringify(upstreams) });
});

test.after.always(async () => {
  await mirror?.stop();
  await upstream?.stop();
  await folder.remove();
});

async function ask(of: Entrepot, path: string, method = 'GET'): Promise<Response> {
  return fetch(of.url + path, { method, headers: { authorization: `Bearer ${of.token}` } });
}

/** Deletes it at the upstream, and waits until the mirror has noticed. */
async function withdraw(t: ExecutionContext, path: string, mirrored: string, marked: string): Promise<void> {
  t.is((await ask(upstream, path, 'DELETE')).status, 204);
  await until(async () => {
    t.is((await ask(mirror, mirrored)).status, 200);
    const { withdrawn_at: at, withdrawn_tags: tags } = (await (await ask(mirror, marked)).json()) as Record<
      string,
      any
    >;
    return typeof at === 'string' || tags?.length === 1;
  });
}

/** Each user has an empty cache. */
function user(name: string, of: Entrepot): Promise<Dotnet> {
  const feed = { url: `${of.url}/v3/index.json`, username: of.username, password: of.password };
  return dotnet(join(folder.path, name), feed);
}

async function runProgram(name: string): Promise<string> {
  const consumer = await user(name, mirror);
  return consumer.run('run', '--project', await consumer.project('Program', { 'Contoso.App': '2.0.0' }));
}

testWith('dotnet')('dotnet restores versions, and an id, that the upstream has deleted', async (t) => {
  const publisher = await user('publisher', upstream);
  const push = async (id: string, version: string, dependencies = {}) => {
    const path = await publisher.pack({ id, version, dependencies });
    await publisher.run('nuget', 'push', path, '--source', sourceName, '--api-key', upstream.token);
  };
  await push('Contoso.Library', '1.0.0');
  await push('Contoso.Library', '1.1.0');
  await push('Contoso.App', '2.0.0', { 'Contoso.Library': '1.0.0' });
  const before = await runProgram('first');
  const [lists, api] = ['/v3/package/contoso', '/v1/packages/Contoso'];
  await withdraw(t, `${api}.Library/1.0.0`, `${lists}.library/index.json`, `${api}.Library/1.0.0`);
  await withdraw(t, `${api}.App/2.0.0`, `${lists}.app/index.json`, `${api}.App/2.0.0`);
  t.is(await runProgram('second'), before, 'the same versions, and no higher one in their place');
  const file = await ask(mirror, `${lists}.library/1.0.0/contoso.library.1.0.0.nupkg`);
  t.is(file.headers.get('cache-status'), 'entrepot; hit; detail=withdrawn');
});

testWith(
  'skopeo',
  'podman',
  'dockerd',
  'ctr',
  'umoci',
)('skopeo, podman, docker and containerd pull a tag that the upstream has deleted', async (t) => {
  const hosts = [upstream.host, mirror.host];
  const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), hosts);
  const podman = await containerClient('podman', join(folder.path, 'podman'), hosts);
  for (const { host, username, password } of [upstream, mirror])
    await skopeo.run('login', '-u', username, '-p', password, host);
  await podman.run('login', '-u', mirror.username, '-p', mirror.password, mirror.host);
  const image: Image = await (
    await createLayout(join(folder.path, 'images'))
  ).image('app', { layers: 2, bytes: 100_000 });
  await skopeo.run('copy', image.reference, `docker://${upstream.host}/team/app:1`);
  const name = `${mirror.host}/up.test/team/app:1`;
  await podman.run('pull', '--quiet', name);
  const manifest = `/v2/up.test/team/app/manifests/1`;
  const marked = `/v1/containers/${encodeURIComponent('up.test/team/app')}/manifests/1`;
  await withdraw(t, `/v1/containers/${encodeURIComponent('team/app')}/manifests/${image.digest}`, manifest, marked);
  await podman.run('rmi', '--all', '--force');
  await podman.run('pull', '--quiet', name);
  t.is((await podman.run('image', 'inspect', '--format', '{{.Digest}}', name)).trim(), image.digest);
  for (const client of ['docker', 'containerd'] as const) {
    const puller = await startPuller(t, client, folder.path, mirror);
    await puller.pull(name);
    t.true((await puller.digest(name)).includes(image.digest), client);
  }
  await skopeo.run('copy', '--preserve-digests', `docker://${name}`, `oci:${join(folder.path, 'copied')}:1`);
  t.is(sha256(await skopeo.run('inspect', '--raw', `docker://${name}`)), image.digest);
  t.regex(await skopeo.run('list-tags', `docker://${mirror.host}/up.test/team/app`), /"1"/);
  t.regex(await skopeo.fails('inspect', '--raw', `docker://${upstream.host}/team/app:1`), /unknown|not found/i);
});
