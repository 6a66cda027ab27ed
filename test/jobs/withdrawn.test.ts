import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { databaseOf, flushUses, rowsOf, runJob } from '../support/inside.ts';
import { digestOf, ociIndex, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Eviction leaves what upstreams have withdrawn, because it could not be fetched again.

async function evict(server: TestServer, dryRun = false): Promise<{ said: string[]; dropped: number }> {
  await flushUses(server);
  const said: string[] = [];
  const counts = await runJob(server, 'evict', { dryRun, say: (line) => void said.push(line) });
  return { said, dropped: counts['entries'] ?? 0 };
}

async function stored(server: TestServer): Promise<string[]> {
  const sql = 'SELECT kind, name, reference FROM mirror_entries ORDER BY kind, name, reference';
  const rows = await rowsOf<{ kind: string; name: string; reference: string }>(server, sql);
  return rows.map(({ kind, name, reference }) => `${kind} ${name} ${reference}`.trim());
}

for (const dialect of dialects) {
  test(`${dialect}: eviction leaves withdrawn tags with all that they need, and withdrawn versions`, async (t) => {
    const registry = await startUpstreamRegistry(t);
    const feed = await UpstreamFeed.start(t);
    const data = await folderUntilEnd(t);
    const database = { url: await temporaryDatabase(t, dialect) };
    const upstreams = [registry.settings('up.test'), feed.as('feed.test')];
    const server = await startTestServer(t, { data, database, upstreams, mirror: { maxSize: '0' } });
    server.clock.now = Date.now();
    const child = registry.image('app');
    const { mediaType, digest, size } = child.manifest;
    const manifests = [{ mediaType, digest, size, platform: { os: 'linux', architecture: 'amd64' } }];
    const index = registry.manifest('app', { schemaVersion: 2, mediaType: ociIndex, manifests }, 'multi');
    const subject = { mediaType: ociIndex, digest: index.digest, size: index.size };
    const proof = registry.blob('app', 'a signature');
    const signature = registry.manifest('app', {
      schemaVersion: 2,
      mediaType: ociManifest,
      config: proof,
      layers: [],
      subject,
    });
    const list = JSON.stringify({ schemaVersion: 2, manifests: [signature] });
    registry.on(`/v2/app/referrers/${index.digest}`, answer(200, { 'content-type': ociIndex }, list));
    // The same layer as that of the withdrawn image, in an image that can be fetched again.
    const shared = registry.manifest('app', { ...JSON.parse(child.manifest.bytes), annotations: { a: 'b' } }, 'live');
    const app = new TestRepository(server, 'up.test/app');
    const paths = [
      ...['multi', 'live', digest, signature.digest].map((reference) => `manifests/${reference}`),
      ...[child.config, child.layer, proof].map((each) => `blobs/${each.digest}`),
      `referrers/${index.digest}`,
    ];
    for (const path of paths) await (await app.fetch(path)).arrayBuffer();
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
    for (const version of ['1.0.0', '2.0.0'])
      await (await server.fetch(`/v3/package/lib/${version}/lib.${version}.nupkg`)).arrayBuffer();

    for (const each of ['multi', index.digest, digest]) registry.on(`/v2/app/manifests/${each}`, answer(404));
    feed.upstream.on('/flat/lib/1.0.0/lib.1.0.0.nupkg', answer(404));
    await feed.offer({ id: 'Lib', versions: [{ version: '2.0.0' }] });
    server.clock.now += 3_600_000;
    t.is((await app.fetch('manifests/multi')).status, 200);
    t.is((await server.fetch('/v3/package/lib/index.json')).status, 200);

    const expected = await evict(server, true);
    const evicted = await evict(server);
    t.deepEqual(evicted, expected);
    t.true(evicted.dropped > 0);
    t.regex(evicted.said.at(-1)!, /^\d{6} bytes above the limit stay: they are withdrawn/);
    const kept = [
      ...[child.config, child.layer, proof].map((each) => `blob app ${each.digest}`),
      ...['multi', index.digest, digest, signature.digest].map((reference) => `manifest app ${reference}`),
      'nupkg lib 1.0.0',
      `referrers app ${index.digest}`,
    ];
    t.deepEqual(await stored(server), kept.toSorted());
    t.false((await stored(server)).some((each) => each.includes(shared.digest)));
    t.is(
      digestOf(Buffer.from(await (await app.fetch(`blobs/${child.layer.digest}`)).arrayBuffer())),
      child.layer.digest,
    );

    // The tag comes back: it can be fetched again, and so can what it needs.
    registry.manifest('app', { schemaVersion: 2, mediaType: ociIndex, manifests }, 'multi');
    server.clock.now += 3_600_000;
    t.is((await app.fetch('manifests/multi')).status, 200);
    await evict(server);
    t.deepEqual(await stored(server), ['nupkg lib 1.0.0']);
    await server.close();
    // An upstream that the settings no longer have serves nothing.
    const without = await startTestServer(t, { data, database, mirror: { maxSize: '0' } });
    await evict(without);
    t.deepEqual(await stored(without), []);
    t.deepEqual(await rowsOf(without, 'SELECT id FROM mirror_withdrawn'), []);
  });
}

test('a use of a tag keeps the entry of its digest from eviction', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const { manifest, config, layer } = registry.image('app', 'v1');
  const other = registry.blob('app', 'x'.repeat(50_000));
  const maxSize = String(manifest.size + config.size + layer.size);
  const server = await startTestServer(t, { upstreams: [registry.settings('up.test')], mirror: { maxSize } });
  server.clock.now = Date.now();
  const app = new TestRepository(server, 'up.test/app');
  const pull = async (...paths: string[]) => {
    for (const path of paths) await (await app.fetch(path)).arrayBuffer();
    await flushUses(server);
    server.clock.now! += 60_000;
  };
  await pull('manifests/v1');
  await pull(`blobs/${other.digest}`);
  await pull(`blobs/${config.digest}`, `blobs/${layer.digest}`);
  await pull('manifests/v1');
  await evict(server);
  t.deepEqual(await stored(server), [
    ...[config, layer].map(({ digest }) => `blob app ${digest}`).toSorted(),
    `manifest app ${manifest.digest}`,
    'manifest app v1',
  ]);
  await registry.stop();
  t.is((await app.fetch(`manifests/${manifest.digest}`)).status, 200);
});

test('eviction goes on after the limit of manifests was lowered below one of a withdrawn tag', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const { manifest, config } = registry.image('app');
  const long = { ...JSON.parse(manifest.bytes), annotations: { a: 'x'.repeat(50_000) } };
  const { digest } = registry.manifest('app', long, 'v1');
  const upstreams = [registry.settings('up.test')];
  const settings = { upstreams, mirror: { maxSize: '0' }, data: await folderUntilEnd(t) };
  const before = await startTestServer(t, settings);
  for (const path of ['manifests/v1', `blobs/${config.digest}`])
    await (await before.fetch(`/v2/up.test/app/${path}`)).arrayBuffer();
  await before.close();
  const server = await startTestServer(t, { ...settings, limits: { manifest: '20kB' } });
  for (const each of ['v1', digest]) registry.on(`/v2/app/manifests/${each}`, answer(404));
  server.clock.now = Date.now() + 3_600_000;
  t.is((await server.fetch('/v2/up.test/app/manifests/v1')).status, 200);
  await evict(server);
  t.deepEqual(await stored(server), [`blob app ${config.digest}`, `manifest app ${digest}`, 'manifest app v1']);
});

test('eviction leaves the layers of a withdrawn tag whose digest has no entry any more', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const { manifest, config, layer } = registry.image('app', 'v1');
  const server = await startTestServer(t, { upstreams: [registry.settings('up.test')], mirror: { maxSize: '0' } });
  server.clock.now = Date.now();
  const app = new TestRepository(server, 'up.test/app');
  for (const path of ['manifests/v1', `blobs/${config.digest}`, `blobs/${layer.digest}`])
    await (await app.fetch(path)).arrayBuffer();
  // As an older version has evicted it.
  const sql = 'DELETE FROM mirror_entries WHERE reference = ?';
  await databaseOf(server).transaction((tx) => tx.run(sql, [manifest.digest]));
  registry.on('/v2/app/manifests/v1', answer(404));
  server.clock.now += 3_600_000;
  t.is((await app.fetch('manifests/v1')).status, 200);
  await evict(server);
  t.deepEqual(await stored(server), [
    ...[config, layer].map(({ digest }) => `blob app ${digest}`).toSorted(),
    'manifest app v1',
  ]);
});
