import test from 'ava';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { databaseOf, runJob } from '../support/inside.ts';
import { digestOf, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

const second = 1000;
const hour = 3600 * second;
const day = 24 * hour;

function jump({ clock }: TestServer, milliseconds: number): void {
  clock.now = (clock.now ?? Date.now()) + milliseconds;
}

test('after the clock was set back, a tag is not fresh for longer than its time', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '1h' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  t.is((await app.fetch('manifests/v1')).status, 200);
  const { manifest: moved } = upstream.image('team/app', 'v1');
  jump(server, -day);
  t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), moved.digest);
  const asked = upstream.requests().length;
  t.is((await app.fetch('manifests/v1')).status, 200);
  t.is(upstream.requests().length, asked, 'now it is fresh');
});

test('after the clock was set back, "not found" is not kept for longer than its time', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  t.is((await app.fetch('manifests/v1')).status, 404);
  const { manifest } = upstream.image('team/app', 'v1');
  t.is((await app.fetch('manifests/v1')).status, 404, 'as long as the clock goes on');
  jump(server, -day);
  t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), manifest.digest);
});

test('after the clock was set back, requests that fail together do not pause the upstream for longer', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const path = '/v2/team/app/manifests';
  const held = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  const limited = answer(429, { 'retry-after': '2' });
  upstream.on(`${path}/early`, limited);
  upstream.on(`${path}/late`, async (request, response) => {
    arrived.resolve();
    await held.promise;
    limited(request, response);
  });
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { timeout: '60s' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  jump(server, 0);
  const late = app.fetch('manifests/late');
  await arrived.promise;
  t.is((await app.fetch('manifests/early')).status, 502);
  jump(server, -day);
  held.resolve();
  t.is((await late).status, 502);
  jump(server, 2 * second);
  t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), manifest.digest);
});

test('after the clock was set back, the session of a killed writer can be continued', async (t) => {
  const server = await startTestServer(t);
  const app = new TestRepository(server, 'team/app');
  const location = await app.start();
  const lease = ['killed', Date.now() + day] as const;
  await databaseOf(server).transaction((tx) => tx.run('UPDATE uploads SET writer = ?, writer_until = ?', lease));
  t.is((await app.fetch(location, { method: 'PATCH', body: 'bytes' })).status, 202);
  const path = `${location}?digest=${digestOf('bytes')}`;
  t.is((await app.fetch(path, { method: 'PUT' })).status, 201);
});

test('after the clock was set forward, a collection keeps the layers of a push under way', async (t) => {
  const clock = { now: 5 };
  const server = await startTestServer(t, { gc: { grace: '24h' } }, { watch: () => clock.now });
  const app = new TestRepository(server, 'team/app');
  const layer = await app.blob('layer');
  const location = await app.start();
  t.is((await app.fetch(location, { method: 'PATCH', body: 'half' })).status, 202);
  jump(server, 30 * day);
  clock.now += 21 * hour;
  t.like(await runJob(server, 'gc'), { layers: 0, blobs: 0 });
  t.like(await runJob(server, 'uploads'), { sessions: 0, files: 0 });
  t.is((await app.fetch(location)).headers.get('range'), '0-3');
  const manifest = { schemaVersion: 2, mediaType: ociManifest, config: layer, layers: [layer] };
  t.is((await app.put('v1', manifest)).status, 201);

  const { digest } = await app.blob('abandoned');
  jump(server, 30 * day);
  clock.now += 400 * day;
  t.like(await runJob(server, 'gc'), { layers: 1, blobs: 1 }, 'after the time has really passed');
  t.is((await app.fetch(`blobs/${digest}`)).status, 404);
  t.is((await app.fetch('manifests/v1')).status, 200);
});
