import { randomBytes } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import {
  digestOf,
  dockerList,
  dockerManifest,
  errorOf,
  ociIndex,
  ociManifest,
  TestRepository,
  type Descriptor,
  type Manifest,
} from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { databaseOf, rowsOf } from '../../support/inside.ts';

const dockerConfig = 'application/vnd.docker.container.image.v1+json';
const dockerLayer = 'application/vnd.docker.image.rootfs.diff.tar.gzip';

for (const dialect of dialects) {
  test(`${dialect}: a manifest keeps its bytes and its type, under its tags and its digest`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'blobs/manifests/tags');
    const manifest = await repository.manifest();
    // Spaces and line ends that a serializer would not write.
    const text = JSON.stringify(manifest, null, '\t').replace('{', '{ \r\n');
    const digest = digestOf(text);
    const pushed = await repository.put('v1', text);
    t.is(pushed.status, 201);
    t.is(pushed.headers.get('location'), `/v2/blobs/manifests/tags/manifests/${digest}`);
    t.is(pushed.headers.get('docker-content-digest'), digest);
    for (const reference of ['v1', digest]) {
      for (const method of ['GET', 'HEAD']) {
        const response = await repository.fetch(`manifests/${reference}`, {
          method,
          headers: { accept: dockerManifest },
        });
        t.is(response.status, 200);
        t.is(response.headers.get('content-type'), ociManifest, 'never converted');
        t.is(response.headers.get('content-length'), String(text.length));
        t.is(response.headers.get('docker-content-digest'), digest);
        t.is(response.headers.get('etag'), `"${digest}"`);
        t.is(response.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
        t.is(response.headers.get('docker-distribution-api-version'), 'registry/2.0');
        t.is(await response.text(), method === 'HEAD' ? '' : text);
      }
    }
    const headers = { 'if-none-match': `"${digest}"` };
    t.is((await repository.fetch('manifests/v1', { headers })).status, 304);
    t.is((await repository.fetch('manifests/V1')).status, 404, 'tags are case-sensitive');
    const other = await repository.image('V1');
    t.is((await repository.fetch('manifests/V1')).headers.get('docker-content-digest'), other.digest);
    t.is((await repository.fetch('manifests/v1')).headers.get('docker-content-digest'), digest);
  });

  test(`${dialect}: a deletion removes a tag alone, a manifest with its tags, or a blob of one repository`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'team/app');
    const manifest = await repository.manifest();
    const bytes = JSON.stringify(manifest);
    const digest = digestOf(bytes);
    // Another repository with the same image and the same tags, which loses nothing, and another image in this one.
    const twin = new TestRepository(server, 'team/twin');
    for (const blob of [manifest['config'], ...(manifest['layers'] as Descriptor[])] as Descriptor[]) {
      const mount = await twin.fetch(`blobs/uploads/?mount=${blob.digest}&from=team/app`, { method: 'POST' });
      t.is(mount.status, 201);
    }
    for (const tag of ['one', 'two']) t.is((await twin.put(tag, bytes)).status, 201);
    const kept = await repository.image('kept');
    for (const tag of ['one', 'two']) t.is((await repository.put(tag, bytes)).status, 201);
    const stateOf = async (name: string) => {
      const [row] = await rowsOf<{ size_bytes: number }>(
        server,
        `SELECT tag_count, manifest_count, size_bytes FROM repositories WHERE name = '${name}'`,
      );
      return { ...row!, ...((await (await server.fetch(`/v2/${name}/tags/list`)).json()) as object) };
    };
    const before = { app: await stateOf('team/app'), twin: await stateOf('team/twin') };
    t.like(before.app, { tag_count: 3, manifest_count: 2, tags: ['kept', 'one', 'two'] });
    const remove = async (path: string) => (await repository.fetch(path, { method: 'DELETE' })).status;
    t.is(await remove('manifests/one'), 202);
    t.is(await remove('manifests/one'), 404);
    t.is((await repository.fetch(`manifests/${digest}`)).status, 200);
    t.deepEqual(await stateOf('team/app'), { ...before.app, tag_count: 2, tags: ['kept', 'two'] });
    t.is(await remove(`manifests/${digest}`), 202);
    const size = before.app.size_bytes - bytes.length;
    const left = { ...before.app, tag_count: 1, manifest_count: 1, size_bytes: size, tags: ['kept'] };
    t.deepEqual(await stateOf('team/app'), left);
    t.is((await repository.fetch('manifests/kept')).headers.get('docker-content-digest'), kept.digest);
    t.deepEqual(await errorOf(await repository.fetch('manifests/two')), [404, 'MANIFEST_UNKNOWN']);
    t.is(await remove(`manifests/${digest}`), 404);
    t.is(await remove(`manifests/${kept.digest}`), 202);
    t.deepEqual(await (await server.fetch('/v2/_catalog')).json(), { repositories: ['team/twin'] });
    t.deepEqual(await (await repository.fetch('tags/list')).json(), { name: 'team/app', tags: [] }, 'the name is kept');
    t.deepEqual(await stateOf('team/twin'), before.twin);
    t.is(await (await twin.fetch('manifests/two')).text(), bytes);
    const claim = await databaseOf(server).get('SELECT claimed_at FROM repositories WHERE name = ?', ['team/app']);
    t.is(typeof claim?.['claimed_at'], 'number');

    const { config } = JSON.parse(bytes) as { config: { digest: string } };
    const elsewhere = new TestRepository(server, 'elsewhere');
    await elsewhere.blob('{}');
    t.is(await remove(`blobs/${config.digest}`), 202);
    t.deepEqual(await errorOf(await repository.fetch(`blobs/${config.digest}`)), [404, 'BLOB_UNKNOWN']);
    t.is(await remove(`blobs/${config.digest}`), 404);
    t.is((await elsewhere.fetch(`blobs/${config.digest}`)).status, 200);
    t.deepEqual(await errorOf(await repository.put('one', bytes)), [400, 'MANIFEST_BLOB_UNKNOWN']);
  });

  test(`${dialect}: many parallel pushes of one tag leave one whole image`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'app');
    const manifests = await Promise.all(Array.from({ length: 8 }, () => repository.manifest()));
    const answers = await Promise.all(manifests.map((manifest) => repository.put('latest', manifest)));
    t.deepEqual(
      answers.map(({ status }) => status),
      Array.from({ length: 8 }, () => 201),
    );
    const response = await repository.fetch('manifests/latest');
    const text = await response.text();
    t.is(response.headers.get('docker-content-digest'), digestOf(text));
    t.true(manifests.some((manifest) => JSON.stringify(manifest) === text));
  });

  test(`${dialect}: after a push during the deletion of its blob, both manifest and blob exist, or neither`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'app');
    for (let round = 0; round < 10; round += 1) {
      const manifest = await repository.manifest({ annotations: { round: String(round) } });
      const [layer] = manifest['layers'] as [{ digest: string }];
      const [put, remove] = await Promise.all([
        repository.put(`r${round}`, manifest),
        repository.fetch(`blobs/${layer.digest}`, { method: 'DELETE' }),
      ]);
      t.is(remove.status, 202);
      if (put.status !== 201) t.deepEqual(await errorOf(put), [400, 'MANIFEST_BLOB_UNKNOWN']);
      t.is((await repository.fetch(`manifests/r${round}`)).status, put.status === 201 ? 200 : 404);
    }
  });
}

test('Docker’s schema 2 and its list, and an OCI index of manifests, indexes and blobs', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const config = await repository.blob('{"os":"linux"}', dockerConfig);
  const layer = await repository.blob(randomBytes(50), dockerLayer);
  const image: Manifest = { schemaVersion: 2, mediaType: dockerManifest, config, layers: [layer] };
  t.is((await repository.put('docker', image)).status, 201);
  const child = {
    mediaType: dockerManifest,
    digest: digestOf(JSON.stringify(image)),
    size: JSON.stringify(image).length,
  };
  const list: Manifest = { schemaVersion: 2, mediaType: dockerList, manifests: [child] };
  t.is((await repository.put('list', list)).status, 201);
  t.is((await repository.fetch('manifests/list')).headers.get('content-type'), dockerList);
  const nested = { mediaType: dockerList, digest: digestOf(JSON.stringify(list)), size: JSON.stringify(list).length };
  const index: Manifest = { schemaVersion: 2, mediaType: ociIndex, manifests: [child, nested, layer] };
  t.is((await repository.put('index', index)).status, 201);
  t.is((await repository.put('empty', { schemaVersion: 2, mediaType: ociIndex, manifests: [] })).status, 201);
});

test('a push by digest, with additional tags, also with sha512', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const text = JSON.stringify(await repository.manifest());
  for (const algorithm of ['sha256', 'sha512']) {
    const digest = digestOf(text, algorithm);
    const pushed = await repository.put(`${digest}?tag=${algorithm}-1&tag=${algorithm}-2`, text);
    t.is(pushed.status, 201);
    t.is(pushed.headers.get('oci-tag'), `${algorithm}-1, ${algorithm}-2`);
    t.is(pushed.headers.get('location'), `/v2/app/manifests/${digest}`);
    t.is(pushed.headers.get('docker-content-digest'), digest);
    t.is(pushed.headers.get('content-length'), '0');
    t.is(pushed.headers.get('warning'), null);
    const again = await repository.put(`${algorithm}-1`, text);
    t.deepEqual([again.status, again.headers.get('oci-tag')], [201, null]);
    const pulled = await repository.fetch(`manifests/${algorithm}-2`);
    t.is(pulled.headers.get('docker-content-digest'), digest);
    t.is(await pulled.text(), text);
  }
  const wrong = await repository.put(digestOf('other'), text);
  t.deepEqual(await errorOf(wrong), [400, 'DIGEST_INVALID']);
  t.deepEqual(await errorOf(await repository.put('sha256:abc', text)), [400, 'DIGEST_INVALID']);
  t.deepEqual(await errorOf(await repository.put('.bad', text)), [400, 'MANIFEST_INVALID']);
  t.deepEqual(await errorOf(await repository.put(`${digestOf(text)}?tag=ok&tag=-bad`, text)), [
    400,
    'MANIFEST_INVALID',
  ]);
  const most = Array.from({ length: 50 }, (_, index) => `tag=sha256-${index}`).join('&');
  const tooMany = await repository.put(`${digestOf(text)}?${most}&tag=one-more`, text);
  t.deepEqual(await errorOf(tooMany), [400, 'MANIFEST_INVALID']);
  const { tags } = (await (await repository.fetch('tags/list')).json()) as { tags: string[] };
  t.deepEqual(tags, ['sha256-1', 'sha256-2', 'sha512-1', 'sha512-2'], 'a refused push changes nothing');
  t.is((await repository.put(`${digestOf(text)}?${most}&tag=sha256-1`, text)).status, 201, 'one of them twice');
});

test('the references of a manifest must exist, except foreign layers and its subject', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const missing = { mediaType: 'application/x', digest: digestOf('missing'), size: 7 };
  const whole = await repository.manifest();
  for (const [manifest, type] of [
    [{ ...whole, config: missing }, ociManifest],
    [{ ...whole, layers: [missing] }, ociManifest],
  ] as const) {
    const response = await repository.put('v1', JSON.stringify(manifest), type);
    const { errors } = (await response.json()) as { errors: { code: string; detail: { digest: string } }[] };
    t.is(response.status, 400);
    t.is(errors[0]!.code, 'MANIFEST_BLOB_UNKNOWN');
    t.is(errors[0]!.detail.digest, missing.digest);
  }
  const elsewhere = new TestRepository(server, 'elsewhere');
  t.is((await elsewhere.put('v1', whole)).status, 400, 'a blob of another repository does not count');
  const foreign = { ...missing, urls: ['https://example.com/layer'] };
  const response = await repository.put('v1', { ...whole, layers: [foreign], subject: missing });
  t.is(response.status, 201);
  t.is(response.headers.get('oci-subject'), missing.digest);
});

test('an invalid manifest is refused with the reason, and a body above the limit with 413', async (t) => {
  const server = await startTestServer(t, { limits: { manifest: '64KiB' } });
  const repository = new TestRepository(server, 'app');
  const manifest = await repository.manifest();
  for (const bad of ['', '{', '[]', '{"schemaVersion":1}', '"text"', Buffer.from([0xff, 0xfe, 0x00])]) {
    t.deepEqual(await errorOf(await repository.put('v1', bad)), [400, 'MANIFEST_INVALID']);
  }
  t.deepEqual(await errorOf(await repository.put('v1', manifest, dockerManifest)), [400, 'MANIFEST_INVALID']);
  const large = { ...manifest, annotations: { a: 'x'.repeat(70_000) } };
  t.deepEqual(await errorOf(await repository.put('v1', large)), [413, 'SIZE_INVALID']);
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (let piece = 0; piece < 10; piece += 1) controller.enqueue(Buffer.alloc(10_000, ' '));
      controller.close();
    },
  });
  const headers = { 'content-type': ociManifest };
  const streamed = await repository.fetch('manifests/v1', { method: 'PUT', headers, body, duplex: 'half' });
  t.deepEqual(await errorOf(streamed), [413, 'SIZE_INVALID']);
  t.is((await repository.fetch('manifests/v1')).status, 404);
  t.is((await repository.put('v1', manifest)).status, 201);
});

test('a manifest that clients read in different ways is refused; one with null fields is not', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const manifest = await repository.manifest();
  const other = await repository.blob('other');
  const text = JSON.stringify({ ...manifest, subject: null, artifactType: null, annotations: { A: '1', a: '2' } });
  for (const field of [`"layers":[${JSON.stringify(other)}]`, `"Layers":[]`, '"MediaType":"x"', '"\\u0063onfig":{}']) {
    const refused = await repository.put('v1', `${text.slice(0, -1)},${field}}`);
    t.deepEqual(await errorOf(refused), [400, 'MANIFEST_INVALID'], field);
  }
  t.is((await repository.fetch('manifests/v1')).status, 404);
  const pushed = await repository.put('v1', text);
  t.is(pushed.status, 201);
  t.is(pushed.headers.get('oci-subject'), null);
  // As many keys as may be there.
  const many = (count: number) => `${text.slice(0, -1)},"x":[${'{"layers":1},'.repeat(count)}{}]}`;
  t.is((await repository.put('v2', many(14_900))).status, 201);
  t.deepEqual(await errorOf(await repository.put('v3', many(15_000))), [400, 'MANIFEST_INVALID']);
});

test('a large image: a thousand layers, and 4 MiB of annotations', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const config = await repository.blob('{}');
  const layers = [];
  for (let start = 0; start < 1000; start += 20) {
    layers.push(
      ...(await Promise.all(Array.from({ length: 20 }, (_, index) => repository.blob(`layer ${start + index}`)))),
    );
  }
  const annotations = { large: 'A'.repeat(3_900_000) };
  const manifest = { schemaVersion: 2, mediaType: ociManifest, config, layers, annotations };
  t.is((await repository.put('large', manifest)).status, 201);
  t.deepEqual(await (await repository.fetch('manifests/large')).json(), manifest);
  manifest.layers.push({ ...config, digest: digestOf('one too many') });
  t.deepEqual(await errorOf(await repository.put('large', manifest)), [400, 'MANIFEST_BLOB_UNKNOWN']);
});

test('the error for missing content contains its name, tag or digest', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  t.deepEqual(await errorOf(await repository.fetch('manifests/latest')), [404, 'NAME_UNKNOWN']);
  t.deepEqual(await errorOf(await repository.fetch('tags/list')), [404, 'NAME_UNKNOWN']);
  t.deepEqual(await errorOf(await repository.fetch('manifests/latest', { method: 'DELETE' })), [404, 'NAME_UNKNOWN']);
  await repository.image('v1');
  t.deepEqual(await errorOf(await repository.fetch('manifests/latest')), [404, 'MANIFEST_UNKNOWN']);
  t.deepEqual(await errorOf(await repository.fetch('manifests/.no-tag')), [404, 'MANIFEST_UNKNOWN']);
  for (const [reference, detail] of [
    ['none', { tag: 'none' }],
    ['.no-tag', { tag: '.no-tag' }],
    ['t'.repeat(300), { tag: 't'.repeat(160) }],
    [digestOf('x'), { digest: digestOf('x') }],
  ] as const) {
    const { errors } = (await (await repository.fetch(`manifests/${reference}`)).json()) as { errors: unknown[] };
    t.like(errors, { 0: { code: 'MANIFEST_UNKNOWN', detail } }, reference);
  }
  for (const malformed of ['sha256:abc', 'sha256:', `sha1:${'a'.repeat(40)}`, `SHA256:${'a'.repeat(64)}`]) {
    t.deepEqual(await errorOf(await repository.fetch(`manifests/${malformed}`)), [400, 'DIGEST_INVALID']);
    t.deepEqual(await errorOf(await repository.fetch(`blobs/${malformed}`)), [400, 'DIGEST_INVALID']);
    t.deepEqual(await errorOf(await repository.fetch(`referrers/${malformed}`)), [400, 'DIGEST_INVALID']);
    const remove = await repository.fetch(`blobs/${malformed}`, { method: 'DELETE' });
    t.deepEqual(await errorOf(remove), [400, 'DIGEST_INVALID']);
  }
});
