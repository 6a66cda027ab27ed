import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { Bucket } from '../../src/storage/drivers/s3/bucket.ts';
import { emptyPlace, serveOn } from '../backup/support.ts';
import { token } from '../faults/pushes.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { createLayout } from '../support/builders/images.ts';
import { startContainerd } from '../support/clients/containerd.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { dotnet, sourceName } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { runJob } from '../support/inside.ts';
import { scrape } from '../support/metrics.ts';
import { redisUrl } from '../support/processes/services.ts';
import { startSwift, swiftCommands, type Swift } from '../support/processes/swift.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Whole servers with their content in a real S3 server, Swift, and real clients.

const withClients = testWith(...Object.keys(swiftCommands), 'skopeo', 'umoci', 'dotnet');
let swift: Swift | undefined;
const bucket = 'artifacts';

test.before(async () => {
  swift = await startSwift();
  if (!swift) return;
  const connected = await Bucket.open({ ...swift, bucket, forcePathStyle: true, times: { pause: 1000, attempts: 10 } });
  // Its servers may need a moment more than its proxy.
  await connected.run(() => connected.client.send(new connected.sdk.CreateBucketCommand({ Bucket: bucket })));
  connected.close();
});
test.after.always(() => swift?.stop());

/** The settings of a bucket of which only this test uses the prefix. */
function bucketOf(prefix: string): Record<string, unknown> {
  const { endpoint, region, accessKeyId, secretAccessKey } = swift!;
  return { endpoint, region, bucket, prefix, forcePathStyle: true, accessKeyId, secretAccessKey };
}

/** Two instances with one MariaDB, one Redis and one bucket, each with a data folder of its own. */
async function pair(t: ExecutionContext, prefix: string, more: Record<string, unknown> = {}) {
  const settings = {
    database: { url: await temporaryDatabase(t, 'mysql') },
    redis: { url: redisUrl() },
    storage: { driver: 's3', s3: bucketOf(prefix) },
    gc: { grace: '0s' },
    bootstrapToken: token,
    ...more,
  };
  const start = async () => startTestServer(t, { ...settings, data: await folderUntilEnd(t) });
  return [await start(), await start()] as const;
}

const hostOf = ({ url }: TestServer) => new URL(url).host;

async function skopeoFor(t: ExecutionContext, servers: readonly TestServer[]) {
  const skopeo = await containerClient('skopeo', await folderUntilEnd(t), servers.map(hostOf));
  for (const each of servers) await skopeo.run('login', '-u', 'api', '-p', token, hostOf(each));
  return skopeo;
}

withClients('what skopeo and dotnet push at one instance, they pull at the other at once', async (t) => {
  const [one, other] = await pair(t, 'clients');
  const folder = await folderUntilEnd(t);
  const skopeo = await skopeoFor(t, [one, other]);
  const image = await (await createLayout(join(folder, 'images'))).image('big', { layers: 3, bytes: 3_000_000 });
  await skopeo.run('copy', '--preserve-digests', image.reference, `docker://${hostOf(one)}/team/app:1`);
  // `dir:` verifies the digest of every layer.
  await skopeo.run('copy', '--preserve-digests', `docker://${hostOf(other)}/team/app:1`, `dir:${join(folder, 'copy')}`);

  const user = (name: string, server: TestServer) =>
    dotnet(join(folder, name), { url: `${server.url}/v3/index.json`, username: 'api', password: token });
  const publisher = await user('publisher', one);
  const nupkg = await publisher.pack({ id: 'Contoso.Library', version: '1.0.0' });
  await publisher.run('nuget', 'push', nupkg, '--source', sourceName, '--api-key', token);
  const consumer = await user('consumer', other);
  const project = await consumer.project('Program', { 'Contoso.Library': '1.0.0' });
  t.is(await consumer.run('run', '--project', project), '1.0.0\n');
});

testWith(
  ...Object.keys(swiftCommands),
  'skopeo',
  'umoci',
  'containerd',
  'ctr',
)('containerd names the digest before a layer, which is then sent to S3 while it arrives', async (t) => {
  const [server] = await pair(t, 'early');
  const folder = await folderUntilEnd(t);
  const skopeo = await skopeoFor(t, [server]);
  const image = await (await createLayout(join(folder, 'images'))).image('big', { layers: 1, bytes: 20_000_000 });
  const name = `${hostOf(server)}/team/early:1`;
  const archive = join(folder, 'image.tar');
  await skopeo.run('copy', '--preserve-digests', image.reference, `oci-archive:${archive}:${name}`);
  const ctr = await startContainerd(t, join(folder, 'containerd'));
  await ctr.run('images', 'import', '--no-unpack', '--index-name', name, archive);
  await ctr.run('images', 'push', '--plain-http', '--user', `api:${token}`, name);
  const metrics = await scrape({ fetch: (path, init) => server.fetch(path, { ...init, token }) });
  t.is(metrics.value('entrepot_s3_requests_total', { operation: 'early', result: 'ok' }), 1);
  await skopeo.run('copy', '--preserve-digests', `docker://${name}`, `dir:${join(folder, 'copy')}`);
});

withClients('the collector of one instance does not remove what the other has just pushed', async (t) => {
  const [one, other] = await pair(t, 'collector');
  const theirs = await TestFeed.ofAccount(other, 'theirs');
  const ours = new TestFeed({ ...one, token }, token);
  let removed = 0;
  for (let round = 0; round < 10; round += 1) {
    const id = `Same.Bytes.${round}`;
    const bytes = await makeNupkg({ id, version: '1.0.0', payloadBytes: 300_000 });
    t.is((await ours.push(bytes)).status, 201);
    t.is((await one.fetch(`/v1/packages/${id}/1.0.0`, { method: 'DELETE', token })).status, 204);
    one.clock.now = Date.now() + 10_000_000 * (round + 1);
    // The bytes have no reference while the collector looks, and get one from another account meanwhile.
    const [collected, pushed] = await Promise.all([runJob(one, 'gc'), theirs.push(bytes)]);
    removed += collected['blobs']!;
    t.is(pushed.status, 201);
    const path = `/v3/package/${id.toLowerCase()}/1.0.0/${id.toLowerCase()}.1.0.0.nupkg`;
    for (const server of [one, other]) {
      const answer = await server.fetch(path, { token: theirs.token });
      t.true(bytes.equals(Buffer.from(await answer.arrayBuffer())), `round ${round}: ${answer.status}`);
    }
  }
  t.true(removed > 0, 'some were removed before they were pushed again');
});

withClients(
  'a missing blob of 256 MiB costs each instance at most one fetch, whatever the number of clients',
  async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const { digest, size } = upstream.blob('app', randomBytes(256 * 2 ** 20));
    const both = await pair(t, 'fetch', { upstreams: [upstream.settings('up.test')] });
    const pull = async (server: TestServer) => {
      const answer = await server.fetch(`/v2/up.test/app/blobs/${digest}`, { token });
      let bytes = 0;
      for await (const piece of answer.body as unknown as AsyncIterable<Uint8Array>) bytes += piece.length;
      return bytes;
    };
    const pulled = await Promise.all(both.flatMap((server) => Array.from({ length: 4 }, () => pull(server))));
    t.deepEqual(
      pulled,
      Array.from({ length: 8 }, () => size),
    );
    const fetches = () => upstream.requests().filter((each) => each.startsWith(`GET /v2/app/blobs/${digest}`)).length;
    t.true(fetches() >= 1 && fetches() <= 2, `${fetches()} fetches`);
    const before = fetches();
    for (const server of both) t.is(await pull(server), size);
    t.is(fetches(), before);
  },
);

withClients('skopeo follows redirects to S3, and content that was copied to the bucket is there', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const first = await serveOn(t, place);
  const folder = await folderUntilEnd(t);
  const image = await (await createLayout(join(folder, 'images'))).image('big', { layers: 2, bytes: 3_000_000 });
  const before = await skopeoFor(t, [first]);
  await before.run('copy', '--preserve-digests', image.reference, `docker://${hostOf(first)}/team/app:1`);
  const settings = bucketOf('copied');
  for (const [key, value] of Object.entries(settings))
    place.environment[`ENTREPOT_STORAGE_S3_${key.replaceAll(/[A-Z]/g, '_$&').toUpperCase()}`] = String(value);
  const copied = await entrepot(place.environment, 'storage', 'copy', '--to', 's3');
  t.deepEqual([copied.code, copied.stderr], [0, '']);
  await first.close();

  // Another host name than that of the server, because skopeo sends its token also to the same one.
  const publicEndpoint = swift!.endpoint.replace('127.0.0.1', 'localhost');
  const storage = { driver: 's3', s3: { ...settings, redirect: true, publicEndpoint } };
  const second = await serveOn(t, place, { storage, log: { level: 'info' } });
  const skopeo = await skopeoFor(t, [second]);
  await skopeo.run(
    'copy',
    '--preserve-digests',
    `docker://${hostOf(second)}/team/app:1`,
    `dir:${join(folder, 'copy')}`,
  );
  t.is(second.lines.filter((line) => line.includes('"status":307')).length, 2, 'both layers');
});
