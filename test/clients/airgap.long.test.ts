import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { siteAt, startAirGap, trustedKey, type AirGap } from '../support/bundles.ts';
import { createLayout, sha256, type Image } from '../support/builders/images.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { dotnet, type Dotnet } from '../support/clients/dotnet.ts';
import { pullers, startPuller } from '../support/clients/puller.ts';
import { testWith } from '../support/clients/test-with.ts';
import { ociIndex, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { json } from '../support/upstreams/upstream-feed.ts';

// Real clients of an installation that reaches no upstream, and has its content from bundles (docs/airgap.md).

const folder = await temporaryFolder();

test.after.always(() => folder.remove());

const advisory = (severity: number) => ({
  url: `https://advisories.test/${severity}`,
  severity,
  versions: '[1.0.0]',
});

/** A user with an empty cache. */
function user(name: string, { url, token }: { url: string; token: string }): Promise<Dotnet> {
  return dotnet(join(folder.path, name), { url: `${url}/v3/index.json`, username: 'api', password: token });
}

testWith('dotnet')('dotnet restores, builds and runs, warns of vulnerable packages, and installs a tool', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, far, file, path } = gap;
  const key = await trustedKey(gap);
  const page = `${feed.url}/vulnerabilities/base.json`;
  feed.upstream.on(
    '/vulnerabilities/index.json',
    json([{ '@name': 'base', '@id': page, '@updated': '2026-01-01T00:00:00Z' }]),
  );
  feed.upstream.on(
    '/vulnerabilities/base.json',
    json({ 'contoso.base': [advisory(1)], 'contoso.old': [advisory(2)], 'contoso.tool': [] }),
  );
  const source = await near.serve();
  const packer = await user('packer', source);
  for (const [id, version, more, entry = {}] of [
    ['Contoso.Base', '1.0.0', {}],
    ['Contoso.Library', '1.2.0', { dependencies: { 'Contoso.Base': '1.0.0' } }],
    ['Contoso.Old', '1.0.0', {}, { vulnerabilities: [{ advisoryUrl: advisory(2).url, severity: '2' }] }],
    ['Contoso.Tool', '3.0.0', { tool: 'contoso-tool' }],
  ] as const) {
    const nupkg = await readFile(await packer.pack({ id, version, ...more }));
    await feed.offer({ id, versions: [{ version, nupkg, entry }] });
  }
  // The lock file of a project that is restored where there is a network.
  const references = { 'Contoso.Library': '1.2.0', 'Contoso.Old': '1.0.0' };
  const developer = await user('developer', source);
  const project = await developer.project('Program', references);
  await developer.run('restore', project, '--use-lock-file');
  await source.close();
  const tools = await file('tools.txt', 'Contoso.Tool@3.0.0\n');
  await near.ok('bundle', 'create', join(project, 'packages.lock.json'), tools, '--to', path('bundle'), '--key', key);
  await feed.upstream.stop();
  await far.ok('bundle', 'import', path('bundle'));

  const server = await far.serve();
  const consumer = await user('consumer', server);
  const copy = await consumer.project('Program', references);
  const restored = await consumer.run('restore', copy);
  t.regex(restored, /warning NU1902: .*'Contoso\.Base' 1\.0\.0 .*https:\/\/advisories\.test\/1/);
  t.regex(restored, /warning NU1903: .*'Contoso\.Old' 1\.0\.0 .*https:\/\/advisories\.test\/2/);
  t.notRegex(restored, /NU1900/, 'the vulnerability data is there');
  await consumer.run('build', copy, '--no-restore');
  t.is(await consumer.run('run', '--no-build', '--project', copy), '1.2.0\n1.0.0\n');
  t.regex(await consumer.run('list', copy, 'package', '--vulnerable'), /Contoso\.Old\s+1\.0\.0\s+1\.0\.0\s+High/);

  const tool = join(consumer.folder, 'tools');
  await consumer.run('tool', 'install', 'Contoso.Tool', '--tool-path', tool, '--version', '3.0.0');
  const installed = '.store/contoso.tool/3.0.0/contoso.tool/3.0.0/tools/net10.0/any/Contoso.Tool.dll';
  t.is(await consumer.run('exec', join(tool, installed)), 'Contoso.Tool 3.0.0\n');
});

interface Hub extends AirGap {
  key: string;
  hub: TestServer;
  /** A multi-platform image, and its one for this platform. */
  index: Image;
  single: Image;
  next: Image;
  /** Gives an image of the hub a tag. */
  push: (image: Image, name: string) => Promise<unknown>;
}

/** Both sites with a real registry as `docker.io`, and images. */
async function startHub(t: ExecutionContext, place: string): Promise<Hub> {
  const gap = await startAirGap(t);
  const hub = await startTestServer(t);
  const { host } = new URL(hub.url);
  const auth = { username: 'api', password: hub.token };
  const settings = { name: 'docker.io', kind: 'registry', url: hub.url, auth, default: true };
  const near = siteAt(t, gap.path('near'), [{ ...settings, allowPrivateNetwork: true, freshFor: '1ms' }]);
  const far = siteAt(t, gap.path('far'), [{ ...settings, url: 'http://127.0.0.1:9/', mode: 'offline' }]);
  const skopeo = await containerClient('skopeo', join(folder.path, `${place}-skopeo`), [host]);
  const layout = await createLayout(join(folder.path, `${place}-images`));
  const single = await layout.image('single', { layers: 2 });
  const other = await layout.image('other', { layers: 1, architecture: 'arm64' });
  return {
    ...gap,
    near,
    far,
    key: await trustedKey({ ...gap, near, far }),
    hub,
    single,
    index: await layout.index('multi', [single, other]),
    next: await layout.image('next', { layers: 1 }),
    push: ({ reference }, name) =>
      skopeo.run('copy', '--all', '--dest-creds', `api:${hub.token}`, reference, `docker://${host}/library/${name}`),
  };
}

for (const client of ['docker', 'podman', 'containerd'] as const) {
  testWith(
    pullers[client],
    'skopeo',
    'umoci',
  )(`${client} pulls by tag and digest, and gets what a second bundle makes of the tag`, async (t) => {
    const { near, far, hub, file, path, push, index, next, key } = await startHub(t, client);
    await push(index, 'app:latest');
    const list = await file('images.txt', 'app:latest\n');
    await near.ok('bundle', 'create', list, '--to', path('first'), '--key', key);
    await push(next, 'app:latest');
    await near.ok('bundle', 'create', list, '--to', path('second'), '--key', key);
    await hub.close();

    await far.ok('bundle', 'import', path('first'));
    const server = await far.serve();
    const puller = await startPuller(t, client, folder.path, server);
    const name = `${new URL(server.url).host}/app`;
    for (const reference of [`${name}:latest`, `${name}@${index.digest}`]) {
      await puller.pull(reference);
      t.true((await puller.digest(reference)).includes(index.digest), reference);
    }
    t.regex(await puller.fails(`${name}:other`), /offline|Bad Gateway|502/);
    await far.ok('bundle', 'import', path('second'));
    await puller.pull(`${name}:latest`);
    t.true((await puller.digest(`${name}:latest`)).includes(next.digest));
    await puller.pull(`${name}@${index.digest}`);
  });
}

testWith('skopeo', 'umoci')(
  'skopeo copies all platforms, a signature and a Helm chart, and reads a segment without a server',
  async (t) => {
    const { near, far, hub, file, path, push, index, single, key } = await startHub(t, 'skopeo');
    await push(index, 'app:1');
    // As `cosign sign` and `helm push` make them.
    const app = new TestRepository(hub, 'library/app');
    const artifactType = 'application/vnd.dev.sigstore.bundle.v0.3+json';
    const signature = await app.image('signature', {
      artifactType,
      layers: [await app.blob(JSON.stringify({ mediaType: artifactType, dsseEnvelope: {} }), artifactType)],
      subject: { mediaType: ociIndex, digest: index.digest, size: index.manifest.length },
      annotations: { 'dev.sigstore.bundle.content': 'dsse-envelope' },
    });
    const repository = new TestRepository(hub, 'library/chart');
    const chart = await repository.image('0.1.0', {
      config: await repository.blob('{"name":"chart","version":"0.1.0"}', 'application/vnd.cncf.helm.config.v1+json'),
      layers: [await repository.blob('a chart', 'application/vnd.cncf.helm.chart.content.v1.tar+gzip')],
    });
    const list = await file('images.txt', 'app:1\nchart:0.1.0\n');
    await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key);
    await hub.close();
    await far.ok('bundle', 'import', path('bundle'));

    const server = await far.serve();
    const { host } = new URL(server.url);
    const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [host]);
    await skopeo.run('login', '-u', 'api', '-p', server.token, host);
    const copy = async (from: string, name: string, ...more: string[]) => {
      await skopeo.run('copy', '--preserve-digests', ...more, from, `dir:${path(name)}`);
      return sha256(await readFile(join(path(name), 'manifest.json')));
    };
    t.is(await copy(`docker://${host}/app:1`, 'all', '--all'), index.digest);
    t.is(await copy(`docker://${host}/chart:0.1.0`, 'chart'), chart.digest);
    const referrers = (await (await server.fetch(`/v2/app/referrers/${index.digest}`)).json()) as {
      manifests: { digest: string; artifactType: string }[];
    };
    t.deepEqual(
      referrers.manifests.map((each) => [each.digest, each.artifactType]),
      [[signature.digest, artifactType]],
    );
    t.is(await copy(`docker://${host}/app@${signature.digest}`, 'signature'), signature.digest);

    const archive = `oci-archive:${join(path('bundle'), '0001.tar')}:docker.io/library`;
    t.is(await copy(`${archive}/app:1`, 'archive-all', '--all'), index.digest);
    const { manifests } = JSON.parse(index.manifest.toString()) as { manifests: { digest: string }[] };
    t.is(await copy(`${archive}/app:1`, 'archive-arm', '--override-arch', 'arm64'), manifests[1]!.digest);
    t.not(manifests[1]!.digest, single.digest);
    t.is(await copy(`${archive}/chart:0.1.0`, 'archive-chart'), chart.digest);
  },
);

testWith(
  'podman',
  'skopeo',
  'umoci',
)('podman pulls the platform that a bundle has, and is told that another one is not there', async (t) => {
  const { near, far, hub, file, path, push, index, single, key } = await startHub(t, 'platform');
  await push(index, 'app:1');
  const list = await file('images.txt', 'app:1\n');
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--platform', 'linux/amd64');
  await hub.close();
  await far.ok('bundle', 'import', path('bundle'));
  const server = await far.serve();
  const { host } = new URL(server.url);
  const podman = await containerClient('podman', join(folder.path, 'podman-one'), [host]);
  await podman.run('login', '-u', 'api', '-p', server.token, host);
  await podman.run('pull', '--arch', 'amd64', `${host}/app:1`);
  t.regex(
    await podman.run('image', 'inspect', '--format', '{{json .RepoDigests}}', `${host}/app:1`),
    new RegExp(single.digest),
  );
  t.regex(await podman.fails('pull', '--arch', 'arm64', `${host}/app:1`), /docker\.io is set to offline/);
});
