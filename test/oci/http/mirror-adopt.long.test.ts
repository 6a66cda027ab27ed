import test from 'ava';
import { errorOf, ociIndex, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// mirror-adopt.test.ts has the rest.

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
