import { randomBytes } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { schema } from '../../../../src/config/schema.ts';
import { digestOf } from '../../../../src/runtime/digest.ts';
import { CachedDriver } from '../../../../src/storage/drivers/cached-driver.ts';
import { contentOf } from '../../../../src/storage/files/content.ts';
import { Paths } from '../../../../src/storage/files/paths.ts';
import { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { deletionTimes } from '../../../../src/storage/blobs/states.ts';
import { folderUntilEnd } from '../../../support/folder.ts';
import { TestFeed } from '../../../support/feed.ts';
import { scrape } from '../../../support/metrics.ts';
import { TestRepository } from '../../../support/registry.ts';
import { s3Access, startS3, type FakeS3, type S3Fault } from '../../../support/s3.ts';
import { patientHealth, startTestServer, type TestServer } from '../../../support/server.ts';
import { startUpstreamRegistry } from '../../../support/upstreams/upstream-registry.ts';

// A whole server while its S3 fails.

interface SetUp {
  s3: FakeS3;
  server: TestServer;
  repository: TestRepository;
  /** Gives the next `count` requests that begin with `start` a fault; all without `count`. */
  failing: (start: string, fault: S3Fault, count?: number) => void;
  /** Removes the local copies. */
  dropCopies: () => Promise<void>;
}

/** `limit` is the time limit of requests to S3, in milliseconds. */
async function setUp(t: ExecutionContext, settings: Record<string, unknown> = {}, limit = 10_000): Promise<SetUp> {
  const s3 = await startS3(t);
  const data = await folderUntilEnd(t);
  const { storage } = schema.parse({ storage: { driver: 's3', s3: { bucket: s3.bucket } } });
  const times = { request: limit, idle: limit, assemble: limit, pause: 1, checkEvery: 0 };
  const bucket = await S3Driver.open({ ...s3Access(s3), times });
  const cache = new Paths(data).cache;
  const driver = new CachedDriver(bucket, cache, 2 ** 30, () => Promise.resolve(true));
  const health = { driver, healthTimes: { ...patientHealth, writeEvery: 0, perSecond: 1000, remember: 0 } };
  const server = await startTestServer(t, { data, storage, ...settings }, health);
  return {
    s3,
    server,
    repository: new TestRepository(server, 'team/app'),
    failing: (start, fault, count = Number.POSITIVE_INFINITY) => {
      let left = count;
      s3.fault = ({ text }) => (text.startsWith(start) && (left -= 1) >= 0 ? fault : undefined);
    },
    dropCopies: async () => {
      for (const name of await readdir(cache)) await rm(join(cache, name));
    },
  };
}

const layer = randomBytes(700_000);

async function readyOf({ server }: SetUp): Promise<[status: number, text: string]> {
  const answer = await server.fetch('/readyz');
  return [answer.status, await answer.text()];
}

test.serial('while S3 is gone, what has a local copy is served, pushes are 503, and later all works', async (t) => {
  const all = await setUp(t);
  const { server, repository, failing, dropCopies } = all;
  const gone = await repository.blob(randomBytes(300_000));
  await dropCopies();
  const kept = await repository.blob(layer);
  const image = await repository.image('1.0', { layers: [kept] });
  t.deepEqual([(await readyOf(all))[0]], [200]);

  failing('', 'reset');
  const manifest = await repository.fetch('manifests/1.0');
  t.deepEqual([manifest.status, await manifest.text()], [200, image.bytes]);
  const copy = await repository.fetch(`blobs/${kept.digest}`);
  t.true(layer.equals(Buffer.from(await copy.arrayBuffer())));
  const uncopied = await repository.fetch(`blobs/${gone.digest}`);
  t.is(uncopied.status, 503);
  t.truthy(uncopied.headers.get('retry-after'));
  await t.throwsAsync(repository.blob('new'), { message: /^503 .*UNAVAILABLE|^503 / });
  const feed = new TestFeed(server);
  const push = await feed.push({ id: 'New', version: '1.0.0' });
  t.is(push.status, 503);
  t.truthy(push.headers.get('retry-after'));
  t.notRegex(await push.text(), /127\.0\.0\.1|artifacts/);
  t.is((await readyOf(all))[0], 503);

  failing('none', 'reset');
  const returned = performance.now();
  t.is((await repository.fetch(`blobs/${gone.digest}`)).status, 200);
  const added = await repository.blob('new');
  t.is(await (await repository.fetch(`blobs/${added.digest}`)).text(), 'new');
  await feed.publish({ id: 'New', version: '1.0.0' });
  t.true(performance.now() - returned < deletionTimes.takeOverAfter, 'no push waits for a failed deletion');
  t.is((await readyOf(all))[0], 200);
});

for (const [name, fault] of [
  ['SlowDown', { code: 'SlowDown', status: 503 }],
  ['a cut upload', 'cut upload'],
  ['a lost answer', 'lose answer'],
  ['an upload without an answer', 'silent'],
] as const) {
  test.serial(`clients do not notice ${name}: the server repeats the request`, async (t) => {
    const { s3, repository, server, failing, dropCopies } = await setUp(t, {}, fault === 'silent' ? 1000 : undefined);
    failing('PUT blobs/', fault, 2);
    const { digest } = await repository.blob(layer);
    failing('PUT blobs/', fault, 2);
    await new TestFeed(server).publish({ id: 'A', version: '1.0.0' });
    s3.fault = () => undefined;
    await dropCopies();
    t.true(layer.equals(Buffer.from(await (await repository.fetch(`blobs/${digest}`)).arrayBuffer())));
    const metrics = await scrape(server);
    t.is(metrics.value('entrepot_s3_retries_total'), 4);
    const throttled = metrics.value('entrepot_s3_requests_total', { operation: 'put', result: 'throttled' });
    t.is(throttled, typeof fault === 'object' ? 4 : 0);
    const nupkg = await new TestFeed(server).fetch('/package/a/1.0.0/a.1.0.0.nupkg');
    t.is(nupkg.status, 200);
    t.is((await nupkg.arrayBuffer()).byteLength, Number(nupkg.headers.get('content-length')));
  });
}

for (const fault of ['cut body', 'stall body', { code: 'SlowDown', status: 503 }] as const) {
  test.serial(`a client gets all bytes although S3 breaks off: ${JSON.stringify(fault)}`, async (t) => {
    const { repository, failing, dropCopies } = await setUp(t, {}, fault === 'stall body' ? 1000 : undefined);
    const { digest } = await repository.blob(layer);
    await dropCopies();
    failing('GET blobs/', fault, 2);
    t.true(layer.equals(Buffer.from(await (await repository.fetch(`blobs/${digest}`)).arrayBuffer())));
  });
}

test.serial(
  'a bucket that cannot be written makes the service degraded, with the setting in the log, until it can',
  async (t) => {
    const all = await setUp(t);
    const { server, repository, failing } = all;
    t.regex((await readyOf(all))[1], /"ready"/);
    failing('PUT ', { code: 'AccessDenied', status: 403 });
    const [status, text] = await readyOf(all);
    t.is(status, 200);
    t.regex(text, /"degraded".*"storage".*cannot be written/);
    t.notRegex(text, /AccessDenied|artifacts/);
    t.regex(server.lines.join(''), /storage\.s3|the access key may not write/);
    await t.throwsAsync(repository.blob('new'), { message: /^503/ });
    failing('none', 'reset');
    t.regex((await readyOf(all))[1], /"ready"/);
  },
);

test.serial('mirrored content reaches the client although it cannot be stored', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { server, failing } = await setUp(t, { upstreams: [upstream.settings('up.test')] });
  const { digest } = upstream.blob('app', layer);
  failing('PUT ', { code: 'AccessDenied', status: 403 });
  const answer = await server.fetch(`/v2/up.test/app/blobs/${digest}`);
  t.is(answer.status, 200);
  t.true(layer.equals(Buffer.from(await answer.arrayBuffer())));
});

test.serial('the writes of the checks are bounded', async (t) => {
  const s3 = await startS3(t);
  const driver = await S3Driver.open({ ...s3Access(s3), times: { pause: 1 } });
  t.teardown(() => driver.close());
  await driver.prepare();
  const writes = () => s3.requests.filter(({ text }) => text === 'PUT probe/write').length;
  for (let each = 0; each < 5; each += 1) await driver.checkWrites();
  t.is(writes(), 0, 'the start has written');
  s3.fault = ({ text }) => (text.startsWith('PUT blobs/') ? { code: 'AccessDenied', status: 403 } : undefined);
  const content = contentOf(Buffer.from('new'));
  await t.throwsAsync(driver.putContent(digestOf('new'), content, 3), { name: 'StorageUnavailable' });
  for (let each = 0; each < 5; each += 1) await driver.checkWrites();
  t.is(writes(), 1, 'after a failed put, the next check writes');
});
