import test from 'ava';
import { largeInTurn } from '../../../src/mirror/fetch/fetch.ts';
import { digestOf, errorOf, ociIndex, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';
import { until, within } from '../../support/until.ts';
import { closeMirror, firstUpstream, flushUsage, rowsOf } from '../../support/inside.ts';

// Mirrored lists: what is served of them, and their bounds. Names in all their spellings.

const cacheOf = (response: Response) => response.headers.get('cache-status');
const tags = (count: number, name = 'v') => JSON.stringify({ tags: Array.from({ length: count }, (_, n) => name + n) });
const tagsOf = async (response: Response) => ((await response.json()) as { tags: string[] }).tags;
/** A descriptor without a size. */
const plain = (text: string) => ({ mediaType: 'a/b', digest: digestOf(text), size: 0 });

test('invalid and repeated tags of an upstream are not listed', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const sent = ['v1', '', '-bad', 'a b', 'x'.repeat(129), 'tag\r\n', '../up', 7, null, 'v1', 'é', 'V2'];
  upstream.on('/v2/team/app/tags/list', answer(200, {}, JSON.stringify({ tags: sent })));
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  t.deepEqual(await tagsOf(await server.fetch('/v2/up.test/team/app/tags/list')), ['V2', 'v1']);
});

test('an upstream’s list has at most 200,000 items in 16 MiB; a larger one is 502', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const list = '/v2/team/app/tags/list';
  const page = (next: string, body: string) => answer(200, { link: `<${list}?page=${next}>; rel="next"` }, body);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '0s' })] });
  const app = new TestRepository(server, 'up.test/team/app');

  upstream.on(list, answer(200, {}, tags(400_000)));
  t.deepEqual(await errorOf(await app.fetch('tags/list')), [502, 'UNAVAILABLE']);
  // Many pages, each of them small enough.
  const long = tags(40_000, 'x'.repeat(100));
  upstream.on(list, page('1', long));
  for (let index = 1; index < 10; index += 1) upstream.on(`${list}?page=${index}`, page(String(index + 1), long));
  server.clock.now = Date.now() + 3_600_000;
  t.deepEqual(await errorOf(await app.fetch('tags/list')), [502, 'UNAVAILABLE']);
  t.true(upstream.requests().length < 7, 'it stops at the limit');
  upstream.on(list, answer(200, {}, tags(200_000)));
  server.clock.now += 3_600_000;
  const whole = await app.fetch('tags/list?n=2&last=v2');
  t.deepEqual(await tagsOf(whole), ['v20', 'v200']);
});

test('the pages of a list are followed within their upstream only, and at most 200 of them', async (t) => {
  const [upstream, other] = [await startUpstreamRegistry(t), await startUpstreamRegistry(t)];
  const list = '/v2/team/app/tags/list';
  const away = new URL(`${list}?page=1`, other.url).href;
  upstream.on(list, answer(200, { link: `<${away}>; rel="next"` }, '{"tags":["here"]}'));
  upstream.on(`${list}?page=1`, answer(200, {}, '{"tags":["more"]}'));
  other.on(`${list}?page=1`, answer(200, {}, '{"tags":["there"]}'));
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { timeout: '60s' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  t.deepEqual(await tagsOf(await app.fetch('tags/list')), ['here', 'more'], 'as a proxy changes the host');
  t.deepEqual(other.asked, []);

  const endless = '/v2/team/endless/tags/list';
  upstream.on(endless, answer(200, { link: `<${endless}>; rel="next"` }, '{"tags":["again"]}'));
  const before = upstream.requests().length;
  const response = await within(new TestRepository(server, 'up.test/team/endless').fetch('tags/list'), 30_000);
  t.deepEqual(await errorOf(response), [502, 'UNAVAILABLE']);
  t.is(upstream.requests().length - before, 200);
});

test('a large list that waits too long for others is 429, or what is stored, and no failure of the upstream', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('team/pulled', 'v1');
  upstream.on('/v2/team/listed/tags/list', answer(200, {}, '{"tags":["before"]}'));
  // A name of its own: all upstreams of one name in a process take turns.
  const settings = { timeout: '5s', freshFor: '1m' };
  const server = await startTestServer(t, { upstreams: [upstream.settings('turns.test', settings)] });
  server.clock.now = Date.now();
  const listOf = (name: string) => server.fetch(`/v2/turns.test/team/${name}/tags/list`);
  t.is((await server.fetch('/v2/turns.test/team/pulled/manifests/v1')).status, 200);
  t.deepEqual(await tagsOf(await listOf('listed')), ['before']);
  server.clock.now += 3_600_000;
  for (const name of ['pulled', 'listed', 'new'])
    upstream.on(`/v2/team/${name}/tags/list`, answer(200, {}, tags(200_000)));
  const [pulled, listed, other] = await largeInTurn(firstUpstream(server), 'tags', async (grown) => {
    await grown(2 ** 21);
    return Promise.all(['pulled', 'listed', 'new'].map(listOf));
  });
  t.deepEqual([await tagsOf(pulled!), await tagsOf(listed!)], [['v1'], ['before']]);
  t.is(other!.headers.get('retry-after'), '1');
  t.deepEqual(await errorOf(other!), [429, 'TOOMANYREQUESTS']);
  t.deepEqual([firstUpstream(server).counts.failures, firstUpstream(server).counts.lastFailure], [0, null]);
  t.false(server.lines.some((line) => line.includes('in the middle of a body') || line.includes('in this server')));
});

test('a client that leaves while a list arrives is no failure of the upstream', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const cut = Promise.withResolvers<void>();
  upstream.on('/v2/team/app/tags/list', (_request, response) => {
    response.once('close', cut.resolve);
    response.writeHead(200, { 'content-type': 'application/json' });
    response.write('{"tags":["v1"');
  });
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const { counts } = firstUpstream(server);
  const leaving = new AbortController();
  const left = server.fetch('/v2/up.test/team/app/tags/list', { signal: leaving.signal });
  await until(() => counts.succeededAt !== null);
  leaving.abort();
  await t.throwsAsync(left);
  await cut.promise;
  await closeMirror(server);
  t.deepEqual([counts.failures, counts.lastFailure], [0, null]);
  t.false(server.lines.some((line) => line.includes('in the middle of a body')));
});

test('a list without a page that it names, or with another status than 200, is 502, or the list that is stored', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '1m' })] });
  server.clock.now = Date.now();
  // Firewalls answer so to programs, before the registry gets the request.
  upstream.on('/v2/team/guarded/tags/list', answer(202));
  t.deepEqual(await errorOf(await server.fetch('/v2/up.test/team/guarded/tags/list')), [502, 'UNAVAILABLE']);
  const lacking = (name: string) => {
    const list = `/v2/team/${name}/tags/list`;
    upstream.on(list, answer(200, { link: `<${list}?page=2>; rel="next"` }, '{"tags":["v1"]}'));
    upstream.on(`${list}?page=2`, answer(404));
  };
  lacking('new');
  t.deepEqual(await errorOf(await server.fetch('/v2/up.test/team/new/tags/list')), [502, 'UNAVAILABLE']);

  upstream.on('/v2/team/app/tags/list', answer(200, {}, '{"tags":["v1","v2"]}'));
  t.deepEqual(await tagsOf(await server.fetch('/v2/up.test/team/app/tags/list')), ['v1', 'v2']);
  lacking('app');
  server.clock.now += 61_000;
  const stale = await server.fetch('/v2/up.test/team/app/tags/list');
  t.is(cacheOf(stale), 'entrepot; hit; detail=stale');
  t.deepEqual(await tagsOf(stale), ['v1', 'v2']);
});

test('odd documents of an upstream are 502, never 500', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { config, layer } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  const image = { schemaVersion: 2, config, layers: [{ ...layer, bytes: undefined }] };
  const put = (tag: string, document: object, type: string) =>
    upstream.on(`/v2/team/app/manifests/${tag}`, answer(200, { 'content-type': type }, JSON.stringify(document)));
  put('crlf', { ...image, mediaType: 'a/b\r\nX-Injected: 1' }, 'text/plain');
  const served = await app.fetch('manifests/crlf');
  t.is(served.status, 200);
  t.is(served.headers.get('content-type'), ociManifest);
  // Only the header says what this one is, and some registries send a charset in it.
  const dockerImage = 'application/vnd.docker.distribution.manifest.v2+json';
  put('charset', image, `${dockerImage.toUpperCase()} ; charset=utf-8`);
  t.is((await app.fetch('manifests/charset')).headers.get('content-type'), dockerImage);
  put('bad', { schemaVersion: 2, mediaType: 'a/b\r\nX-Injected: 1' }, 'text/plain');
  put('schema1', { schemaVersion: 1, name: 'x', fsLayers: [] }, 'application/vnd.docker.distribution.manifest.v1+json');
  put('list', [], ociIndex);
  for (const tag of ['bad', 'schema1', 'list']) {
    t.deepEqual(await errorOf(await app.fetch(`manifests/${tag}`)), [502, 'UNAVAILABLE'], tag);
  }
  const subject = digestOf('subject');
  const odd = { mediaType: 'a/b\r\nX: 1', digest: digestOf('a'), size: 1, artifactType: 'c\r\nd' };
  const manifests = [
    odd,
    { ...plain('b'), size: 2.5, artifactType: 7, annotations: { text: 'yes', number: 5 } },
    { ...plain('c'), size: '3', annotations: null },
    { ...plain('d'), size: 4, annotations: 'text' },
    { ...plain('e'), digest: 'sha256:1' },
    { ...plain('f'), digest: 5 },
    { digest: digestOf('g'), size: 1 },
    null,
    'text',
  ];
  upstream.on(`/v2/team/app/referrers/${subject}`, answer(200, {}, JSON.stringify({ manifests })));
  const referrers = await app.fetch(`referrers/${subject}?artifactType=${encodeURIComponent('c\r\nd')}&n=1`);
  t.is(referrers.status, 200);
  const valid = [odd, { ...plain('b'), annotations: { text: 'yes' } }, plain('c'), { ...plain('d'), size: 4 }];
  t.deepEqual(
    ((await (await app.fetch(`referrers/${subject}`)).json()) as { manifests: { digest: string }[] }).manifests,
    valid.sort((one, other) => (one.digest < other.digest ? -1 : 1)),
  );
  const deep = `{"tags":[${'['.repeat(100_000)}${']'.repeat(100_000)}]}`;
  for (const body of ['{"tags":{"length":5}}', '{"tags":"abc"}', '[]', '{}', 'null', '{"tags":[[["a"]]]}', deep]) {
    upstream.on('/v2/team/app/tags/list', answer(200, {}, body));
    server.clock.now = (server.clock.now ?? Date.now()) + 3_600_000;
    t.true([200, 502].includes((await app.fetch('tags/list')).status), body.slice(0, 100));
  }
});

test('a list of referrers that the upstream does not have is a miss first, then a hit', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const path = `/v2/up.test/team/app/referrers/${digestOf('subject')}`;
  const first = await server.fetch(path);
  t.deepEqual(((await first.json()) as { manifests: unknown[] }).manifests, []);
  t.is(cacheOf(first), 'entrepot; fwd=miss');
  const asked = upstream.asked.length;
  t.is(cacheOf(await server.fetch(path)), 'entrepot; hit');
  t.is(upstream.asked.length, asked);
});

test('an empty list of referrers is stored only for a manifest that is stored, so invented digests make no rows', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const empty = answer(200, { 'content-type': ociIndex }, '{"schemaVersion":2,"manifests":[]}');
  const invented = digestOf('invented');
  for (const digest of [manifest.digest, invented]) upstream.on(`/v2/team/app/referrers/${digest}`, empty);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '1m' })] });
  server.clock.now = Date.now();
  const app = new TestRepository(server, 'up.test/team/app');
  const listOf = async (digest: string) => {
    const response = await app.fetch(`referrers/${digest}`);
    t.is(response.status, 200);
    return ((await response.json()) as { manifests: { digest: string }[] }).manifests.map((each) => each.digest);
  };
  const rows = () => rowsOf(server, "SELECT reference FROM mirror_entries WHERE kind = 'referrers' ORDER BY reference");
  t.is((await app.fetch('manifests/v1')).status, 200);
  for (const digest of [manifest.digest, invented]) t.deepEqual(await listOf(digest), []);
  const asked = upstream.asked.length;
  for (const digest of [manifest.digest, invented]) t.deepEqual(await listOf(digest), []);
  t.is(upstream.asked.length, asked, 'both answers are known for a time');
  t.deepEqual(await rows(), [{ reference: manifest.digest }]);
  // A list that is stored follows the upstream, also without its manifest.
  const listed = JSON.stringify({ schemaVersion: 2, manifests: [plain('signature')] });
  upstream.on(`/v2/team/app/referrers/${invented}`, answer(200, { 'content-type': ociIndex }, listed));
  server.clock.now += 3_600_000;
  t.deepEqual(await listOf(invented), [digestOf('signature')]);
  upstream.on(`/v2/team/app/referrers/${invented}`, empty);
  server.clock.now += 3_600_000;
  t.deepEqual(await listOf(invented), []);
  for (const digest of [manifest.digest, invented]) upstream.on(`/v2/team/app/referrers/${digest}`, answer(503));
  server.clock.now += 3_600_000;
  for (const digest of [manifest.digest, invented]) t.deepEqual(await listOf(digest), [], 'while the upstream fails');
});

test('HEAD of a stored blob is answered as GET, also without a stored manifest', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { layer, config } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  t.is((await (await app.fetch(`blobs/${layer.digest}`)).arrayBuffer()).byteLength, layer.size);
  const head = await app.fetch(`blobs/${layer.digest}`, { method: 'HEAD' });
  t.is(head.status, 200);
  t.is(head.headers.get('content-length'), String(layer.size));
  t.is((await app.fetch(`blobs/${config.digest}`, { method: 'HEAD' })).status, 404, 'one that is not stored');
});

test('a prefix that comes twice is sent to no upstream, and a reserved name behind another prefix neither', async (t) => {
  const [hub, other] = [await startUpstreamRegistry(t), await startUpstreamRegistry(t)];
  for (const upstream of [hub, other]) {
    for (const name of ['team/x', 'own/x', 'docker.io/team/x', 'docker.io/open/x', 'index.docker.io/open/x']) {
      upstream.image(name, 'v1');
    }
  }
  const server = await startTestServer(t, {
    upstreams: [hub.settings('docker.io', { default: true }), other.settings('other.test')],
    reserved: { containers: ['team/*', 'other.test/own/*'] },
  });
  for (const name of [
    'other.test/own/x',
    'own/x?ns=other.test',
    'other.test/team/x',
    'team/x?ns=other.test',
    'docker.io/docker.io/team/x',
    'docker.io/docker.io/docker.io/team/x',
    'docker.io/index.docker.io/team/x',
    'index.docker.io/docker.io/open/x',
    'docker.io/docker.io/open/x',
    'docker.io/docker.io/open/x?ns=docker.io',
    'docker.io/team/x?ns=other.test',
    'other.test/docker.io/team/x',
    'other.test/docker.io/other.test/team/x',
  ]) {
    const [path, query = ''] = name.split('?');
    t.is((await server.fetch(`/v2/${path}/manifests/v1?${query}`)).status, 404, name);
  }
  t.deepEqual([hub.asked, other.asked], [[], []]);
  t.is((await server.fetch('/v2/other.test/docker.io/open/x/manifests/v1')).status, 200, 'an upstream’s own name');
  t.is((await server.fetch('/v2/docker.io/own/x/manifests/v1')).status, 200, 'reserved with the other prefix only');
});

test('each method finds a hosted image under each of its names', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('docker.io', { default: true })] });
  const names = ['alpine', 'library/alpine', 'docker.io/alpine', 'docker.io/library/alpine'];
  const hosted = new TestRepository(server, 'alpine');
  const { digest } = await hosted.image('v1');
  for (const name of names) {
    const other = new TestRepository(server, name);
    const { status } = await other.put('v2', JSON.stringify(await other.manifest()));
    t.is(status, 201, name);
    t.deepEqual(await tagsOf(await server.fetch('/v2/alpine/tags/list')), ['v1', 'v2'], 'no second repository');
    t.is((await other.fetch('manifests/v2', { method: 'DELETE' })).status, 202, name);
    t.is((await hosted.fetch('manifests/v2')).status, 404);
    const blob = await hosted.blob(`blob ${name}`);
    t.is((await other.fetch(`blobs/${blob.digest}`, { method: 'DELETE' })).status, 202, name);
    const elsewhere = new TestRepository(server, 'elsewhere/app');
    const source = await hosted.blob(`mount ${name}`);
    const mounted = await elsewhere.fetch(`blobs/uploads/?mount=${source.digest}&from=${name}`, { method: 'POST' });
    t.is(mounted.status, 201, name);
  }
  const { repositories } = (await (await server.fetch('/v2/_catalog')).json()) as { repositories: string[] };
  t.deepEqual(repositories, ['alpine']);
  t.is((await server.fetch(`/v2/library/alpine/manifests/${digest}`, { method: 'DELETE' })).status, 202);
  t.deepEqual(upstream.asked, []);
});

test('a request that finds nothing makes no usage row with its name', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  for (const name of ['invented/one', 'up.test/invented/two']) {
    const repository = new TestRepository(server, name);
    t.is((await repository.fetch(`referrers/${digestOf('x')}`)).status, 200);
    t.is((await repository.fetch('manifests/v1')).status, 404);
    t.is((await repository.fetch('tags/list')).status, 404);
    t.is((await repository.fetch('_oci/tag-history/v1')).status, 200);
    const location = await repository.start();
    t.is((await repository.fetch(location)).status, 204);
    t.is((await repository.fetch(location, { method: 'DELETE' })).status, 204);
  }
  await flushUsage(server);
  const rows = await rowsOf<{ name: string }>(server, "SELECT name FROM usage_counts WHERE dimension = 'container'");
  t.deepEqual([...new Set(rows.map(({ name }) => name))], ['']);
});
