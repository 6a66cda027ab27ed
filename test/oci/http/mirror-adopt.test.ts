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

test('layers of which no image that the account pulled tells are sent to no upstream', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const theirs = upstream.image('team/known', 'v1');
  const { layer } = upstream.image('team/app', 'v1');
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

  // An image that only another account has pulled.
  const ours = new TestRepository(server, 'team/app');
  const others = new TestRepository(server, 'team/app', await tokenOf(server, ['read', 'write'], 'other'));
  t.is((await ours.fetch('manifests/v1')).status, 200);
  const image = async (repository: TestRepository) => ({
    schemaVersion: 2,
    mediaType: ociManifest,
    config: await repository.blob('{}'),
    layers: [{ ...layer, bytes: undefined }],
  });
  const blobsAsked = () => upstream.requests().filter((each) => each.includes('/team/app/blobs/')).length;
  t.deepEqual(await errorOf(await others.put('v2', await image(others))), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.is(blobsAsked(), 0);

  t.is((await others.fetch('manifests/v1')).status, 200);
  t.is((await others.put('v2', await image(others))).status, 201);
  t.is(blobsAsked(), 1);
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
