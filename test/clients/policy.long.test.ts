import { once } from 'node:events';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { createLayout, type Image } from '../support/builders/images.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startContainerd } from '../support/clients/containerd.ts';
import { startDockerEngine } from '../support/clients/docker-engine.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { pullers, startPuller } from '../support/clients/puller.ts';
import { testWith } from '../support/clients/test-with.ts';
import { applyPolicy, tokenOf } from '../support/inside.ts';
import { putPolicy } from '../support/policy.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { json, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { waivers, wish } from '../support/waivers.ts';

// What real clients do and print under a minimum age (docs/policy.md).

const folder = await temporaryFolder();
const day = 86_400_000;

test.after.always(() => folder.remove());

/** A user with an empty cache, and a project with one reference. */
async function restoring(server: TestServer, name: string, id: string, range: string) {
  const source = { url: `${server.url}/v3/index.json`, username: 'api', password: server.token };
  const consumer = await dotnet(join(folder.path, name), source);
  const project = await consumer.project('Program', { [id]: range });
  return {
    lockFile: join(project, 'packages.lock.json'),
    run: (...more: string[]) => consumer.run('restore', project, ...more),
    fails: (...more: string[]) => consumer.fails('restore', project, ...more),
  };
}

testWith('dotnet')('dotnet takes no version that is too young, however it is asked for', async (t) => {
  const up = await UpstreamFeed.start(t);
  const [old, young] = ['2026-01-01T00:00:00Z', new Date().toISOString()];
  const dates = { '1.0.0': old, '1.1.0': young, '2.0.0': old };
  const versions = Object.entries(dates).map(([version, published]) => ({ version, published }));
  await up.offer({ id: 'Some.Library', versions });
  const dependencies = [{ id: 'Some.Library', version: '[1.1.0]' }];
  const nupkg = await makeNupkg({ id: 'Their.App', version: '3.0.0', dependencies });
  await up.offer({ id: 'Their.App', versions: [{ version: '3.0.0', published: old, nupkg }] });
  const open = await startTestServer(t, { upstreams: [up.as('up.test')] });
  const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
  const minimumAge = { packages: '3d' };
  await applyPolicy(server, { minimumAge });

  const missing = /NU1102: Unable to find package Some\.Library with version \(= 1\.1\.0\)/;
  t.regex(await (await restoring(server, 'exact', 'Some.Library', '[1.1.0]')).fails(), missing);
  const transitive = await restoring(server, 'transitive', 'Their.App', '3.0.0');
  t.regex(await transitive.fails(), missing);
  const between = await restoring(server, 'range', 'Some.Library', '[1.1.0, 2.0.0)');
  t.regex(await between.fails(), /NU1102: .* version \(>= 1\.1\.0 && < 2\.0\.0\)/);
  const minimum = await restoring(server, 'minimum', 'Some.Library', '1.1.0');
  t.regex(await minimum.run(), /NU1603: .*Some\.Library 1\.1\.0 was not found\. Some\.Library 2\.0\.0 was resolved/);
  for (const [name, range] of [
    ['floating', '1.*'],
    ['newest', '[1.0.0, 2.0.0)'],
  ] as const) {
    const each = await restoring(server, name, 'Some.Library', range);
    t.notRegex(await each.run('--use-lock-file'), /warning|error/);
    t.like(JSON.parse(await readFile(each.lockFile, 'utf8')), {
      dependencies: { 'net10.0': { 'Some.Library': { resolved: '1.0.0' } } },
    });
  }
  const unlimited = await restoring(open, 'unlimited', 'Some.Library', '[1.1.0]');
  await unlimited.run('--use-lock-file');
  const locked = await restoring(server, 'locked', 'Some.Library', '[1.1.0]');
  await copyFile(unlimited.lockFile, locked.lockFile);
  t.regex(await locked.fails('--locked-mode'), missing);

  await applyPolicy(server, { minimumAge: { ...minimumAge, held: 'list' } });
  const refused = await restoring(server, 'listed', 'Some.Library', '1.1.0');
  const reason = /403 \(The policy refuses some\.library: it is younger than 3 days; it can be used from .*Z on\.\)/;
  t.regex(await refused.fails(), reason);
  t.regex(await (await restoring(server, 'listed-floating', 'Some.Library', '1.*')).fails(), reason);
});

testWith('dotnet')('dotnet takes a held version from another source of nuget.config that has it', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Some.Library', versions: [{ version: '1.1.0', published: new Date().toISOString() }] });
  const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
  await applyPolicy(server, { minimumAge: { packages: '3d' } });
  const one = await restoring(server, 'second-source', 'Some.Library', '[1.1.0]');
  t.regex(await one.fails(), /NU1101|NU1102/);
  const file = join(folder.path, 'second-source', 'nuget.config');
  const text = await readFile(file, 'utf8');
  const second = `<add key="second" value="${up.url}/index.json" allowInsecureConnections="true" /></packageSources>`;
  await writeFile(file, text.replace('</packageSources>', second));
  await one.run('--force', '--no-cache');
});

testWith('dotnet')('dotnet gets a fix of a known vulnerability at once, and no other young version', async (t) => {
  const up = await UpstreamFeed.start(t);
  const [old, young] = ['2026-01-01T00:00:00Z', new Date().toISOString()];
  const dates = { '1.0.0': old, '1.0.1': young, '1.0.2': young };
  const versions = Object.entries(dates).map(([version, published]) => ({ version, published }));
  await up.offer({ id: 'Some.Library', versions });
  const page = `${up.url}/vulnerabilities/base.json`;
  up.upstream.on('/vulnerabilities/index.json', json([{ '@name': 'base', '@id': page, '@updated': old }]));
  const advisory = { url: 'https://advisories.test/GHSA-aaaa', severity: 2, versions: '[1.0.0, 1.0.1)' };
  up.upstream.on('/vulnerabilities/base.json', json({ 'some.library': [advisory] }));
  const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
  await applyPolicy(server, { minimumAge: { packages: '3d' } });

  t.regex(
    await (await restoring(server, 'fixed', 'Some.Library', '1.0.0')).run(),
    /^(?![^]*NU1900)[^]*NU1903: .*GHSA-aaaa/,
  );
  const fix = await restoring(server, 'fix', 'Some.Library', '1.*');
  t.notRegex(await fix.run('--use-lock-file'), /warning|error/);
  t.like(JSON.parse(await readFile(fix.lockFile, 'utf8')), {
    dependencies: { 'net10.0': { 'Some.Library': { resolved: '1.0.1' } } },
  });
  t.regex(await (await restoring(server, 'no-fix', 'Some.Library', '[1.0.2]')).fails(), /NU1102/);
});

/** Requests a waiver with a token that only reads, and cannot approve it. Returns its path. */
async function waive(t: ExecutionContext, server: TestServer, name: string, reference: string): Promise<string> {
  const token = await tokenOf(server, ['read']);
  const made = await waivers(server, 'POST', '', { token, body: wish(server, name, [reference], 'age', 2) });
  t.is(made.status, 201, made.detail);
  const path = `/${made.id}`;
  t.is((await waivers(server, 'POST', `${path}/approve`, { token })).status, 403);
  return path;
}

testWith('dotnet')('dotnet gets a version that is too young while a waiver lifts the age', async (t) => {
  const up = await UpstreamFeed.start(t);
  const now = Date.now();
  const published = (days: number) => new Date(now - days * day).toISOString();
  const versions = [
    { version: '1.0.0', published: published(100) },
    { version: '1.1.0', published: published(1) },
  ];
  await up.offer({ id: 'Some.Library', versions });
  const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
  server.clock.now = now;
  await putPolicy(server, { minimumAge: { packages: '9d' } }, { layer: 'account' });
  let users = 0;
  const restored = () => restoring(server, `waived-${(users += 1)}`, 'Some.Library', '[1.1.0]');
  const missing = /NU1102: Unable to find package Some\.Library with version \(= 1\.1\.0\)/;
  t.regex(await (await restored()).fails(), missing);
  const path = await waive(t, server, 'Some.Library', '1.1.0');
  t.regex(await (await restored()).fails(), missing, 'it is not approved yet');
  t.is((await waivers(server, 'POST', `${path}/approve`)).status, 200);
  await (await restored()).run();
  t.is((await waivers(server, 'DELETE', path)).status, 204);
  t.regex(await (await restored()).fails(), missing, 'it was ended');
});

/** A registry with two images, and a mirror of it; `push` gives an image of the registry a tag. */
async function startMirror(
  t: ExecutionContext,
  place: string,
  nameOf = (_host: string) => 'up.test',
  settings: object = {},
) {
  const hub = await startTestServer(t);
  const { host } = new URL(hub.url);
  const skopeo = await containerClient('skopeo', join(folder.path, `${place}-skopeo`), [host]);
  const layout = await createLayout(join(folder.path, `${place}-images`));
  const [first, second] = [await layout.image('first', { layers: 1 }), await layout.image('second', { layers: 1 })];
  const push = ({ reference }: Image, tag: string) =>
    skopeo.run('copy', '--dest-creds', `api:${hub.token}`, reference, `docker://${host}/team/app:${tag}`);
  const auth = { username: 'api', password: hub.token };
  const upstream = {
    name: nameOf(host),
    kind: 'registry',
    url: hub.url,
    auth,
    allowPrivateNetwork: true,
    freshFor: '1s',
    default: true,
  };
  const server = await startTestServer(t, { upstreams: [upstream], ...settings });
  server.clock.now = Date.now();
  return { hub, server, first, second, push };
}

for (const client of ['docker', 'podman', 'containerd'] as const) {
  testWith(
    pullers[client],
    'skopeo',
    'umoci',
  )(
    `${client} gets the last digest of a tag that is old enough, and prints why it does not get another one`,
    async (t) => {
      const { server, first, second, push } = await startMirror(t, client);
      await push(first, 'latest');
      const name = `${new URL(server.url).host}/up.test/team/app`;
      const puller = await startPuller(t, client, folder.path, server);

      await puller.pull(`${name}:latest`);
      t.true((await puller.digest(`${name}:latest`)).includes(first.digest));
      server.clock.now! += 60_000;
      await applyPolicy(server, { minimumAge: { images: '3d' } });
      await push(second, 'latest');
      await push(second, 'new');
      server.clock.now! += 60_000;
      const until = new Date(server.clock.now! + 3 * day).toISOString().slice(0, 16);
      const reason = new RegExp(
        `The policy refuses up\\.test/team/app: it is younger than 3 days; .* from ${until}Z on`,
      );
      await puller.pull(`${name}:latest`);
      t.true((await puller.digest(`${name}:latest`)).includes(first.digest), 'the new one is too young');
      for (const reference of [`${name}:new`, `${name}@${second.digest}`]) {
        t.regex(await puller.fails(reference), reason, reference);
      }
      server.clock.now! += 3 * day;
      await puller.pull(`${name}:latest`);
      t.true((await puller.digest(`${name}:latest`)).includes(second.digest));
    },
  );
}

for (const client of ['docker', 'podman', 'containerd'] as const) {
  testWith(
    pullers[client],
    'skopeo',
    'umoci',
  )(`${client} gets an image that is too young while a waiver lifts the age`, async (t) => {
    const { server, first, push } = await startMirror(t, `waived-${client}`);
    await push(first, 'new');
    await putPolicy(server, { minimumAge: { images: '9d' } }, { layer: 'account' });
    const name = `${new URL(server.url).host}/up.test/team/app:new`;
    const puller = await startPuller(t, client, folder.path, server);
    const reason = /The policy refuses up\.test\/team\/app: it is younger than 9 days/;
    t.regex(await puller.fails(name), reason);
    const path = await waive(t, server, 'up.test/team/app', 'new');
    t.regex(await puller.fails(name), reason, 'it is not approved yet');
    t.is((await waivers(server, 'POST', `${path}/approve`)).status, 200);
    await puller.pull(name);
    t.true((await puller.digest(name)).includes(first.digest));
    t.is((await waivers(server, 'DELETE', path)).status, 204);
    t.regex(await puller.fails(name), reason, 'it was ended');
  });
}

testWith(
  'podman',
  'skopeo',
  'umoci',
)('podman asks the registry itself after a refusal, unless the server is its only place', async (t) => {
  const { hub, server, first, push } = await startMirror(t, 'round');
  await push(first, 'new');
  await applyPolicy(server, { minimumAge: { images: '3d' } });
  const [original, mirror] = [new URL(hub.url).host, new URL(server.url).host];
  const home = join(folder.path, 'round');
  const podman = await containerClient('podman', home, [original, mirror]);
  for (const [host, { token }] of [[original, hub] as const, [mirror, server] as const])
    await podman.run('login', '-u', 'api', '-p', token, host);
  const configure = (lines: string) =>
    writeFile(join(home, 'registries.conf'), `[[registry]]\nprefix = "${original}"\ninsecure = true\n${lines}`);
  await configure(`location = "${mirror}/up.test"\n`);
  t.regex(await podman.fails('pull', `${original}/team/app:new`), /The policy refuses up\.test\/team\/app/);
  await configure(`location = "${original}"\n[[registry.mirror]]\nlocation = "${mirror}/up.test"\ninsecure = true\n`);
  await podman.run('pull', `${original}/team/app:new`);
  const digest = await podman.run('image', 'inspect', '--format', '{{.Digest}}', `${original}/team/app:new`);
  t.is(digest.trim(), first.digest);
});

/** The lines of hosts.toml for a server that gets a token. */
const hostLines = ({ url, token }: TestServer) =>
  `[host."${url}"]\ncapabilities = ["pull", "resolve"]\n[host."${url}".header]\nauthorization = "Bearer ${token}"\n`;

testWith(
  'ctr',
  'skopeo',
  'umoci',
)('containerd asks the registry itself after a refusal, unless the server is its only place', async (t) => {
  const { hub, server, first, push } = await startMirror(t, 'round-ctr', (host) => host);
  await push(first, 'new');
  await applyPolicy(server, { minimumAge: { images: '3d' } });
  const [original, hosts] = [new URL(hub.url).host, join(folder.path, 'certs.d')];
  const ctr = await startContainerd(t, join(folder.path, 'round-ctr'), hosts);
  await mkdir(join(hosts, original), { recursive: true });
  const pull = ['images', 'pull', '--snapshotter', 'native', '--hosts-dir', hosts, `${original}/team/app:new`];
  const configure = (lines: string) => writeFile(join(hosts, original, 'hosts.toml'), lines);
  await configure(`server = "${server.url}"\n${hostLines(server)}`);
  t.regex(await ctr.fails(...pull), /403 The policy refuses .*\/team\/app: it is younger than 3 days/);
  await configure(`server = "${hub.url}"\n${hostLines(server)}${hostLines(hub)}`);
  await ctr.run(...pull);
  t.true((await ctr.run('images', 'list')).includes(first.digest));
});

/** A proxy that connects nobody, and the places that were asked for. */
async function refusingProxy(t: ExecutionContext): Promise<{ url: string; asked: Set<string> }> {
  const asked = new Set<string>();
  const proxy = createServer((_, response) => void response.writeHead(502).end());
  proxy.on('connect', ({ url = '' }, socket) => {
    asked.add(url);
    socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n');
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  t.teardown(() => proxy.close());
  return { url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`, asked };
}

testWith(
  'dockerd',
  'skopeo',
  'umoci',
)('docker asks Docker Hub itself after a refusal of its mirror, unless the name begins with the server', async (t) => {
  // An engine has no credentials for its mirror.
  const { server, first, push } = await startMirror(t, 'round-docker', undefined, { anonymousRead: 'mirrored' });
  await push(first, 'old');
  await push(first, 'new');
  const { url, asked } = await refusingProxy(t);
  const engine = await startDockerEngine(join(folder.path, 'round-docker'), { mirrors: [server.url], proxy: url });
  t.teardown(() => engine.stop());
  const { docker } = engine;
  await docker.run('pull', 'team/app:old');
  t.deepEqual([...asked], [], 'the mirror has it');
  const rules = [{ name: 'no-new', images: ['*'], tags: ['new'], verdict: 'deny' }];
  await applyPolicy(server, { rules });
  const hub = 'registry-1.docker.io:443';
  t.regex(
    await docker.fails('pull', `${new URL(server.url).host}/team/app:new`),
    /The policy refuses up\.test\/team\/app/,
  );
  t.deepEqual([...asked], []);
  const printed = await docker.fails('pull', 'team/app:new');
  t.notRegex(printed, /The policy refuses/);
  t.true(asked.has(hub), printed);
});
