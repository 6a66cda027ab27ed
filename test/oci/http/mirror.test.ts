import { randomBytes } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { digestOf, errorOf, ociIndex, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';
import { putPolicy } from '../../support/policy.ts';
import { tokenOf } from '../../support/inside.ts';

const hour = 3_600_000;
const cacheOf = (response: Response) => response.headers.get('cache-status');

test('a cold pull sends each request once, and a warm pull sends none', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest, config, layer } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');

  const first = await app.fetch('manifests/v1');
  t.is(first.status, 200);
  t.is(await first.text(), manifest.bytes, 'unchanged to the byte');
  t.is(first.headers.get('content-type'), manifest.mediaType);
  t.is(first.headers.get('docker-content-digest'), manifest.digest);
  t.is(first.headers.get('etag'), `"${manifest.digest}"`);
  t.is(first.headers.get('content-length'), String(manifest.size));
  t.is(cacheOf(first), 'entrepot; fwd=miss; stored');

  const byDigest = await app.fetch(`manifests/${manifest.digest}`);
  t.is(await byDigest.text(), manifest.bytes);
  t.is(cacheOf(byDigest), 'entrepot; hit');
  for (const each of [config, layer]) {
    const blob = await app.fetch(`blobs/${each.digest}`);
    t.is(cacheOf(blob), 'entrepot; fwd=miss', 'it is not known yet whether it can be stored');
    t.is(blob.headers.get('docker-content-digest'), each.digest);
    t.is(digestOf(Buffer.from(await blob.arrayBuffer())), each.digest);
  }
  t.deepEqual(upstream.requests(), [
    'GET /v2/team/app/manifests/v1',
    `GET /v2/team/app/blobs/${config.digest}`,
    `GET /v2/team/app/blobs/${layer.digest}`,
  ]);

  const warm = upstream.asked.length;
  const head = await app.fetch('manifests/v1', { method: 'HEAD' });
  t.is(head.headers.get('docker-content-digest'), manifest.digest);
  t.is(head.headers.get('content-length'), String(manifest.size));
  t.is(cacheOf(head), 'entrepot; hit');
  const unchanged = await app.fetch('manifests/v1', { headers: { 'if-none-match': `"${manifest.digest}"` } });
  t.is(unchanged.status, 304);
  const range = await app.fetch(`blobs/${layer.digest}`, { headers: { range: 'bytes=100000-100009' } });
  t.is(range.status, 206);
  t.is(range.headers.get('content-range'), `bytes 100000-100009/${layer.size}`);
  t.deepEqual(Buffer.from(await range.arrayBuffer()), layer.bytes.subarray(100_000, 100_010));
  t.is((await app.fetch(`blobs/${layer.digest}`, { method: 'HEAD' })).headers.get('content-length'), '200000');
  t.is(upstream.asked.length, warm);
});

test('Last-Modified says when a mirrored manifest was stored here first, also after it was dropped', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  const hosted = new TestRepository(server, 'team/own');
  const first = Date.parse('2026-11-20T10:00:00Z');
  server.clock.now = first;
  const seen = async (reference: string, method = 'GET') =>
    (await app.fetch(`manifests/${reference}`, { method })).headers.get('last-modified');
  t.is(await seen('v1'), 'Fri, 20 Nov 2026 10:00:00 GMT');
  server.clock.now = first + 100 * hour;
  t.is(await seen('v1', 'HEAD'), 'Fri, 20 Nov 2026 10:00:00 GMT');
  for (const each of ['v1', manifest.digest])
    t.is((await server.fetch(`/v1/containers/up.test%2Fteam%2Fapp/${each}`, { method: 'DELETE' })).status, 204);
  t.is(await seen(manifest.digest), 'Fri, 20 Nov 2026 10:00:00 GMT');
  upstream.image('team/app', 'v1');
  t.is(await seen('v1'), 'Tue, 24 Nov 2026 14:00:00 GMT', 'the tag has other content');

  await hosted.image('v1');
  t.is((await hosted.fetch('manifests/v1')).headers.get('last-modified'), null);
});

test('a tag is revalidated by HEAD, and new content is fetched only if it is not stored', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const one = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '1h' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  const get = async (tag: string) => {
    const response = await app.fetch(`manifests/${tag}`);
    return [digestOf(await response.text()), cacheOf(response)];
  };
  const later = () => (server.clock.now = (server.clock.now ?? Date.now()) + 2 * hour);
  const asked = (work: () => Promise<unknown>) => {
    const before = upstream.requests().length;
    return work().then(() => upstream.requests().slice(before));
  };
  await get('v1');
  later();
  t.deepEqual(await asked(async () => t.deepEqual(await get('v1'), [one.manifest.digest, 'entrepot; fwd=stale'])), [
    'HEAD /v2/team/app/manifests/v1',
  ]);
  t.deepEqual(await asked(async () => t.deepEqual(await get('v1'), [one.manifest.digest, 'entrepot; hit'])), []);

  const two = upstream.image('team/app', 'v1');
  later();
  t.deepEqual(await asked(async () => t.is((await get('v1'))[0], two.manifest.digest)), [
    'HEAD /v2/team/app/manifests/v1',
    `GET /v2/team/app/manifests/${two.manifest.digest}`,
  ]);
  // Back to stored content.
  upstream.manifest('team/app', one.manifest.bytes, 'v1');
  later();
  t.deepEqual(await asked(async () => t.is((await get('v1'))[0], one.manifest.digest)), [
    'HEAD /v2/team/app/manifests/v1',
  ]);
  t.deepEqual(await asked(() => get(two.manifest.digest)), []);
  t.deepEqual(await asked(() => get(one.manifest.digest)), []);

  // A repository may use 64 connections, and each answer gives its connection back.
  for (let count = 0; count < 65; count += 1) {
    later();
    t.is((await get('v1'))[1], 'entrepot; fwd=stale');
  }

  upstream.on('/v2/team/app/manifests/v1', answer(404));
  later();
  t.deepEqual(await get('v1'), [one.manifest.digest, 'entrepot; hit; detail=withdrawn']);
  t.is((await app.fetch(`manifests/${one.manifest.digest}`)).status, 200, 'what was pulled by digest stays');
});

test('a bad new manifest is never served: the stale one is served instead', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '1h' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  await app.fetch('manifests/v1');
  const page = '<html>Please log in to this network</html>';
  for (const [index, behaviour] of [
    answer(200, { 'content-type': 'text/html' }, page),
    answer(200, { 'docker-content-digest': digestOf('another') }, manifest.bytes),
    answer(200, { 'content-type': manifest.mediaType }, '{"schemaVersion":2'),
    answer(500),
    answer(403),
  ].entries()) {
    upstream.on('/v2/team/app/manifests/v1', behaviour);
    server.clock.now = Date.now() + (index + 1) * 2 * hour;
    const response = await app.fetch('manifests/v1');
    t.is(await response.text(), manifest.bytes);
    t.is(cacheOf(response), 'entrepot; hit; detail=stale');
  }
  const other = new TestRepository(server, 'up.test/team/other');
  upstream.on('/v2/team/other/manifests/v1', answer(200, { 'content-type': 'text/html' }, page));
  server.clock.now = Date.now() + 24 * hour;
  t.deepEqual(await errorOf(await other.fetch('manifests/v1')), [502, 'UNAVAILABLE']);
});

test('an index is served unchanged, its platforms on request, and sha512 digests as requested', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const [amd64, arm64] = [upstream.image('team/app'), upstream.image('team/app')];
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [amd64.manifest, arm64.manifest] };
  const { digest, size } = upstream.manifest('team/app', index, 'multi');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  const served = await app.fetch('manifests/multi');
  t.is(served.headers.get('docker-content-digest'), digest);
  t.is(served.headers.get('content-length'), String(size));
  t.is(served.headers.get('content-type'), ociIndex);
  await app.fetch(`manifests/${arm64.manifest.digest}`);
  t.deepEqual(upstream.requests(), [
    'GET /v2/team/app/manifests/multi',
    `GET /v2/team/app/manifests/${arm64.manifest.digest}`,
  ]);

  const sha512 = digestOf(amd64.manifest.bytes, 'sha512');
  const headers = { 'content-type': amd64.manifest.mediaType, 'docker-content-digest': sha512 };
  upstream.on(`/v2/team/app/manifests/${sha512}`, answer(200, headers, amd64.manifest.bytes));
  upstream.on('/v2/team/app/manifests/long', answer(200, headers, amd64.manifest.bytes));
  for (const reference of ['long', sha512]) {
    const response = await app.fetch(`manifests/${reference}`);
    t.is(response.headers.get('docker-content-digest'), sha512);
    t.is(digestOf(await response.text(), 'sha512'), sha512);
  }
  t.is(upstream.count(`/v2/team/app/manifests/${sha512}`), 0);
  const blob = digestOf(amd64.layer.bytes, 'sha512');
  upstream.on(`/v2/team/app/blobs/${blob}`, answer(200, {}, amd64.layer.bytes));
  const response = await app.fetch(`blobs/${blob}`);
  t.is(digestOf(Buffer.from(await response.arrayBuffer()), 'sha512'), blob);
});

test('images stay whole after the limit of manifests was lowered below one that is stored', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { config, layer, manifest } = upstream.image('team/app', 'v1');
  const long = { ...JSON.parse(manifest.bytes), annotations: { a: 'x'.repeat(50_000) } };
  const { digest } = upstream.manifest('team/app', long, 'v1');
  const settings = { upstreams: [upstream.settings('up.test', { freshFor: '1m' })], data: await folderUntilEnd(t) };
  const before = await startTestServer(t, settings);
  t.is((await before.fetch('/v2/up.test/team/app/manifests/v1')).status, 200);
  await before.close();
  const server = await startTestServer(t, { ...settings, limits: { manifest: '20kB' } });
  server.clock.now = Date.now();
  const app = new TestRepository(server, 'up.test/team/app');
  t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), digest);
  for (const each of [config, layer]) t.is((await app.fetch(`blobs/${each.digest}`)).status, 200);
  // A tag that moves back to it: no manifest of this size is taken any more.
  const other = upstream.image('team/app', 'v1').manifest.digest;
  server.clock.now += hour;
  t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), other);
  upstream.manifest('team/app', long, 'v1');
  server.clock.now += hour;
  const back = await app.fetch('manifests/v1');
  t.deepEqual([back.status, back.headers.get('docker-content-digest')], [200, other]);
  t.is(cacheOf(back), 'entrepot; hit; detail=stale');
});

test('a manifest without a manifest type in its header is served with its own type', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app');
  upstream.on('/v2/team/app/manifests/v1', answer(200, { 'content-type': 'application/json' }, manifest.bytes));
  upstream.on(
    '/v2/team/app/manifests/v2',
    answer(200, { 'content-type': `${manifest.mediaType}; charset=utf-8` }, manifest.bytes),
  );
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  for (const tag of ['v1', 'v2']) {
    const response = await app.fetch(`manifests/${tag}`);
    t.is(response.headers.get('content-type'), manifest.mediaType);
    t.is(response.headers.get('docker-content-digest'), manifest.digest);
  }
});

test('namespace, prefix and default upstream lead to the same repository, each applied once', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const other = await startUpstreamRegistry(t);
  const official = hub.image('library/alpine', '3');
  const theirs = hub.image('team/app', '3');
  const foreign = other.image('team/app', '3');
  const server = await startTestServer(t, {
    upstreams: [hub.settings('docker.io', { default: true }), other.settings('other.test')],
  });
  const digestAt = async (path: string) => {
    const response = await server.fetch(path);
    return response.status === 200 ? digestOf(await response.text()) : response.status;
  };
  const cases: [string[], string | number][] = [
    [
      [
        '/v2/library/alpine/manifests/3',
        '/v2/alpine/manifests/3',
        '/v2/docker.io/alpine/manifests/3',
        '/v2/docker.io/library/alpine/manifests/3',
        '/v2/index.docker.io/library/alpine/manifests/3',
        '/v2/library/alpine/manifests/3?ns=docker.io',
        '/v2/alpine/manifests/3?ns=docker.io',
        '/v2/library/alpine/manifests/3?ns=registry-1.docker.io',
        '/v2/docker.io/library/alpine/manifests/3?ns=docker.io',
      ],
      official.manifest.digest,
    ],
    [['/v2/team/app/manifests/3', '/v2/docker.io/team/app/manifests/3?ns=docker.io'], theirs.manifest.digest],
    [
      [
        '/v2/team/app/manifests/3?ns=other.test',
        '/v2/other.test/team/app/manifests/3',
        '/v2/other.test/team/app/manifests/3?ns=other.test',
        '/v2/other.test%2Fteam%2Fapp/manifests/3',
      ],
      foreign.manifest.digest,
    ],
    [['/v2/team/app/manifests/3?ns=unknown.test', '/v2/library/alpine/manifests/3?ns=other.test'], 404],
  ];
  for (const [paths, expected] of cases) for (const path of paths) t.is(await digestAt(path), expected, path);
  t.deepEqual(hub.requests(), ['GET /v2/library/alpine/manifests/3', 'GET /v2/team/app/manifests/3']);
  t.deepEqual(other.requests(), ['GET /v2/team/app/manifests/3', 'GET /v2/library/alpine/manifests/3']);

  const hosted = new TestRepository(server, 'mine/app');
  await hosted.image('v1');
  t.is((await hosted.fetch(`manifests/v1?ns=${new URL(server.url).host}`)).status, 200, 'its own name means itself');
});

test('the tags of all the upstream’s pages are one list, which is paged here', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('team/app', 'v1');
  const list = '/v2/team/app/tags/list';
  upstream.on(
    `${list}?n=1000`,
    answer(200, { link: `<${list}?n=1000&last=b>; rel="next"` }, '{"name":"x","tags":["b","a","V"]}'),
  );
  upstream.on(`${list}?n=1000&last=b`, answer(200, {}, '{"name":"x","tags":["v","v1"]}'));
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '1h' })] });
  const app = new TestRepository(server, 'team/app');
  const list1 = await app.fetch('tags/list?ns=up.test&n=3');
  t.is(cacheOf(list1), 'entrepot; fwd=miss; stored');
  t.deepEqual(await list1.json(), { name: 'team/app', tags: ['V', 'a', 'b'] });
  const next = /^<([^>]+)>; rel="next"$/.exec(list1.headers.get('link')!)![1]!;
  const list2 = await app.fetch(next);
  t.deepEqual(await list2.json(), { name: 'team/app', tags: ['v', 'v1'] });
  t.is(list2.headers.get('link'), null);
  t.is(cacheOf(list2), 'entrepot; hit');
  t.is(upstream.requests().length, 2);
  t.deepEqual(await errorOf(await new TestRepository(server, 'up.test/team/none').fetch('tags/list')), [
    404,
    'NAME_UNKNOWN',
  ]);

  await app.fetch('manifests/v1?ns=up.test');
  upstream.unplug();
  server.clock.now = Date.now() + 2 * hour;
  const stale = await app.fetch('tags/list?ns=up.test');
  t.is(cacheOf(stale), 'entrepot; hit; detail=stale');
  t.is(((await stale.json()) as { tags: string[] }).tags.length, 5);
});

test('if the upstream’s list fails, the pulled tags are listed', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  for (const tag of ['b', 'a']) upstream.image('team/app', tag);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  for (const tag of ['b', 'a']) await app.fetch(`manifests/${tag}`);
  upstream.unplug();
  const list = await app.fetch('tags/list');
  t.deepEqual(await list.json(), { name: 'up.test/team/app', tags: ['a', 'b'] });
  t.is(cacheOf(list), 'entrepot; hit; detail=stale');
  const page = async (query: string) => {
    const response = await app.fetch(`tags/list?${query}`);
    return [((await response.json()) as { tags: string[] }).tags, response.headers.has('link')];
  };
  t.deepEqual(await page('n=1'), [['a'], true]);
  t.deepEqual(await page('n=1&last=a'), [['b'], false]);
  t.deepEqual(await page('n=1&last=b'), [[], false], 'nothing is after the last one');
  t.deepEqual(await errorOf(await new TestRepository(server, 'up.test/team/none').fetch('tags/list')), [
    502,
    'UNAVAILABLE',
  ]);
});

test('referrers come from the upstream’s list or its fallback tag, filtered and paged here', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const referrer = (artifactType: string) => {
    const annotations = { made: randomBytes(4).toString('hex') };
    return { ...upstream.manifest('team/app', { schemaVersion: 2, annotations }), artifactType, annotations };
  };
  const referrers = [referrer('a/sbom'), referrer('a/sig'), referrer('a/sig')];
  const sorted = referrers.map(({ digest }) => digest).sort();
  const body = JSON.stringify({
    schemaVersion: 2,
    mediaType: ociIndex,
    manifests: [...referrers, { digest: 'bad' }, null],
  });
  upstream.on(`/v2/team/app/referrers/${manifest.digest}`, answer(200, { 'content-type': ociIndex }, body));
  // Registries without the API answer in these ways, and clients use the fallback tag then.
  const old = [404, 400, 405, 406].map((status) => {
    upstream.on(`/v2/team/old${status}/referrers/${manifest.digest}`, answer(status));
    upstream.on(`/v2/team/old${status}/manifests/${manifest.digest.replace(':', '-')}`, answer(200, {}, body));
    return `up.test/team/old${status}`;
  });
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  for (const name of ['up.test/team/app', ...old]) {
    const repository = new TestRepository(server, name);
    const all = await repository.fetch(`referrers/${manifest.digest}`);
    t.is(all.headers.get('content-type'), ociIndex);
    const { manifests } = (await all.json()) as { manifests: typeof referrers };
    t.deepEqual(
      manifests.map(({ digest }) => digest),
      sorted,
    );
    t.deepEqual(
      manifests[0],
      referrers.find(({ digest }) => digest === sorted[0])!,
    );
    const signatures = await repository.fetch(`referrers/${manifest.digest}?artifactType=a/sig&n=1`);
    t.is(signatures.headers.get('oci-filters-applied'), 'artifactType');
    const found = ((await signatures.json()) as { manifests: typeof referrers }).manifests.map(({ digest }) => digest);
    const next = await repository.fetch(/^<([^>]+)>/.exec(signatures.headers.get('link')!)![1]!);
    found.push(...((await next.json()) as { manifests: typeof referrers }).manifests.map(({ digest }) => digest));
    t.deepEqual(
      found,
      sorted.filter((digest) => digest !== referrers[0]!.digest),
    );
    t.is(cacheOf(next), 'entrepot; hit');
  }
  const none = await new TestRepository(server, 'up.test/team/none').fetch(`referrers/${manifest.digest}`);
  t.deepEqual(((await none.json()) as { manifests: unknown[] }).manifests, []);
});

test('HEAD of a blob is answered as GET for a client that may not push, also before any manifest', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const settings = upstream.settings('up.test', { default: true });
  const server = await startTestServer(t, {
    upstreams: [settings],
    anonymousRead: 'mirrored',
    reserved: { containers: ['private/*'] },
  });
  const reader = await tokenOf(server, ['read']);
  const writer = await tokenOf(server, ['read', 'write']);
  const head = (name: string, digest: string, token: string | null = reader) =>
    server.fetch(`/v2/${name}/blobs/${digest}`, { method: 'HEAD', token });
  for (const [at, token] of [reader, null].entries()) {
    for (const name of [`team/app${at}`, `up.test/team/named${at}`]) {
      const { layer } = upstream.image(name.replace('up.test/', ''), 'v1');
      const there = await head(name, layer.digest, token);
      t.is(there.status, 200, name);
      t.is(there.headers.get('content-length'), String(layer.size));
      t.is(there.headers.get('docker-content-digest'), layer.digest);
      t.is(cacheOf(there), 'entrepot; fwd=miss');
      t.is((await head(name, digestOf('other'), token)).status, 404);
    }
  }
  const asked = upstream.asked.length;
  const { layer } = upstream.image('private/app', 'v1');
  t.is((await head('private/app', layer.digest)).status, 404);
  t.is((await head('private/app', layer.digest, null)).status, 401);
  // What a push asks for is not sent to an upstream, and a client that is told of a layer there would not send it.
  const theirs = upstream.image('team/new', 'v1');
  for (const name of ['team/new', 'up.test/team/new']) {
    t.is((await head(name, theirs.layer.digest, writer)).status, 404, name);
  }
  const pushed = new TestRepository(server, 'up.test/team/new', writer);
  await pushed.blob(theirs.layer.bytes);
  const { size, digest, mediaType } = theirs.layer;
  t.is((await pushed.put('mine', { ...(await pushed.manifest()), layers: [{ size, digest, mediaType }] })).status, 201);
  t.is(upstream.asked.length, asked);

  const failing = upstream.image('team/failing', 'v1').layer.digest;
  for (const [status, expected] of [
    [403, 403],
    [500, 502],
  ] as const) {
    upstream.on(`/v2/team/failing/blobs/${failing}`, answer(status));
    t.is((await head('team/failing', failing)).status, expected);
    t.is((await server.fetch(`/v2/team/failing/blobs/${failing}`, { token: reader })).status, expected);
  }
  const denied = upstream.image('team/denied', 'v1').layer.digest;
  t.is((await putPolicy(server, { minimumAge: { images: '2d' } })).status, 200);
  const before = upstream.count(`/v2/team/denied/blobs/${denied}`);
  t.is((await server.fetch(`/v2/team/denied/blobs/${denied}`, { token: reader })).status, 403);
  t.is((await head('team/denied', denied)).status, 403);
  t.is(upstream.count(`/v2/team/denied/blobs/${denied}`), before);
});

for (const dialect of dialects) {
  test(`${dialect}: every account reads mirrored content, and no account another one’s hosted content`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const { manifest, layer } = upstream.image('team/app', 'v1');
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [upstream.settings('up.test', { default: true })],
    });
    const value = await tokenOf(server, ['read', 'write'], 'other');
    const mine = new TestRepository(server, 'team/app');
    const theirs = new TestRepository(server, 'team/app', value);
    const hosted = await mine.image('v1');
    t.is((await mine.fetch('manifests/v1')).headers.get('docker-content-digest'), hosted.digest);
    t.is((await theirs.fetch('manifests/v1')).headers.get('docker-content-digest'), manifest.digest);
    t.is((await theirs.fetch(`blobs/${layer.digest}`)).status, 200);
    t.deepEqual(await errorOf(await theirs.fetch(`manifests/${hosted.digest}`)), [404, 'MANIFEST_UNKNOWN']);
    t.deepEqual(await errorOf(await mine.fetch(`manifests/${manifest.digest}`)), [404, 'MANIFEST_UNKNOWN']);
    t.deepEqual(await errorOf(await mine.fetch(`blobs/${layer.digest}`)), [404, 'BLOB_UNKNOWN']);
  });
}
