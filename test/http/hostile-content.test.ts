import test from 'ava';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../support/feed.ts';
import { dockerList, dockerManifest, ociIndex, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

const manifestTypes = new Set([ociManifest, ociIndex, dockerManifest, dockerList]);

test('every answer forbids browsers to run content and to guess its type', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  await new TestFeed(server).publish({ id: 'Some.Package', version: '1.0.0' });
  const hosted = new TestRepository(server, 'hosted/app');
  const { digest } = await hosted.blob('<script>alert(1)</script>');
  await hosted.image('v1');
  for (const [path, status, init] of [
    ['/v2/', 200],
    ['/v2/hosted/app/manifests/v1', 200],
    [`/v2/hosted/app/blobs/${digest}`, 200],
    [`/v2/hosted/app/blobs/${digest}`, 206, { headers: { range: 'bytes=1-2' } }],
    [`/v2/hosted/app/blobs/${digest}`, 304, { headers: { 'if-none-match': `"${digest}"` } }],
    ['/v2/up.test/team/app/manifests/v1', 200],
    ['/v2/hosted/app/manifests/none', 404],
    ['/v2/hosted/app/blobs/uploads/', 202, { method: 'POST' }],
    ['/v2/hosted/app/manifests/v1', 202, { method: 'DELETE' }],
    ['/v2/', 401, { token: null }],
    ['/v3/index.json', 200],
    ['/v3/package/some.package/1.0.0/some.package.nuspec', 200],
    ['/v3/package/some.package/1.0.0/some.package.1.0.0.nupkg', 200, { method: 'HEAD' }],
    ['/v3/registration-gz-semver2/some.package/index.json', 200],
    ['/v3/search?q=some', 200],
    ['/v3/none', 404],
    ['/v3/push/some.package/1.0.0', 204, { method: 'DELETE' }],
    ['/v3/push', 405],
    ['/v1/packages', 200],
    ['/v1/none', 404],
    ['/v1/openapi.json', 200],
    ['/token', 200],
    ['/livez', 200],
    ['/metrics', 200],
    ['/', 404],
  ] as [string, number, object?][]) {
    const response = await server.fetch(path, init);
    t.is(response.status, status, path);
    t.is(response.headers.get('x-content-type-options'), 'nosniff', path);
    t.is(response.headers.get('content-security-policy'), "default-src 'none'; sandbox", path);
    await response.arrayBuffer();
  }
});

test('XML and text from a package have a type that no browser runs', async (t) => {
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Their.Package', versions: [{ version: '1.0.0' }] });
  feed.upstream.on(
    '/flat/their.package/1.0.0/their.package.nuspec',
    answer(
      200,
      { 'content-type': 'text/html' },
      '<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd"><metadata><id>Their.Package</id><version>1.0.0</version></metadata></package>',
    ),
  );
  feed.upstream.on(
    '/flat/their.package/1.0.0/readme',
    answer(200, { 'content-type': 'text/html' }, '# Read <b>me</b>'),
  );
  const server = await startMirrorOf(t, [feed.as('up.test')]);
  await new TestFeed(server).publish({ id: 'Our.Package', version: '1.0.0' });
  const typeOf = async (path: string) => {
    const response = await server.fetch(`/v3/package/${path}`);
    t.is(response.status, 200, path);
    await response.arrayBuffer();
    return response.headers.get('content-type');
  };
  t.is(await typeOf('our.package/1.0.0/our.package.nuspec'), 'text/plain');
  t.is(await typeOf('their.package/1.0.0/their.package.nuspec'), 'text/plain');
  t.is(await typeOf('their.package/1.0.0/their.package.nuspec'), 'text/plain', 'stored');
  t.is(await typeOf('their.package/1.0.0/readme'), 'text/markdown; charset=utf-8');
  t.is(await typeOf('their.package/1.0.0/their.package.1.0.0.nupkg'), 'application/octet-stream');
  t.is(await typeOf('their.package/1.0.0/their.package.nuspec'), 'text/plain', 'read from the stored package');
});

test('a manifest of an upstream is served with a known manifest type, or refused', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const { config, layer } = upstream.image('team/app', 'v1');
  const image = { schemaVersion: 2, config, layers: [{ ...layer, bytes: undefined }] };
  const docker = { ...image, config: { ...config, mediaType: 'application/vnd.docker.container.image.v1+json' } };
  const index = { schemaVersion: 2, manifests: [] };
  const read = async (tag: string) => {
    const types = [];
    for (const method of ['GET', 'HEAD', 'GET']) {
      const response = await server.fetch(`/v2/up.test/team/app/manifests/${tag}`, { method });
      await response.arrayBuffer();
      types.push(response.status === 200 ? response.headers.get('content-type') : response.status);
    }
    t.deepEqual(new Set(types).size, 1, tag);
    return types[0];
  };
  let number = 0;
  for (const said of [
    'text/html',
    'application/xhtml+xml',
    'image/svg+xml',
    'application/json',
    'TEXT/HTML; charset=x',
    'application/vnd.oci.image.config.v1+json',
    'application/vnd.docker.container.image.v1+json',
    'application/vnd.oci.empty.v1+json',
    '',
  ]) {
    for (const [document, expected] of [
      [image, ociManifest],
      [docker, dockerManifest],
      [index, ociIndex],
      [{ ...index, mediaType: dockerList }, dockerList],
      [{ ...image, mediaType: 'text/html' }, ociManifest],
      [{ ...image, mediaType: dockerManifest }, dockerManifest],
    ] as [object, string][]) {
      const tag = `t${(number += 1)}`;
      upstream.manifest('team/app', document, tag, { 'content-type': said });
      const type = await read(tag);
      t.is(type, expected, `${said} ${JSON.stringify(document).slice(0, 60)}`);
      t.true(manifestTypes.has(String(type)));
    }
  }
  upstream.manifest('team/app', { ...index }, 'upper', {
    'content-type': 'Application/Vnd.OCI.Image.Index.v1+JSON; a=b',
  });
  t.is(await read('upper'), ociIndex);
  for (const [tag, document] of [
    ['schema1', { schemaVersion: 1, name: 'team/app', tag: 'x', fsLayers: [] }],
    ['bare', { schemaVersion: 2 }],
    ['list', []],
  ] as const) {
    upstream.manifest('team/app', document, tag, { 'content-type': 'text/html' });
    t.is(await read(tag), 502, tag);
  }
});
