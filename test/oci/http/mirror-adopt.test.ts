import test from 'ava';
import { tokenOf } from '../../support/inside.ts';
import { putPolicy } from '../../support/policy.ts';
import { digestOf, errorOf, ociIndex, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { TestDisk } from '../../support/test-disk.ts';
import { answer, serve } from '../../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';
import { within } from '../../support/until.ts';

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

test('a layer that the mirror has of an image that is old enough for a policy is taken over', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { layer } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const puller = new TestRepository(server, 'team/app');
  for (const path of ['manifests/v1', `blobs/${layer.digest}`]) t.is((await puller.fetch(path)).status, 200);
  t.is((await putPolicy(server, { minimumAge: { images: '2d' } })).status, 200);
  server.clock.now = Date.now() + 3 * 86_400_000;

  // An account that has pulled nothing: a layer that is not stored would not be fetched for it.
  const others = new TestRepository(server, 'team/app', await tokenOf(server, ['read', 'write'], 'other'));
  t.is((await others.fetch(`blobs/${layer.digest}`, { method: 'HEAD' })).status, 200);
  const config = await others.blob('{}');
  const layers = [{ ...layer, bytes: undefined }];
  const pushed = await others.put('v2', { schemaVersion: 2, mediaType: ociManifest, config, layers });
  t.is(pushed.status, 201, await pushed.text());
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

test('a push that needs a layer of the upstream ends also if the disk has no room for it, or loses it meanwhile', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const size = 24 * 2 ** 20;
  const layers = [1, 2].map((fill) => upstream.blob('team/app', Buffer.alloc(size, fill)));
  const config = upstream.blob('team/app', '{}');
  upstream.manifest('team/app', { schemaVersion: 2, mediaType: ociManifest, config, layers }, 'v1');
  const disk = new TestDisk();
  const server = await startTestServer(
    t,
    { upstreams: [upstream.settings('up.test', { default: true })], storage: { reserve: '1MiB' } },
    { disk },
  );
  const app = new TestRepository(server, 'team/app');
  t.is((await app.fetch('manifests/v1')).status, 200);
  const own = await app.blob('{"own":true}');
  const push = async (layer: object) =>
    errorOf(await within(app.put('v2', { schemaVersion: 2, mediaType: ociManifest, config: own, layers: [layer] })));

  disk.reported = 2 ** 20 + size / 2;
  t.deepEqual(await push(layers[0]!), [507, 'UNAVAILABLE'], 'it is known from the beginning');
  disk.reported = 2 ** 40;
  disk.left = size / 2;
  t.deepEqual(await push(layers[1]!), [507, 'UNAVAILABLE'], 'a write fails in the middle');
  t.is((await app.fetch('manifests/v1')).headers.get('cache-status'), 'entrepot; hit', 'the name is not claimed');

  disk.left = Infinity;
  const image = { schemaVersion: 2, mediaType: ociManifest, config: own, layers };
  t.is((await within(app.put('v2', image))).status, 201, 'when there is room again');
  t.is((await app.fetch('manifests/v2')).headers.get('cache-status'), 'entrepot; hit; detail=hosted');
});
