import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { damages, filesOf } from '../../support/damage.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { runJob } from '../../support/inside.ts';
import { digestOf, errorOf, ociIndex, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { answer, type Behaviour } from '../../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry, type UpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';
import { missingIn, toldOf } from '../../support/withdrawn.ts';

// A tag that the upstream deletes keeps answering its last stored digest.

const minute = 60_000;
const cacheOf = (response: Response) => response.headers.get('cache-status');
const withdrawn = 'entrepot; hit; detail=withdrawn';
const tag = (name: string) => `/v2/team/app/manifests/${name}`;
const tagList = '/v2/team/app/tags/list';
const index = (manifests: unknown[]) => JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests });
const unknown = answer(404, { 'content-type': 'application/json' }, '{"errors":[{"code":"NAME_UNKNOWN"}]}');

interface Setup {
  up: UpstreamRegistry;
  server: TestServer;
  app: TestRepository;
  later: (minutes?: number) => void;
}

async function start(t: ExecutionContext, dialect: Dialect = 'sqlite'): Promise<Setup> {
  const up = await startUpstreamRegistry(t);
  const settings = up.settings('up.test', { freshFor: '5m', negativeFor: '2m' });
  const server = await startTestServer(t, {
    upstreams: [settings],
    database: { url: await temporaryDatabase(t, dialect) },
  });
  server.clock.now = Date.now();
  const later = (minutes = 6) => void (server.clock.now! += minutes * minute);
  return { up, server, app: new TestRepository(server, 'up.test/team/app'), later };
}

const tags = (...names: string[]): Behaviour =>
  answer(200, { 'content-type': 'application/json' }, JSON.stringify({ name: 'team/app', tags: names }));

/** The status, the digest and the source of a tag, by HEAD and by GET. */
async function read(t: ExecutionContext, app: TestRepository, name: string): Promise<[number, string | null]> {
  const head = await app.fetch(`manifests/${name}`, { method: 'HEAD' });
  const get = await app.fetch(`manifests/${name}`);
  await get.arrayBuffer();
  t.is(head.status, get.status);
  for (const header of ['docker-content-digest', 'content-length', 'content-type'])
    if (get.status === 200) t.is(head.headers.get(header), get.headers.get(header));
  return [get.status, cacheOf(get)];
}

async function listed(app: TestRepository, query = ''): Promise<string[]> {
  return ((await (await app.fetch(`tags/list${query}`)).json()) as { tags: string[] }).tags;
}

for (const dialect of dialects) {
  test(`a tag that the upstream deletes keeps its last digest, and comes back (${dialect})`, async (t) => {
    const { up, server, app, later } = await start(t, dialect);
    const image = up.image('team/app', 'v1');
    up.image('team/app', 'v2');
    up.on(tagList, tags('v1', 'v2', 'v3'));
    await read(t, app, 'v1');
    for (const { digest } of [image.config, image.layer])
      t.is((await (await app.fetch(`blobs/${digest}`)).arrayBuffer()).byteLength > 0, true);

    for (const each of ['v1', 'v3', image.manifest.digest]) up.on(tag(each), unknown);
    for (const { digest } of [image.config, image.layer]) up.on(`/v2/team/app/blobs/${digest}`, unknown);
    up.on(tagList, tags('v2'));
    later();
    t.deepEqual(await read(t, app, 'v1'), [200, withdrawn]);
    t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), image.manifest.digest);
    const asked = up.asked.length;
    t.deepEqual(await read(t, app, 'v1'), [200, withdrawn], 'it is not asked for again at once');
    t.is(up.asked.length, asked);
    t.is((await app.fetch(`manifests/${image.manifest.digest}`)).status, 200);
    for (const { digest } of [image.config, image.layer]) t.is((await app.fetch(`blobs/${digest}`)).status, 200);
    t.deepEqual(await listed(app), ['v1', 'v2']);
    t.deepEqual(await listed(app, '?n=1'), ['v1']);
    t.deepEqual(await listed(app, '?n=1&last=v1'), ['v2']);
    t.deepEqual(await errorOf(await app.fetch('manifests/v3')), [404, 'MANIFEST_UNKNOWN'], 'it was never stored');
    t.deepEqual([await missingIn(server), await toldOf(server)], [['v1'], []]);

    later();
    t.deepEqual(await read(t, app, 'v1'), [200, withdrawn]);
    t.deepEqual(await missingIn(server), ['v1 marked']);
    const told = 'container up.test/team/app v1 up.test';
    t.deepEqual(await toldOf(server), [`upstream.withdrawn ${told}`]);
    later();
    await read(t, app, 'v1');
    t.is((await toldOf(server)).length, 1, 'told once');

    const { digest } = up.image('team/app', 'v1').manifest;
    later();
    t.is((await app.fetch('manifests/v1')).headers.get('docker-content-digest'), digest);
    t.deepEqual(await missingIn(server), []);
    t.deepEqual(await toldOf(server), [`upstream.withdrawn ${told}`, `upstream.restored ${told}`]);
  });

  test(`a repository that the upstream deletes stays with its stored tags (${dialect})`, async (t) => {
    const { up, server, app, later } = await start(t, dialect);
    const image = up.image('team/app', 'v1');
    up.image('team/app', 'v2');
    const subject = { mediaType: ociManifest, digest: image.manifest.digest, size: image.manifest.size };
    const signature = { schemaVersion: 2, mediaType: ociManifest, config: image.config, layers: [], subject };
    const signed = up.manifest('team/app', signature);
    const referrers = `/v2/team/app/referrers/${subject.digest}`;
    up.on(referrers, answer(200, { 'content-type': ociIndex }, index([signed])));
    const refer = async () => {
      const response = await app.fetch(`referrers/${subject.digest}`);
      const { manifests } = (await response.json()) as { manifests: { digest: string }[] };
      return [manifests.map(({ digest }) => digest), cacheOf(response)];
    };
    up.on(tagList, tags('v1', 'v2'));
    for (const each of ['v1', 'v2', signed.digest]) await read(t, app, each);
    t.deepEqual(await listed(app), ['v1', 'v2']);
    await refer();
    for (const each of [tag('v1'), tag('v2'), tag(signed.digest), tagList, referrers]) up.on(each, unknown);
    later();
    for (let time = 0; time < 2; time += 1) {
      t.deepEqual(await listed(app), ['v1', 'v2']);
      t.deepEqual(await refer(), [[signed.digest], withdrawn]);
      t.deepEqual(await read(t, app, 'v1'), [200, withdrawn]);
      t.is((await app.fetch(`manifests/${signed.digest}`)).status, 200);
    }
    // Most registries answer so for every digest.
    up.on(referrers, answer(200, { 'content-type': ociIndex }, index([])));
    later();
    t.deepEqual((await refer())[0], [signed.digest]);
    const other = new TestRepository(server, 'up.test/team/other');
    up.on('/v2/team/other/tags/list', unknown);
    t.deepEqual(await errorOf(await other.fetch('tags/list')), [404, 'NAME_UNKNOWN'], 'nothing of it is stored');
    t.deepEqual(await errorOf(await app.fetch(`manifests/${digestOf('x')}`)), [404, 'MANIFEST_UNKNOWN']);
  });

  test(`what a user drops is gone, and its mark with it (${dialect})`, async (t) => {
    const { up, server, app, later } = await start(t, dialect);
    const image = up.image('team/app', 'v1');
    await read(t, app, 'v1');
    up.on(tag('v1'), unknown);
    up.on(tagList, unknown);
    later();
    await read(t, app, 'v1');
    t.deepEqual(await missingIn(server), ['v1']);
    t.is((await server.fetch('/v1/containers/up.test/team/app/v1', { method: 'DELETE' })).status, 204);
    t.deepEqual(await missingIn(server), []);
    t.deepEqual(await errorOf(await app.fetch('manifests/v1')), [404, 'MANIFEST_UNKNOWN']);
    t.deepEqual(await errorOf(await app.fetch('tags/list')), [404, 'NAME_UNKNOWN']);
    t.is((await app.fetch(`manifests/${image.manifest.digest}`)).status, 200);
  });
  test(`a withdrawn tag whose bytes are damaged is gone, and its mark with it (${dialect})`, async (t) => {
    const { up, server, app, later } = await start(t, dialect);
    const { digest } = up.image('team/app', 'v1').manifest;
    up.image('team/app', 'v2');
    for (const each of ['v1', 'v2']) await read(t, app, each);
    for (const each of ['v1', 'v2']) up.on(tag(each), unknown);
    later();
    for (const each of ['v1', 'v2']) await read(t, app, each);
    t.deepEqual(await missingIn(server), ['v1', 'v2']);
    await damages.flipped(filesOf(server, digest).stored);
    t.like(await runJob(server, 'scrub'), { corrupt: 1, damaged_mirrored: 1 });
    t.deepEqual(await missingIn(server), ['v2']);
    up.on(tagList, tags('v2'));
    t.deepEqual(await listed(app), ['v2']);
  });
}

for (const [what, behaviour] of [
  ['401', answer(401, { 'www-authenticate': 'Basic realm="up"' })],
  ['401 and insufficient_scope', answer(401, { 'www-authenticate': 'Bearer error="insufficient_scope"' })],
  ['403', answer(403)],
  ['429', answer(429)],
  ['500', answer(500)],
  ['503', answer(503)],
  ['a cut', (request) => request.socket.destroy()],
] as [string, Behaviour][]) {
  test(`an upstream that answers with ${what} does not mark`, async (t) => {
    const { up, server, app, later } = await start(t);
    up.image('team/app', 'v1');
    await read(t, app, 'v1');
    up.on(tag('v1'), behaviour);
    up.on(tagList, behaviour);
    for (let time = 0; time < 3; time += 1) {
      later(30);
      t.deepEqual(await read(t, app, 'v1'), [200, 'entrepot; hit; detail=stale']);
      t.deepEqual(await listed(app), ['v1']);
    }
    t.deepEqual([await missingIn(server), await toldOf(server)], [[], []]);
  });
}

test('what a user drops by its digest is gone under all its tags, however many they are', async (t) => {
  const { up, server, app } = await start(t);
  const { manifest } = up.image('team/app', 'v0');
  const names = Array.from({ length: 101 }, (_, number) => `v${number}`);
  for (const name of names) {
    up.manifest('team/app', manifest.bytes, name);
    t.is((await app.fetch(`manifests/${name}`, { method: 'HEAD' })).status, 200);
  }
  const dropped = await server.fetch(`/v1/containers/up.test/team/app/manifests/${manifest.digest}`, {
    method: 'DELETE',
  });
  t.is(dropped.status, 204);
  await up.stop();
  for (const name of [...names, manifest.digest]) t.is((await app.fetch(`manifests/${name}`)).status, 502, name);
});

test('an upstream that answers 404 to everything, also to /v2/, does not work: nothing is marked', async (t) => {
  const { up, server, app, later } = await start(t);
  up.image('team/app', 'v1');
  await read(t, app, 'v1');
  for (const each of [tag('v1'), tagList, '/v2/']) up.on(each, answer(404));
  for (let time = 0; time < 3; time += 1) {
    later(30);
    t.is((await read(t, app, 'v1'))[0], 200);
  }
  t.deepEqual([await missingIn(server), await toldOf(server)], [[], []]);
});

test('a list of tags that lacks stored tags does not mark alone, and an empty list neither', async (t) => {
  const { up, server, app, later } = await start(t);
  up.image('team/app', 'v1');
  up.image('team/app', 'v2');
  for (const each of ['v1', 'v2']) await read(t, app, each);
  for (const names of [[], [], ['v2'], ['v2'], ['v2']]) {
    up.on(tagList, tags(...names));
    later();
    t.deepEqual(await listed(app), ['v1', 'v2']);
  }
  t.deepEqual([await missingIn(server), await toldOf(server)], [['v1'], []]);
  t.deepEqual(await read(t, app, 'v1'), [200, 'entrepot; hit']);
  t.deepEqual(await missingIn(server), [], 'the upstream has it');
});

test('a withdrawn tag is served by a server that is offline', async (t) => {
  const up = await startUpstreamRegistry(t);
  const database = { url: await temporaryDatabase(t, 'sqlite') };
  const first = await startTestServer(t, { upstreams: [up.settings('up.test')], database });
  first.clock.now = Date.now();
  up.image('team/app', 'v1');
  await read(t, new TestRepository(first, 'up.test/team/app'), 'v1');
  up.on(tag('v1'), unknown);
  first.clock.now += 30 * minute;
  await read(t, new TestRepository(first, 'up.test/team/app'), 'v1');
  await first.close();
  const settings = { upstreams: [up.settings('up.test')], database, data: first.data, offline: true };
  const app = new TestRepository(await startTestServer(t, settings), 'up.test/team/app');
  t.is((await read(t, app, 'v1'))[0], 200);
  t.deepEqual(await listed(app), ['v1']);
});
