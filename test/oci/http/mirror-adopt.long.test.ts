import test from 'ava';
import { tokenOf } from '../../support/inside.ts';
import { digestOf, errorOf, ociIndex, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { answer, serve } from '../../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// Content that a push may take over from the mirror.

const unknownLayers = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    mediaType: 'application/vnd.oci.image.layer.v1.tar',
    digest: digestOf(`unknown ${index}`),
    size: 10,
  }));

test('layers of which no pulled image tells are sent to no upstream', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const theirs = upstream.image('team/known', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const secret = new TestRepository(server, 'acme/secret-project');
  const manifest = await secret.manifest();
  const pushed = await secret.put('v1', { ...manifest, layers: unknownLayers(2000) });
  t.deepEqual(await errorOf(pushed), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.deepEqual(upstream.asked, []);

  // A name of which an image was pulled: its own layers only.
  const known = new TestRepository(server, 'team/known');
  t.is((await known.fetch('manifests/v1')).status, 200);
  const asked = upstream.asked.length;
  const own = { ...manifest, config: await known.blob('{}'), layers: [theirs.layer, ...unknownLayers(500)] };
  const layers = own.layers.map((each) => ({ ...each, bytes: undefined }));
  t.deepEqual(await errorOf(await known.put('v2', { ...own, layers })), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.deepEqual(
    upstream.requests().slice(asked),
    [`GET /v2/team/known/blobs/${theirs.layer.digest}`],
    'and not the unknown ones',
  );
});

test('layers of an image that only another account has pulled are sent to no upstream', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { layer } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const ours = new TestRepository(server, 'team/app');
  const theirs = new TestRepository(server, 'team/app', await tokenOf(server, ['read', 'write'], 'other'));
  t.is((await ours.fetch('manifests/v1')).status, 200);
  const image = async (repository: TestRepository) => ({
    schemaVersion: 2,
    mediaType: ociManifest,
    config: await repository.blob('{}'),
    layers: [{ ...layer, bytes: undefined }],
  });
  const blobsAsked = () => upstream.requests().filter((each) => each.includes('/blobs/')).length;
  t.deepEqual(await errorOf(await theirs.put('v2', await image(theirs))), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.is(blobsAsked(), 0);

  t.is((await theirs.fetch('manifests/v1')).status, 200);
  t.is((await theirs.put('v2', await image(theirs))).status, 201);
  t.is(blobsAsked(), 1);
});

test('one push fetches at most 200 layers', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const image = (tag: string) => {
    const config = upstream.blob('team/app', `{"tag":"${tag}"}`);
    const layers = Array.from({ length: 150 }, (_, index) => upstream.blob('team/app', `${tag} ${index}`));
    return {
      ...upstream.manifest('team/app', { schemaVersion: 2, mediaType: ociManifest, config, layers }, tag),
      layers,
    };
  };
  const images = [image('one'), image('two'), image('three')];
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const app = new TestRepository(server, 'team/app');
  for (const tag of ['one', 'two', 'three']) t.is((await app.fetch(`manifests/${tag}`)).status, 200);
  const blobsAsked = () => upstream.requests().filter((each) => each.includes('/blobs/')).length;

  const layers = images.flatMap((each) => each.layers);
  const large = { schemaVersion: 2, mediaType: ociManifest, config: await app.blob('{}'), layers };
  t.deepEqual(await errorOf(await app.put('large', large)), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.is(blobsAsked(), 200);
  t.deepEqual(await errorOf(await app.put('large', large)), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.is(blobsAsked(), 400, 'what has come is not fetched again');
  t.is((await app.put('large', large)).status, 201);
  t.is(blobsAsked(), 450);
});

test('the images of an index share the limit of 200 layers', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const children = ['one', 'two'].map((tag) => {
    const config = upstream.blob('team/app', `{"tag":"${tag}"}`);
    const layers = Array.from({ length: 150 }, (_, index) => upstream.blob('team/app', `${tag} ${index}`));
    return upstream.manifest('team/app', { schemaVersion: 2, mediaType: ociManifest, config, layers }, tag);
  });
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const app = new TestRepository(server, 'team/app');
  for (const tag of ['one', 'two']) t.is((await app.fetch(`manifests/${tag}`)).status, 200);
  const pushed = await app.put('all', { schemaVersion: 2, mediaType: ociIndex, manifests: children });
  t.deepEqual(await errorOf(pushed), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.is(upstream.requests().filter((each) => each.includes('/blobs/')).length, 200);
});

test('a push that fails half-way does not claim the name', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const [one, two] = [upstream.image('team/app', 'one'), upstream.image('team/app', 'two')];
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const app = new TestRepository(server, 'team/app');
  for (const tag of ['one', 'two']) t.is((await app.fetch(`manifests/${tag}`)).status, 200);
  upstream.on(`/v2/team/app/blobs/${two.layer.digest}`, answer(404));
  const manifests = [one, two].map(({ manifest }) => ({ ...manifest, bytes: undefined }));
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests };
  t.deepEqual(await errorOf(await app.put('all', index)), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.is((await app.fetch('manifests/one')).headers.get('cache-status'), 'entrepot; hit');
  upstream.on(`/v2/team/app/blobs/${two.layer.digest}`, serve(two.layer.bytes));
  server.clock.now = Date.now() + 3_600_000;
  t.is((await app.put('all', index)).status, 201, 'with the layers of several images');
  for (const { manifest, layer } of [one, two]) {
    t.is((await app.fetch(`manifests/${manifest.digest}`)).headers.get('cache-status'), 'entrepot; hit; detail=hosted');
    t.is((await app.fetch(`blobs/${layer.digest}`)).status, 200);
  }
});
