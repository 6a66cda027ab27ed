import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { putPolicy } from '../../support/policy.ts';
import { errorOf, ociIndex, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

const index = (manifest: object) => ({
  schemaVersion: 2,
  mediaType: ociIndex,
  manifests: [{ ...manifest, bytes: undefined }],
});

const digestAt = (response: Response) => response.headers.get('docker-content-digest');

for (const dialect of dialects) {
  test(`${dialect}: a hosted name is never sent upstream, for no document and in no spelling, with or without tags`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const theirs = upstream.image('library/app', 'theirs');
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [upstream.settings('docker.io', { default: true })],
    });
    const app = new TestRepository(server, 'app');
    const mine = await app.image('mine');
    const names = ['app', 'library/app', 'docker.io/app', 'docker.io/library/app', 'index.docker.io/library/app'];
    const spellings = [...names.map((name) => [name, '']), ['library/app', '?ns=docker.io'], ['app', '?ns=docker.io']];
    for (const [name, ns] of spellings) {
      const read = (path: string) => server.fetch(`/v2/${name}/${path}${ns}`);
      t.is(digestAt(await read('manifests/mine')), mine.digest, name);
      for (const path of ['manifests/theirs', `manifests/${theirs.manifest.digest}`, `blobs/${theirs.layer.digest}`]) {
        t.is((await read(path)).status, 404, `${name}/${path}`);
        t.is((await server.fetch(`/v2/${name}/${path}${ns}`, { method: 'HEAD' })).status, 404);
      }
      t.deepEqual(((await (await read('tags/list')).json()) as { tags: string[] }).tags, ['mine']);
      const referrers = await read(`referrers/${theirs.manifest.digest}`);
      t.deepEqual(((await referrers.json()) as { manifests: unknown[] }).manifests, []);
    }
    t.is((await app.fetch('manifests/mine', { method: 'DELETE' })).status, 202);
    t.is((await app.fetch(`manifests/${mine.digest}`, { method: 'DELETE' })).status, 202);
    for (const [name, ns] of spellings) {
      t.is((await server.fetch(`/v2/${name}/manifests/theirs${ns}`)).status, 404, name);
      t.deepEqual(await (await server.fetch(`/v2/${name}/tags/list${ns}`)).json(), { name, tags: [] });
    }
    t.deepEqual(upstream.asked, []);
  });

  test(`${dialect}: a push to a mirrored name takes it over, warns, and may refer to mirrored content`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const theirs = upstream.image('team/app', 'v1');
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [upstream.settings('up.test', { default: true })],
    });
    const app = new TestRepository(server, 'team/app');
    t.is(digestAt(await app.fetch('manifests/v1')), theirs.manifest.digest);
    // A client that finds the base's layer by HEAD does not send it; content that was requested only by HEAD is fetched.
    t.is((await app.fetch(`blobs/${theirs.layer.digest}`, { method: 'HEAD' })).status, 200);
    const manifest = await app.manifest();
    const layers = [theirs.layer, ...(manifest['layers'] as object[])].map((each) => ({ ...each, bytes: undefined }));
    const put = await app.put('v1', { ...manifest, layers });
    t.is(put.status, 201, await put.text());
    t.is(
      put.headers.get('warning'),
      '299 - "team/app was served from up.test until now; from now on only images pushed here are served."',
    );
    const said = server.lines.filter((line) => line.includes('a hosted image now replaces a mirrored one'));
    t.is(said.length, 1);
    t.like(JSON.parse(said[0]!), { name: 'team/app', upstream: 'up.test', level: 40 });

    const before = upstream.asked.length;
    for (const name of ['team/app', 'up.test/team/app']) {
      const now = await server.fetch(`/v2/${name}/manifests/v1`);
      t.is(digestAt(now), digestAt(put));
      t.is(now.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
      t.is((await server.fetch(`/v2/${name}/manifests/${theirs.manifest.digest}`)).status, 404);
    }
    t.is((await app.fetch(`blobs/${theirs.layer.digest}`)).status, 200, 'it is hosted now');
    t.is((await app.fetch(`blobs/${theirs.config.digest}`)).status, 404);
    t.is((await app.put('v2', { ...manifest, layers })).headers.get('warning'), null, 'said once');
    t.is(upstream.asked.length, before);
  });
}

test('an index pushed to a mirrored name takes over the mirrored images', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const theirs = upstream.image('team/app', 'v1');
  const unrelated = upstream.image('team/other', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const app = new TestRepository(server, 'team/app');
  const pull = async (name: string, { manifest, config, layer }: typeof theirs) => {
    for (const path of [`manifests/${manifest.digest}`, `blobs/${config.digest}`, `blobs/${layer.digest}`]) {
      await (await server.fetch(`/v2/${name}/${path}`)).arrayBuffer();
    }
  };
  await pull('team/app', theirs);
  await pull('team/other', unrelated);
  t.is((await app.put('sparse', index(unrelated.manifest))).status, 201);
  t.is((await app.fetch(`manifests/${unrelated.manifest.digest}`)).status, 404, 'of another name');
  t.is((await app.put('all', index(theirs.manifest))).status, 201);
  upstream.unplug();
  for (const path of [`manifests/${theirs.manifest.digest}`, `blobs/${theirs.layer.digest}`]) {
    t.is((await app.fetch(path)).headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  }
});

test('a first push sends no request to an upstream, and needs none', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('team/app', 'v1');
  for (const settings of [{}, { offline: true }]) {
    const server = await startTestServer(t, {
      upstreams: [upstream.settings('up.test', { default: true })],
      ...settings,
    });
    const app = new TestRepository(server, 'team/app');
    const asks = async (path: string) => (await app.fetch(path, { method: 'HEAD' })).status;
    const layer = await (async () => {
      t.is(await asks(`blobs/sha256:${'a'.repeat(64)}`), 404);
      return app.blob('layer');
    })();
    t.is(await asks(`blobs/${layer.digest}`), 200, 'right after its upload');
    t.is(await asks('manifests/v1'), 404);
    const config = await app.blob('{}');
    const { status } = await app.put('v1', { schemaVersion: 2, config, layers: [layer] });
    t.is(status, 201);
    t.is(await asks('manifests/v1'), 200);
  }
  t.deepEqual(upstream.asked, []);
});

test('until its first manifest is pushed, a name is still served from upstream', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const theirs = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const app = new TestRepository(server, 'team/app');
  const mine = await app.blob('mine');
  t.is(digestAt(await app.fetch('manifests/v1')), theirs.manifest.digest);
  t.is(
    digestAt(await app.fetch('manifests/v1', { method: 'HEAD' })),
    theirs.manifest.digest,
    'now that it is mirrored',
  );
  t.is((await app.fetch(`blobs/${theirs.layer.digest}`)).headers.get('cache-status'), 'entrepot; fwd=miss');
  t.is((await app.fetch(`blobs/${mine.digest}`)).headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  // An unfinished push does not keep the name for ever.
  await new TestRepository(server, 'team/late').blob('mine');
  const late = upstream.image('team/late', 'v1');
  const head = () => server.fetch('/v2/team/late/manifests/v1', { method: 'HEAD' });
  t.is((await head()).status, 404);
  server.clock.now = Date.now() + 25 * 3_600_000;
  t.is(digestAt(await head()), late.manifest.digest);
});

test('reserved and excluded names are never sent to an upstream', async (t) => {
  const [first, second] = [await startUpstreamRegistry(t), await startUpstreamRegistry(t)];
  for (const name of ['team/app', 'library/alpine', 'library/secret', 'open/app', 'open/closed']) {
    first.image(name, 'v1');
    second.image(name, 'v1');
  }
  const server = await startTestServer(t, {
    upstreams: [
      first.settings('docker.io', { default: true, exclude: ['secret'] }),
      second.settings('second.test', { include: ['open/*'], exclude: ['open/closed'] }),
    ],
    reserved: { containers: ['TEAM/*', 'docker.io/alpine'] },
  });
  for (const name of [
    'team/app',
    'team/app?ns=second.test',
    'second.test/team/app',
    'docker.io/team/app',
    'alpine',
    'library/alpine',
    'library/alpine?ns=docker.io',
    'docker.io/library/alpine',
    'secret',
    'docker.io/library/secret',
    'second.test/library/alpine',
    'library/secret?ns=second.test',
    'second.test/open/closed',
  ]) {
    const [path, query = ''] = name.split('?');
    for (const rest of ['manifests/v1', 'tags/list', `blobs/sha256:${'0'.repeat(64)}`]) {
      t.is((await server.fetch(`/v2/${path}/${rest}?${query}`)).status, 404, name);
    }
  }
  t.deepEqual([first.asked, second.asked], [[], []]);
  t.is((await server.fetch('/v2/second.test/open/app/manifests/v1')).status, 200);
  const reserved = new TestRepository(server, 'team/app');
  const { digest } = await reserved.image('v1');
  t.is(digestAt(await reserved.fetch('manifests/v1')), digest, 'a reserved name can be hosted');
});

test('a push with a namespace is found by pulls with the same namespace', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const plain = new TestRepository(server, 'team/app');
  const bytes = JSON.stringify(await new TestRepository(server, 'up.test/team/app').manifest());
  t.is((await plain.put('v1?ns=up.test', bytes)).status, 201);
  for (const path of ['/v2/team/app/manifests/v1?ns=up.test', '/v2/up.test/team/app/manifests/v1']) {
    t.is((await server.fetch(path)).status, 200);
  }
  t.is((await server.fetch('/v2/team/app/manifests/v1')).status, 404);
  t.deepEqual(await errorOf(await plain.put('v1?ns=unknown.test', bytes)), [404, 'NAME_UNKNOWN']);
  t.is((await plain.fetch('manifests/v1?ns=up.test', { method: 'DELETE' })).status, 202);
  t.deepEqual(upstream.asked, []);
});

test('of two hosted names of one upstream repository, the claimed one is served, and no upstream is asked', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('library/app', 'v1');
  const before = await startTestServer(t);
  await new TestRepository(before, 'app').blob('a push that never ended');
  const mine = await new TestRepository(before, 'library/app').image('v1');
  await before.close();
  // Only now the two names mean one repository.
  const upstreams = [upstream.settings('docker.io', { default: true })];
  const server = await startTestServer(t, { data: before.data, upstreams });
  for (const name of ['app', 'library/app', 'docker.io/library/app']) {
    const app = new TestRepository(server, name);
    t.is(digestAt(await app.fetch('manifests/v1')), mine.digest, name);
    await app.image(`by-${name.split('/')[0]}`);
  }
  const { tags } = (await (await server.fetch('/v2/library/app/tags/list')).json()) as { tags: string[] };
  t.deepEqual(tags, ['by-app', 'by-docker.io', 'by-library', 'v1']);
  t.deepEqual(upstream.asked, []);
});

test('a push takes over nothing of an image that a policy denies', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const [denied, allowed] = [upstream.image('team/app', 'v1'), upstream.image('team/app', 'v2')];
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const app = new TestRepository(server, 'team/app');
  for (const { manifest, config, layer } of [denied, allowed]) {
    for (const path of [`manifests/${manifest.digest}`, `blobs/${config.digest}`, `blobs/${layer.digest}`])
      t.is((await app.fetch(path)).status, 200);
  }
  const rules = [{ name: 'bad', digests: [denied.manifest.digest], verdict: 'deny' }];
  t.is((await putPolicy(server, { rules })).status, 200);
  const own = await app.manifest();
  const withLayer = ({ layer }: typeof denied) => ({ ...own, layers: [{ ...layer, bytes: undefined }] });
  const isRefused = async (response: Response) => t.deepEqual(await errorOf(response), [403, 'DENIED']);
  await isRefused(await app.put('mine', withLayer(denied)));
  await isRefused(await app.put('same', denied.manifest.bytes));
  await isRefused(await app.put('all', index(denied.manifest)));
  for (const path of ['manifests/v1', `blobs/${denied.config.digest}`, `blobs/${denied.layer.digest}`])
    t.is((await app.fetch(path)).status, 403, path);
  t.is(digestAt(await app.fetch('manifests/v2')), allowed.manifest.digest, 'the name is not claimed');
  t.is((await app.put('mine', withLayer(allowed))).status, 201);
  const hosted = await app.fetch(`blobs/${allowed.layer.digest}`);
  t.is(hosted.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  t.is((await app.fetch(`blobs/${denied.layer.digest}`)).status, 404);
});
