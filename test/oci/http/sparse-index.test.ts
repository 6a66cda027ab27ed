import { randomBytes } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { digestOf, errorOf, ociIndex, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { rowsOf, runJob, tokenOf } from '../../support/inside.ts';

const day = 86_400_000;

/** The size of a tag in the list of images. */
async function sizeOf(server: TestServer, tag: string): Promise<number | undefined> {
  const { items } = (await (await server.fetch('/v1/containers')).json()) as {
    items: { tags: { name: string; size_bytes: number }[] }[];
  };
  return items[0]!.tags.find(({ name }) => name === tag)?.size_bytes;
}

for (const dialect of dialects) {
  test(`${dialect}: an index may lack some of its images, and those that come later are found`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      retention: { containers: { untaggedAfter: '0s' } },
      gc: { grace: '1h' },
    });
    const app = new TestRepository(server, 'team/app');
    const first = await app.image('first');
    const manifest = await app.manifest();
    const later = JSON.stringify(manifest);
    const absent = { mediaType: first.mediaType, digest: digestOf(later), size: later.length };
    const child = { ...first, bytes: undefined };
    const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: [child, absent] });
    t.is((await app.put('all', index, ociIndex)).status, 201);
    const pulled = await app.fetch('manifests/all');
    t.is(await pulled.text(), index);
    t.is((await app.fetch(`manifests/${first.digest}`)).status, 200);
    t.deepEqual(await errorOf(await app.fetch(`manifests/${absent.digest}`)), [404, 'MANIFEST_UNKNOWN']);
    const [small, one] = [await sizeOf(server, 'all'), await sizeOf(server, 'first')];
    t.is(small, index.length + one!);

    t.is((await app.fetch('manifests/first', { method: 'DELETE' })).status, 202);
    t.is((await app.put(absent.digest, later)).status, 201);
    t.is(await (await app.fetch(`manifests/${absent.digest}`)).text(), later);
    const { config, layers } = manifest as unknown as { config: { size: number }; layers: { size: number }[] };
    const large = small! + later.length + config.size + layers[0]!.size;
    t.is(await sizeOf(server, 'all'), large);
    t.is((await app.put(absent.digest, later)).status, 201);
    t.is(await sizeOf(server, 'all'), large, 'the same push again changes nothing');

    server.clock.now = Date.now() + 2 * day;
    for (const job of ['retention', 'gc']) await runJob(server, job);
    for (const digest of [first.digest, absent.digest]) t.is((await app.fetch(`manifests/${digest}`)).status, 200);

    t.is((await app.fetch(`manifests/${absent.digest}`, { method: 'DELETE' })).status, 202);
    t.is(await sizeOf(server, 'all'), small);
    t.is(await (await app.fetch('manifests/all')).text(), index, 'also if an image is deleted');
    t.is((await app.fetch('manifests/all', { method: 'DELETE' })).status, 202);
    server.clock.now += day;
    await runJob(server, 'retention');
    t.is((await app.fetch(`manifests/${first.digest}`)).status, 404);
  });
}

test('an index can be pushed alone; an image without its layers cannot', async (t) => {
  const app = new TestRepository(await startTestServer(t), 'team/app');
  const absent = Array.from({ length: 1200 }, () => ({
    mediaType: ociIndex,
    digest: digestOf(randomBytes(8)),
    size: 10,
  }));
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: absent };
  t.is((await app.put('alone', index)).status, 201);
  t.deepEqual(await (await app.fetch('manifests/alone')).json(), index);
  const manifest = await app.manifest();
  const refused = await app.put('image', { ...manifest, layers: [absent[0]] });
  t.deepEqual(await errorOf(refused), [400, 'MANIFEST_BLOB_UNKNOWN']);
  t.is((await app.fetch('manifests/image')).status, 404);
});

test('a manifest that names content of another account neither counts it nor keeps it', async (t) => {
  const server = await startTestServer(t, { gc: { grace: '1h' } });
  server.clock.now = Date.now();
  const theirs = new TestRepository(server, 'theirs');
  const { digest } = await theirs.blob(randomBytes(100_000));
  const token = await tokenOf(server, ['read', 'write'], 'other');
  const ours = new TestRepository(server, 'ours', token);
  const bytes = async () =>
    ((await (await server.fetch('/v1/account', { token })).json()) as { usage: { storage_bytes: number } }).usage
      .storage_bytes;
  const mediaType = 'application/vnd.docker.image.rootfs.foreign.diff.tar.gzip';
  const named = { mediaType, digest, size: 100_000 };
  const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: [named] });
  t.is((await ours.put('index', index, ociIndex)).status, 201);
  t.is(await bytes(), index.length);
  const config = await ours.blob('{}');
  const image = JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config, layers: [named] });
  t.is((await ours.put('image', image)).status, 201);
  t.is(await bytes(), index.length + image.length + '{}'.length);

  t.is((await theirs.fetch(`blobs/${digest}`, { method: 'DELETE' })).status, 202);
  server.clock.now += day;
  await runJob(server, 'gc');
  t.false(
    (await rowsOf<{ digest: string }>(server, 'SELECT digest FROM blobs')).some((each) => each.digest === digest),
  );
  t.is((await ours.fetch('manifests/index')).status, 200);
});
