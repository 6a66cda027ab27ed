import { randomBytes } from 'node:crypto';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { entrepot } from '../support/in-process.ts';
import { TestFeed } from '../support/feed.ts';
import { digestOf } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// A data folder that cannot be written, or is gone, is the server's trouble and said so. Mirrored content passes through.

async function readiness(server: TestServer) {
  const response = await server.fetch('/readyz', { token: null });
  return { status: response.status, text: await response.text() };
}

function pushBlob(server: TestServer, text: string): Promise<Response> {
  return server.fetch(`/v2/team/app/blobs/uploads/?digest=${digestOf(text)}`, { method: 'POST', body: text });
}

test('while the data folder takes no file, cold mirrored content is verified and passed through', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const bytes = randomBytes(3_000_000);
  const layer = upstream.blob('team/app', bytes);
  const { manifest } = upstream.image('team/app', 'v1');
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Some.Package', versions: [{ version: '1.0.0' }] });
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test'), feed.as('feed.test')] });
  const staging = join(server.data, 'staging');
  await rename(staging, `${staging}.away`);
  // As on a read-only disk, no file can be made, also by root.
  await writeFile(staging, '');
  const blob = await server.fetch(`/v2/up.test/team/app/blobs/${layer.digest}`);
  t.is(blob.headers.get('cache-status'), 'entrepot; fwd=miss');
  t.true(Buffer.from(await blob.arrayBuffer()).equals(bytes));
  const found = await server.fetch('/v2/up.test/team/app/manifests/v1');
  t.is(await found.text(), manifest.bytes);
  const nupkg = await server.fetch('/v3/package/some.package/1.0.0/some.package.1.0.0.nupkg');
  t.is(nupkg.status, 200);
  t.is((await nupkg.arrayBuffer()).byteLength, Number(nupkg.headers.get('content-length')));
  t.is((await pushBlob(server, 'hosted')).status, 503);
  t.is((await readiness(server)).status, 503);
  await rm(staging);
  await mkdir(staging);
  t.is((await pushBlob(server, 'hosted')).status, 201, 'no restart is needed');
  await server.fetch(`/v2/up.test/team/app/blobs/${layer.digest}`).then((each) => each.arrayBuffer());
  const again = await server.fetch(`/v2/up.test/team/app/blobs/${layer.digest}`);
  t.is(again.headers.get('cache-status'), 'entrepot; hit');
});

test('below the reserve, readiness, metrics and doctor say that uploads are refused', async (t) => {
  const server = await startTestServer(t, { storage: { reserve: '1000TiB' } });
  t.is((await pushBlob(server, 'hosted')).status, 507);
  const { status, text } = await readiness(server);
  t.is(status, 200, 'it serves what is stored');
  t.regex(text, /"degraded".*storage\.reserve: uploads are refused/);
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /entrepot_degraded\{part="storage"\} 1/);
  const { stdout } = await entrepot(
    { ENTREPOT_DATA: server.data, ENTREPOT_STORAGE_RESERVE: '1000TiB', ENTREPOT_UPSTREAMS: '[]' },
    'doctor',
  );
  t.regex(stdout, /FAIL {2}storage: The disk has less free space than storage\.reserve: uploads are refused/);
});

test('a data folder that is deleted under the server makes it unavailable, and is no fault of the requests', async (t) => {
  const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, 'mysql') } });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Some.Package', version: '1.0.0', payloadBytes: 600_000 });
  await rm(server.data, { recursive: true });
  t.is((await pushBlob(server, 'hosted')).status, 503);
  t.is((await feed.push({ id: 'Other.Package', version: '1.0.0' })).status, 503);
  t.is((await server.fetch('/v3/package/some.package/1.0.0/some.package.1.0.0.nupkg')).status, 503);
  t.is((await server.fetch('/v2/team/app/blobs/uploads/', { method: 'POST' })).status, 503);
  t.is((await readiness(server)).status, 503);
  t.deepEqual(
    server.lines.filter((line) => line.includes('"status":500')),
    [],
  );
});
