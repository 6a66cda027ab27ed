import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { digestOf } from '../../src/runtime/digest.ts';
import { parsePlatform } from '../../src/prefetch/platform.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { answer, held, serve } from '../support/upstreams/faulty-upstream.ts';
import { missingIn, prefetchInto, wishesIn, wishesOf } from '../support/prefetch.ts';
import { ociIndex, ociManifest, TestRepository, type Descriptor } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { TestDisk } from '../support/test-disk.ts';
import { startUpstreamRegistry, type UpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until, within } from '../support/until.ts';
import { flushUses, rowsOf } from '../support/inside.ts';

interface Setup {
  registry: UpstreamRegistry;
  mirror: TestServer;
  /** Sends a request as a client; resolves to the status. */
  get: (path: string) => Promise<number>;
}

async function setUp(t: ExecutionContext, settings: Record<string, unknown> = {}, upstream = {}): Promise<Setup> {
  const registry = await startUpstreamRegistry(t);
  const upstreams = [registry.settings('docker.io', { default: true, ...upstream })];
  const mirror = await startTestServer(t, { upstreams, ...settings });
  const get = async (path: string) => {
    const response = await mirror.fetch(`/v2/${path}`);
    await response.arrayBuffer();
    return response.status;
  };
  return { registry, mirror, get };
}

/** An index with one image for each platform, and a BuildKit attestation of the first. */
function offerIndex(registry: UpstreamRegistry, name: string, tag: string, platforms: string[]) {
  const images = platforms.map(() => registry.image(name));
  const children = images.map(({ manifest: { mediaType, digest, size } }, index) => {
    const [os, architecture, variant] = platforms[index]!.split('/');
    return { mediaType, digest, size, platform: { os, architecture, ...(variant && { variant }) } };
  });
  const attested = registry.image(name).manifest;
  const annotations = {
    'vnd.docker.reference.digest': children[0]!.digest,
    'vnd.docker.reference.type': 'attestation-manifest',
  };
  const attestation = {
    mediaType: ociManifest,
    digest: attested.digest,
    size: attested.size,
    platform: { os: 'unknown', architecture: 'unknown' },
    annotations,
  };
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [...children, attestation] };
  return { images, attested, index: registry.manifest(name, index, tag) };
}

test('what is stored brings no platform that is not', async (t) => {
  const { registry, mirror, get } = await setUp(t);
  const { images } = offerIndex(registry, 'library/tool', 'v1', ['linux/amd64', 'linux/arm64']);
  const { manifest, config, layer } = images[0]!;
  const paths = [`manifests/v1`, `manifests/${manifest.digest}`, `blobs/${config.digest}`, `blobs/${layer.digest}`];
  for (const path of paths) t.is(await get(`library/tool/${path}`), 200);
  const before = registry.requests().length;
  const report = await prefetchInto(mirror, [], { stored: true, referrers: false });
  t.deepEqual(missingIn(report), []);
  t.deepEqual([report.present.manifest.count, report.present.blob.count], [3, 2]);
  t.deepEqual(registry.requests().slice(before), []);
});

test('an image and its tag are stored when the upstream is down, and its content is fetched once', async (t) => {
  const { registry, mirror, get } = await setUp(t);
  const { manifest, config, layer } = registry.image('library/alpine', '3.20');
  const items = wishesOf('alpine:3.20', 'docker.io/library/alpine:3.20', `alpine@${manifest.digest}`);
  const report = await prefetchInto(mirror, items);
  t.deepEqual(missingIn(report), []);
  t.is(report.fetched.blob.count, 2);
  t.is(report.fetched.blob.bytes, config.size + layer.size);
  t.is(registry.count(`/v2/library/alpine/blobs/${layer.digest}`), 1);
  t.is(registry.count('/v2/library/alpine/manifests/3.20', 'GET'), 1);

  const before = registry.requests().length;
  const again = await prefetchInto(mirror, items);
  t.is(again.fetched.blob.count + again.fetched.manifest.count, 0);
  t.is(again.present.blob.bytes, report.fetched.blob.bytes);
  t.deepEqual(registry.requests().slice(before), [], 'no upstream request while the tag is fresh');
  mirror.clock.now = Date.now() + 3_600_000;
  await prefetchInto(mirror, items);
  const later = registry.requests().slice(before);
  t.deepEqual(
    later.filter((each) => each.startsWith('GET') && !/referrers|tags\/list|sha256-|\/v2\/$/.test(each)),
    [],
    'then by HEAD, which costs no pull',
  );

  await registry.stop();
  t.is(await get('library/alpine/manifests/3.20'), 200);
  t.is(await get(`docker.io/library/alpine/manifests/${manifest.digest}`), 200);
  t.is(await get(`library/alpine/blobs/${layer.digest}`), 200);
  t.is(await get(`library/alpine/blobs/${config.digest}`), 200);
  mirror.clock.now += 3_600_000;
  const stale = await prefetchInto(mirror, wishesOf('alpine:3.20'), { referrers: false });
  t.deepEqual(missingIn(stale), ['alpine:3.20: the upstream failed; the stored manifest may be out of date']);
  t.deepEqual([stale.present.manifest.count, stale.present.blob.count], [1, 2]);
});

test('a name without a registry is taken from docker.io if no upstream is the default, unless it is hosted here', async (t) => {
  const { registry, mirror, get } = await setUp(t, {}, { default: false });
  registry.image('library/alpine', '3.20');
  const team = new TestRepository(mirror, 'team/api');
  await team.image('v1');
  const report = await prefetchInto(mirror, wishesOf('alpine:3.20', 'team/api:v1', 'library/none:1'));
  t.deepEqual(missingIn(report), ['library/none:1: docker.io does not have this image']);
  t.deepEqual([...report.skipped], [['team/api:v1', 'hosted here']]);
  t.false(
    registry.requests().some((each) => each.includes('team/api')),
    'a hosted name is never sent',
  );
  registry.unplug();
  t.is(await get('docker.io/library/alpine/manifests/3.20'), 200);
  const other = await setUp(t, { upstreams: [registry.settings('hub.test')] });
  const unknown = await prefetchInto(other.mirror, wishesOf('alpine:3.20', 'docker.io/alpine:3.20'));
  t.deepEqual(missingIn(unknown), [
    'alpine:3.20: no upstream is configured for this name',
    'docker.io/alpine:3.20: no upstream is named docker.io',
  ]);
});

test('only the chosen platforms of an index are fetched, and the index does not change', async (t) => {
  const { registry, mirror } = await setUp(t);
  const { images, attested, index } = offerIndex(registry, 'team/app', '1', [
    'linux/amd64',
    'linux/arm64/v8',
    'linux/arm/v7',
  ]);
  const chosen = await prefetchInto(mirror, wishesOf('team/app:1'), { platforms: [parsePlatform('linux/amd64')!] });
  t.deepEqual(missingIn(chosen), []);
  t.is(chosen.fetched.manifest.count, 3, 'the index, one image and its attestation');
  const asked = (image: { manifest: Descriptor }) =>
    registry.count(`/v2/team/app/manifests/${image.manifest.digest}`, 'GET');
  t.deepEqual(images.map(asked), [1, 0, 0]);
  t.is(asked({ manifest: attested }), 1);
  t.deepEqual(
    images.map(({ layer }) => registry.count(`/v2/team/app/blobs/${layer.digest}`)),
    [1, 0, 0],
  );
  const served = await mirror.fetch('/v2/team/app/manifests/1');
  t.is(served.headers.get('docker-content-digest'), index.digest);
  t.is(((await served.json()) as { manifests: unknown[] }).manifests.length, 4);

  const arm = await prefetchInto(mirror, wishesOf('team/app:1'), { platforms: [parsePlatform('linux/arm64')!] });
  t.deepEqual(missingIn(arm), []);
  t.deepEqual(images.map(asked), [1, 1, 0]);
  const none = await prefetchInto(mirror, wishesOf('team/app:1'), { platforms: [parsePlatform('linux/s390x')!] });
  t.deepEqual(missingIn(none), [
    'team/app:1: the image does not have linux/s390x; it has linux/amd64, linux/arm64/v8, linux/arm/v7',
  ]);
  const file = 'FROM --platform=linux/arm/v7 team/app:1\n';
  await prefetchInto(mirror, wishesIn('Dockerfile', file), { platforms: [parsePlatform('linux/amd64')!] });
  t.deepEqual(images.map(asked), [1, 1, 1], 'the platform in the input has precedence');
  const all = await prefetchInto(mirror, wishesOf('team/app:1'));
  t.is(all.present.manifest.count, 5);
  t.is(all.fetched.blob.count, 0);
});

test('the blobs of a build cache are fetched; what is no descriptor is not', async (t) => {
  const { registry, mirror } = await setUp(t);
  const child = registry.image('team/cache').manifest;
  const layer = { ...registry.blob('team/cache', 'a layer'), mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip' };
  const state = { ...registry.blob('team/cache', '{}'), mediaType: 'application/vnd.buildkit.cacheconfig.v0' };
  const config = { ...registry.blob('team/cache', '{"a":1}'), mediaType: 'application/vnd.oci.image.config.v1+json' };
  const manifests = [
    null,
    config,
    { mediaType: ociManifest, digest: 'none', size: 1 },
    { mediaType: layer.mediaType, digest: layer.digest, size: 7 },
    { mediaType: state.mediaType, digest: state.digest, size: '2' },
    { digest: child.digest, size: child.size, platform: { os: 'linux' } },
  ];
  registry.manifest('team/cache', { schemaVersion: 2, mediaType: ociIndex, manifests }, '1');
  const options = { referrers: false, platforms: [parsePlatform('linux/amd64')!] };
  const dry = await prefetchInto(mirror, wishesOf('team/cache:1'), { ...options, dryRun: true });
  t.deepEqual(missingIn(dry), []);
  t.is(dry.fetched.blob.count, 5);
  const report = await prefetchInto(mirror, wishesOf('team/cache:1'), options);
  t.deepEqual(missingIn(report), []);
  t.is(report.fetched.blob.count, 5);
  t.is(dry.fetched.blob.bytes, report.fetched.blob.bytes - layer.size + 7 - state.size, 'as announced');
});

test('a foreign layer is not fetched, with and without its addresses', async (t) => {
  const { registry, mirror } = await setUp(t);
  const config = registry.blob('team/app', '{"a":1}');
  const own = registry.blob('team/app', 'own');
  const at = (mediaType: string, more = {}) => ({ ...registry.blob('team/app', mediaType), mediaType, ...more });
  const layers = [
    own,
    at('application/vnd.docker.image.rootfs.foreign.diff.tar.gzip'),
    at('application/vnd.oci.image.layer.nondistributable.v1.tar'),
    at('application/vnd.oci.image.layer.v1.tar', { urls: ['https://elsewhere.test/layer'] }),
  ];
  registry.manifest('team/app', { schemaVersion: 2, mediaType: ociManifest, config, layers }, '1');
  const report = await prefetchInto(mirror, wishesOf('team/app:1'));
  t.deepEqual(missingIn(report), []);
  t.is(report.fetched.blob.count, 2);
  t.deepEqual(
    layers.map(({ digest }) => registry.count(`/v2/team/app/blobs/${digest}`)),
    [1, 0, 0, 0],
  );
});

test('signatures and other referrers are fetched with their image, unless this is off', async (t) => {
  const { registry, mirror, get } = await setUp(t);
  const { manifest } = registry.image('team/app', '1');
  const subject = { mediaType: manifest.mediaType, digest: manifest.digest, size: manifest.size };
  const layer = registry.blob('team/app', 'a bill of materials');
  const empty = registry.blob('team/app', '{}');
  const artifact = {
    schemaVersion: 2,
    mediaType: ociManifest,
    artifactType: 'application/sbom',
    config: empty,
    layers: [layer],
    subject,
  };
  const sbom = registry.manifest('team/app', artifact);
  const list = { schemaVersion: 2, mediaType: ociIndex, manifests: [{ ...sbom, artifactType: 'application/sbom' }] };
  registry.on(
    `/v2/team/app/referrers/${manifest.digest}`,
    answer(200, { 'content-type': ociIndex }, JSON.stringify(list)),
  );
  const tag = `${manifest.digest.replace(':', '-')}.sig`;
  const signature = registry.image('team/app', tag);
  registry.on('/v2/team/app/tags/list', answer(200, {}, JSON.stringify({ name: 'team/app', tags: ['1', tag] })));

  const bare = await prefetchInto(mirror, wishesOf('team/app:1'), { referrers: false });
  t.is(bare.fetched.manifest.count, 1);
  t.is(registry.requests().filter((each) => /referrers|tags\/list/.test(each)).length, 0);
  const whole = await prefetchInto(mirror, wishesOf('team/app:1'));
  t.deepEqual(missingIn(whole), []);
  t.is(whole.fetched.manifest.count, 2);
  t.is(whole.fetched.blob.count, 4);
  await registry.stop();
  t.is(await get(`team/app/manifests/${sbom.digest}`), 200);
  t.is(await get(`team/app/blobs/${layer.digest}`), 200);
  t.is(await get(`team/app/manifests/${tag}`), 200);
  t.is(await get(`team/app/blobs/${signature.layer.digest}`), 200);
  t.is(await get(`team/app/referrers/${manifest.digest}`), 200);
});

test('missing content is listed with its reason; names of this server and of other registries are resolved', async (t) => {
  const { registry, mirror } = await setUp(t, {
    server: { baseUrl: 'https://hub.example/' },
    reserved: { containers: ['secret/*'] },
  });
  registry.image('library/good', '1');
  const { manifest, layer } = registry.image('team/broken', '1');
  const wrong = randomBytes(layer.size);
  registry.on(`/v2/team/broken/blobs/${layer.digest}`, serve(wrong));
  const { layer: lost } = registry.image('team/lost', '1');
  registry.on(`/v2/team/lost/blobs/${lost.digest}`, answer(404));
  await new TestRepository(mirror, 'mine/app').image('1');
  const items = wishesOf(
    'hub.example/docker.io/library/good:1',
    'hub.example/good:1',
    'index.docker.io/good:1',
    'ghcr.io/org/app:1',
    'none:1',
    'team/broken:1',
    'team/lost:1',
    'mine/app:1',
    'secret/app:1',
    'hub.example/docker.io/mine/app:1',
  );
  const report = await prefetchInto(mirror, items);
  t.is(registry.count('/v2/library/good/manifests/1', 'GET'), 1);
  t.deepEqual(missingIn(report), [
    'ghcr.io/org/app:1: no upstream is named ghcr.io',
    'none:1: docker.io does not have this image',
    `team/broken:1: layer ${layer.digest}: The upstream docker.io sent ${digestOf(wrong)} instead of ${layer.digest}.`,
    `team/lost:1: layer ${lost.digest}: docker.io does not have this blob`,
  ]);
  t.truthy(manifest);
  t.deepEqual(Object.fromEntries(report.skipped), {
    'mine/app:1': 'hosted here',
    'hub.example/docker.io/mine/app:1': 'hosted here',
    'secret/app:1': 'reserved',
  });
  t.deepEqual(
    registry.requests().filter((each) => /mine|secret/.test(each)),
    [],
  );
});

test('a dry run fetches only manifests and reports what it would fetch', async (t) => {
  const { registry, mirror } = await setUp(t);
  const { images } = offerIndex(registry, 'team/app', '1', ['linux/amd64', 'linux/arm64']);
  registry.image('team/other', '1');
  await prefetchInto(mirror, wishesOf('team/other:1'));
  const asked = registry.requests().length;
  const options = { platforms: [parsePlatform('linux/amd64')!] };
  const dry = await prefetchInto(mirror, wishesOf('team/app:1', 'team/other:1'), { ...options, dryRun: true });
  t.deepEqual(
    registry
      .requests()
      .slice(asked)
      .filter((each) => each.includes('/blobs/')),
    [],
  );
  t.is(dry.fetched.blob.count, 4);
  t.true(dry.fetched.blob.bytes > 2 * 200_000);
  t.is(dry.present.blob.count, 2);
  const real = await prefetchInto(mirror, wishesOf('team/app:1', 'team/other:1'), options);
  t.deepEqual(real.fetched.blob, dry.fetched.blob);
  t.is(registry.count(`/v2/team/app/blobs/${images[0]!.layer.digest}`), 1);
});

test('it stops at a share of the upstream’s rate limit, and continues there later', async (t) => {
  const { registry, mirror } = await setUp(t, {}, { freshFor: '30d' });
  let remaining = 100;
  for (const name of ['a', 'b', 'c', 'd']) {
    const { manifest } = registry.image(`team/${name}`, '1');
    registry.on(`/v2/team/${name}/manifests/1`, (request, response) => {
      remaining -= 25;
      const limits = { 'ratelimit-limit': '100;w=21600', 'ratelimit-remaining': `${remaining};w=21600` };
      answer(200, { 'content-type': ociManifest, ...limits }, manifest.bytes)(request, response);
    });
  }
  const windowEnds = () => void (mirror.clock.now = (mirror.clock.now ?? Date.now()) + 21_600_000);
  const items = wishesOf('team/a:1', 'team/b:1', 'team/c:1', 'team/d:1');
  const options = { rateLimitShare: 0.3, concurrency: 1, referrers: false };
  const report = await prefetchInto(mirror, items, options);
  t.is(remaining, 50);
  t.is(report.fetched.manifest.count, 2);
  t.is(report.fetched.blob.count, 4, 'blobs are not counted');
  t.is(report.missing.length, 2);
  for (const { reason } of report.missing) {
    t.is(reason, 'docker.io has 50 of 100 requests left in its rate limit, of which a prefetch uses at most 30%');
  }
  windowEnds();
  remaining = 100;
  const exact = await prefetchInto(mirror, items, { ...options, rateLimitShare: 0.25 });
  t.is(exact.fetched.manifest.count, 1, 'a share that is used up exactly');
  windowEnds();
  remaining = 1000;
  const rest = await prefetchInto(mirror, items, options);
  t.deepEqual(missingIn(rest), []);
  t.is(rest.present.manifest.count, 3);
  t.is(rest.fetched.manifest.count, 1);
});

test('what a full disk does not take is missing, and not here already', async (t) => {
  const { registry, mirror } = await setUp(t, { storage: { reserve: '1000TiB' } });
  const { manifest, layer } = registry.image('team/a', '1');
  const full = 'It was not stored: the disk of the server is full, or cannot be written.';
  const report = await prefetchInto(mirror, wishesOf('team/a:1'), { referrers: false });
  t.deepEqual(missingIn(report), [`team/a:1: ${full}`]);
  t.deepEqual([report.present.manifest.count, report.fetched.manifest.count], [0, 0]);
  t.is(registry.count(`/v2/team/a/blobs/${layer.digest}`), 0);
  t.deepEqual(missingIn(await prefetchInto(mirror, wishesOf('team/a:1'), { referrers: false, dryRun: true })), []);
  t.is(registry.count(`/v2/team/a/manifests/${manifest.digest}`), 0);
});

test('a layer that a full disk does not take is missing', async (t) => {
  const { registry, mirror, get } = await setUp(t, { data: await folderUntilEnd(t) });
  const { config, layer } = registry.image('team/a', '1');
  t.is(await get('docker.io/team/a/manifests/1'), 200);
  await mirror.close();
  const upstreams = [registry.settings('docker.io', { default: true })];
  const full = await startTestServer(t, { upstreams, data: mirror.data, storage: { reserve: '1000TiB' } });
  const report = await prefetchInto(full, wishesOf('team/a:1'), { referrers: false });
  const reason = 'It was not stored: the disk of the server is full, or cannot be written.';
  t.deepEqual(missingIn(report), [config, layer].map(({ digest }) => `team/a:1: layer ${digest}: ${reason}`).sort());
  t.deepEqual([report.present.manifest.count, report.present.blob.count, report.fetched.blob.count], [1, 0, 0]);
});

test('a layer during which the disk becomes full is missing, and the prefetch ends', async (t) => {
  const disk = new TestDisk();
  const registry = await startUpstreamRegistry(t);
  const upstreams = [registry.settings('docker.io', { default: true })];
  const mirror = await startTestServer(t, { upstreams }, { disk });
  const bytes = randomBytes(6 * 2 ** 20);
  const layer = registry.blob('team/a', bytes);
  const send = serve(bytes);
  registry.on(`/v2/team/a/blobs/${layer.digest}`, (request, response) => {
    disk.left = 2 ** 20;
    return send(request, response);
  });
  const config = registry.blob('team/a', '{}');
  registry.manifest('team/a', { schemaVersion: 2, mediaType: ociManifest, config, layers: [layer] }, '1');
  const report = await within(prefetchInto(mirror, wishesOf('team/a:1'), { referrers: false, concurrency: 1 }));
  const reason = 'It was not stored: the disk of the server is full, or cannot be written.';
  t.true(missingIn(report).includes(`team/a:1: layer ${layer.digest}: ${reason}`), missingIn(report).join('\n'));
});

test('a cancelled prefetch stops at once, and the next one continues there', async (t) => {
  const { registry, mirror } = await setUp(t);
  const { layer } = registry.image('team/a', '1');
  const other = registry.image('team/b', '1');
  const { behaviour, release } = held(serve(other.layer.bytes));
  registry.on(`/v2/team/b/blobs/${other.layer.digest}`, behaviour);
  const calling = new AbortController();
  const items = wishesOf('team/a:1', 'team/b:1');
  const running = prefetchInto(mirror, items, { signal: calling.signal, concurrency: 2 });
  const isAsked = (name: string, digest: string) => registry.count(`/v2/team/${name}/blobs/${digest}`) > 0;
  await until(() => isAsked('b', other.layer.digest) && isAsked('a', layer.digest));
  await until(async () =>
    (await rowsOf(mirror, 'SELECT digest FROM mirror_entries')).some(({ digest }) => digest === layer.digest),
  );
  calling.abort();
  const report = await within(running);
  t.true(report.interrupted);
  t.deepEqual(report.missing, []);
  release();
  const rest = await prefetchInto(mirror, items);
  t.false(rest.interrupted);
  t.deepEqual(missingIn(rest), []);
  t.is(registry.count(`/v2/team/a/blobs/${layer.digest}`), 1);
  t.is(rest.fetched.blob.count + rest.present.blob.count, 4);
});

test('a fetch that a client comes to wait for is not slowed any more', async (t) => {
  const { registry, mirror } = await setUp(t);
  const { layer } = registry.image('team/a', '1');
  const path = `/v2/team/a/blobs/${layer.digest}`;
  const stop = new AbortController();
  // The whole layer would take three hours.
  const options = { rate: 20, signal: stop.signal };
  registry.on(path, serve(layer.bytes));
  // The manifest is stored before, at full speed.
  t.is((await mirror.fetch('/v2/team/a/manifests/1')).status, 200);
  const prefetching = prefetchInto(mirror, wishesOf('team/a:1'), options);
  await until(() => registry.count(path) === 1);
  const response = await within(mirror.fetch(path));
  t.is<string, string>(digestOf(Buffer.from(await within(response.arrayBuffer()))), layer.digest);
  t.is(registry.count(path), 1);
  stop.abort();
  await within(prefetching);
});

test('a fetch that another prefetch waits for has neither the rate of the first one nor its end', async (t) => {
  const { registry, mirror } = await setUp(t);
  const { layer } = registry.image('team/a', '1');
  const stop = new AbortController();
  const slowly = prefetchInto(mirror, wishesOf('team/a:1'), { rate: 20, signal: stop.signal });
  await until(() => registry.count(`/v2/team/a/blobs/${layer.digest}`) === 1);
  const report = await within(prefetchInto(mirror, wishesOf('team/a:1')));
  t.deepEqual(missingIn(report), []);
  t.is(registry.count(`/v2/team/a/blobs/${layer.digest}`), 1);
  stop.abort();
  await within(slowly);
});

test('a cancelled prefetch ends at once, and a client that waits for one of its fetches gets the content', async (t) => {
  const { registry, mirror } = await setUp(t);
  const { layer } = registry.image('team/a', '1');
  const path = `/v2/team/a/blobs/${layer.digest}`;
  const { behaviour, release } = held(serve(layer.bytes));
  registry.on(path, behaviour);
  const stop = new AbortController();
  const prefetching = prefetchInto(mirror, wishesOf('team/a:1'), { signal: stop.signal });
  await until(() => registry.count(path) === 1);
  const { counts } = mirror.installation.core.mirror;
  const before = counts.joined;
  const getting = mirror.fetch(path);
  await until(() => counts.joined > before);
  stop.abort();
  t.true((await within(prefetching)).interrupted);
  release();
  const response = await within(getting);
  t.is<string, string>(digestOf(Buffer.from(await response.arrayBuffer())), layer.digest);
  t.is(registry.count(path), 1);
});

test('the rate applies to all fetches together, and the prefetch waits for the window', async (t) => {
  const { registry, mirror } = await setUp(t);
  registry.image('team/a', '1');
  registry.image('team/b', '1');
  const startedAt = performance.now();
  const report = await prefetchInto(mirror, wishesOf('team/a:1', 'team/b:1'), { rate: 400_000 });
  t.deepEqual(missingIn(report), []);
  t.true(report.received >= 400_000);
  t.true(performance.now() - startedAt > 950);

  // Half a second before the window opens, until the prefetch says that it waits.
  const opens = new Date(2030, 0, 1, 22, 0, 0).getTime();
  let waited = '';
  const now = () => (waited === '' ? opens - 500 : opens);
  registry.image('team/c', '1');
  const late = await prefetchInto(mirror, wishesOf('team/c:1'), {
    window: { from: 22 * 60, to: 6 * 60 },
    now,
    watch: ({ waiting }) => (waited ||= waiting ?? ''),
  });
  t.deepEqual(missingIn(late), []);
  t.is(waited, 'outside the time window');
});

test('tags that clients pulled recently are resolved again, with their new content', async (t) => {
  const { registry, mirror, get } = await setUp(t, {}, { freshFor: '1ms' });
  registry.image('library/used', '1');
  registry.image('library/old', '1');
  registry.image('library/listed', '1');
  const start = Date.now();
  mirror.clock.now = start - 40 * 86_400_000;
  t.is(await get('library/old/manifests/1'), 200);
  await flushUses(mirror);
  mirror.clock.now = start;
  t.is(await get('library/used/manifests/1'), 200);
  await flushUses(mirror);
  const renewed = registry.image('library/used', '1');
  registry.image('library/old', '1');
  mirror.clock.now = start + 1000;
  const inUse = { newest: 1, since: start - 30 * 86_400_000 };
  const report = await prefetchInto(mirror, [], { inUse });
  t.deepEqual(missingIn(report), []);
  t.is(report.fetched.blob.count, 2);
  t.is(registry.count('/v2/library/old/manifests/1'), 1);
  await registry.stop();
  // A refresh by a prefetch does not count as use.
  const later = await prefetchInto(mirror, [], { inUse: { newest: 1, since: start + 500 }, patience: 10 });
  t.deepEqual([later.present.manifest.count, later.missing.length], [0, 0]);
  const served = await mirror.fetch('/v2/library/used/manifests/1');
  t.is(served.headers.get('docker-content-digest'), renewed.manifest.digest);
  t.is(await get(`library/used/blobs/${renewed.layer.digest}`), 200);
});
