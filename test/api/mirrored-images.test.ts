import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { OpenDocument } from '../support/open-document.ts';
import { errorOf, ociIndex, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { flushUsage, flushUses, tokenOf } from '../support/inside.ts';

type Json = Record<string, unknown>;

async function list(
  server: TestServer,
  query = '',
  token?: string,
): Promise<{ items: Json[]; next_cursor: string | null }> {
  const response = await server.fetch(`/v1/containers${query}`, token === undefined ? {} : { token });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as { items: Json[]; next_cursor: string | null };
}

for (const dialect of dialects) {
  test(`${dialect}: mirrored images are listed together with hosted ones, page by page`, async (t) => {
    const upstreams = [await startUpstreamRegistry(t), await startUpstreamRegistry(t)];
    const [hub, other] = upstreams as [(typeof upstreams)[0], (typeof upstreams)[0]];
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      // By name, 'docker.io/…' is after 'docker.io.test/…'.
      upstreams: [hub.settings('docker.io', { default: true }), other.settings('docker.io.test')],
    });
    const document = await OpenDocument.of(server);
    const one = hub.image('library/alpine', '3');
    const two = hub.image('library/alpine');
    const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [one.manifest, two.manifest] };
    const multi = hub.manifest('library/alpine', index, 'multi');
    other.image('zz/app', 'v1');
    hub.image('aa/app', 'v1');
    hub.image('mine/app', 'v1');
    for (const path of [
      'alpine/manifests/multi',
      'alpine/manifests/3',
      `alpine/blobs/${one.layer.digest}`,
      'docker.io.test/zz/app/manifests/v1',
      'aa/app/manifests/v1',
      'mine/app/manifests/v1',
    ]) {
      await (await server.fetch(`/v2/${path}`)).arrayBuffer();
    }
    for (const name of ['alone', 'docker.io.own', 'mine/app', 'zz']) await new TestRepository(server, name).image('v1');

    const names = ['alone', 'docker.io.own', 'docker.io.test/zz/app', 'docker.io/aa/app', 'docker.io/library/alpine'];
    names.push('mine/app', 'zz');
    // What was counted would else be written between two lists.
    await flushUsage(server);
    await flushUses(server);
    const whole = await list(server);
    t.deepEqual(
      whole.items.map(({ name }) => name),
      names,
    );
    const walked: Json[] = [];
    for (let cursor: string | null = ''; cursor !== null;) {
      const page = await list(server, `?limit=2${cursor && `&cursor=${cursor}`}`);
      walked.push(...page.items);
      cursor = page.next_cursor;
    }
    t.deepEqual(walked, whole.items);
    const read = await document.read('GET /containers', await server.fetch('/v1/containers'));
    t.deepEqual(read['items'], whole.items);

    const alpine = whole.items.find(({ name }) => name === 'docker.io/library/alpine')!;
    const size = one.manifest.size + one.config.size + one.layer.size;
    t.like(alpine, {
      origin: 'mirrored',
      upstream: 'docker.io',
      tag_count: 2,
      size_bytes: multi.size + one.manifest.size + one.layer.size,
    });
    t.like((alpine['tags'] as Json[])[0], {
      name: '3',
      digest: one.manifest.digest,
      media_type: one.manifest.mediaType,
      size_bytes: size,
    });
    t.like((alpine['tags'] as Json[])[1], { name: 'multi', digest: multi.digest, media_type: ociIndex });
    t.regex((alpine['tags'] as Json[])[0]!['updated_at'] as string, /Z$/);
    t.is((await server.fetch('/v2/docker.io/library/alpine/manifests/3')).status, 200, 'by the listed name');
    t.like(
      whole.items.find(({ name }) => name === 'mine/app'),
      { origin: 'hosted', upstream: null },
    );

    const value = await tokenOf(server, ['read'], 'other');
    t.deepEqual(
      (await list(server, '', value)).items.map(({ name }) => name),
      [...names.slice(2, 5), 'docker.io/mine/app'],
      'another account hosts nothing, and may pull what is mirrored',
    );
  });

  test(`${dialect}: a deleted mirrored tag is requested from the upstream again`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const { manifest } = upstream.image('team/app', 'v1');
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [upstream.settings('up.test', { default: true })],
    });
    const pull = () => server.fetch('/v2/up.test/team/app/manifests/v1');
    const remove = (name: string, tag: string) => server.fetch(`/v1/containers/${name}/${tag}`, { method: 'DELETE' });
    await pull();
    t.is((await remove('up.test/team/app', 'v2')).status, 404);
    t.is((await remove('up.test%2Fteam%2Fapp', 'v1')).status, 204);
    t.is((await remove('up.test/team/app', 'v1')).status, 404);
    const { items } = await list(server);
    t.like(items[0], { name: 'up.test/team/app', tags: [], tag_count: 0 });
    const asked = upstream.asked.length;
    t.is((await server.fetch(`/v2/up.test/team/app/manifests/${manifest.digest}`)).status, 200);
    t.is(upstream.asked.length, asked, 'still stored under its digest');
    t.is((await pull()).headers.get('cache-status'), 'entrepot; fwd=miss; stored');
    t.is(upstream.asked.length, asked + 1);

    // A hosted image hides the mirrored image of the same name, only in its own account.
    const mine = new TestRepository(server, 'team/app');
    await mine.image('mine');
    t.deepEqual(
      (await list(server)).items.map(({ name }) => name),
      ['team/app'],
    );
    t.is((await remove('up.test/team/app', 'v1')).status, 404);
    t.deepEqual(await errorOf(await mine.fetch('manifests/v1')), [404, 'MANIFEST_UNKNOWN']);
  });
}

test('mirrored images are in the order of their names, whatever the order of the upstreams is', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('app', 'v1');
  upstream.image('app', 'v2');
  const server = await startTestServer(t, {
    upstreams: ['b.test', 'c.test', 'a.test'].map((name) => upstream.settings(name)),
  });
  for (const name of ['c', 'b', 'a']) await (await server.fetch(`/v2/${name}.test/app/manifests/v1`)).arrayBuffer();
  await (await server.fetch('/v2/b.test/app/manifests/v2')).arrayBuffer();
  const walked: unknown[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const page = await list(server, `?limit=1${cursor && `&cursor=${cursor}`}`);
    walked.push(...page.items.map(({ name, tag_count }) => [name, tag_count]));
    cursor = page.next_cursor;
  }
  t.deepEqual(walked, [
    ['a.test/app', 1],
    ['b.test/app', 2],
    ['c.test/app', 1],
  ]);
});
