import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm, stat, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { ConfigError } from '../../../../src/config/load.ts';
import { flipBit } from '../../../support/damage.ts';
import { scrape } from '../../../support/metrics.ts';
import { runJob } from '../../../support/inside.ts';
import { TestFeed } from '../../../support/feed.ts';
import { TestRepository } from '../../../support/registry.ts';
import { startS3, type FakeS3 } from '../../../support/s3.ts';
import { patientHealth, startTestServer } from '../../../support/server.ts';
import { eventually, until } from '../../../support/until.ts';

// A whole server with its content in S3.

interface SetUp {
  s3: FakeS3;
  /** Settings of the server; `cache` is in bytes. */
  settings: (cache?: number) => Record<string, unknown>;
  data: string;
  /** Requests for the bodies of blobs so far. */
  reads: () => number;
  /** All PUT requests so far. */
  puts: () => number;
}

async function setUp(t: ExecutionContext): Promise<SetUp> {
  const s3 = await startS3(t);
  const data = await mkdtemp(join(tmpdir(), 'entrepot-s3-'));
  t.teardown(() => rm(data, { recursive: true, force: true }));
  const access = { forcePathStyle: true, accessKeyId: 'key', secretAccessKey: 'secret' };
  const bucket = { endpoint: s3.endpoint, bucket: s3.bucket, prefix: 'team', ...access };
  return {
    s3,
    data,
    settings: (cache = 2 ** 30) => ({
      data,
      gc: { grace: '0s' },
      storage: { driver: 's3', cache, s3: bucket },
    }),
    puts: () => s3.requests.filter(({ method }) => method === 'PUT').length,
    reads: () => s3.requests.filter(({ method, key }) => method === 'GET' && key.startsWith('team/blobs/')).length,
  };
}

const layer = randomBytes(3_000_000);

test.serial('an image and a package are pushed, pulled after a restart, and collected', async (t) => {
  const { s3, settings, data } = await setUp(t);
  const first = await startTestServer(t, settings());
  const repository = new TestRepository(first, 'team/app');
  const big = await repository.blob(layer, 'application/vnd.oci.image.layer.v1.tar');
  const image = await repository.image('1.0', { layers: [big] });
  await new TestFeed(first).publish({ id: 'Contoso.Core', version: '1.0.0' });
  t.false((await readdir(data)).includes('blobs'), 'no content is in the data folder');
  await first.close();
  await rm(join(data, 'cache'), { recursive: true });

  const second = await startTestServer(t, settings());
  const again = new TestRepository(second, 'team/app');
  t.is(await (await again.fetch('manifests/1.0')).text(), image.bytes);
  t.true(layer.equals(Buffer.from(await (await again.fetch(`blobs/${big.digest}`)).arrayBuffer())));
  const part = await again.fetch(`blobs/${big.digest}`, { headers: { range: 'bytes=2000000-2000009' } });
  t.deepEqual(Buffer.from(await part.arrayBuffer()), layer.subarray(2_000_000, 2_000_010));
  const nupkg = await new TestFeed(second).fetch('/package/contoso.core/1.0.0/contoso.core.1.0.0.nupkg');
  t.is(nupkg.status, 200);
  await nupkg.arrayBuffer();

  t.is((await again.fetch(`manifests/${image.digest}`, { method: 'DELETE' })).status, 202);
  for (const { digest } of [big]) t.is((await again.fetch(`blobs/${digest}`, { method: 'DELETE' })).status, 202);
  await runJob(second, 'gc');
  const hex = big.digest.slice('sha256:'.length);
  t.false(s3.objects.has(`team/blobs/sha256/${hex.slice(0, 2)}/${hex}`));
  t.false((await readdir(join(data, 'cache'))).includes(`sha256-${hex}`), 'nor is there a copy');
});

test.serial('many first readers of a layer cost one request, later ones none', async (t) => {
  const { settings, data, reads, puts } = await setUp(t);
  const server = await startTestServer(t, settings());
  const repository = new TestRepository(server, 'team/app');
  const { digest } = await repository.blob(layer);
  await rm(join(data, 'cache', digest.replace(':', '-')));
  const before = reads();
  const pull = async () => Buffer.from(await (await repository.fetch(`blobs/${digest}`)).arrayBuffer());
  for (const bytes of await Promise.all(Array.from({ length: 8 }, pull))) t.true(bytes.equals(layer));
  await until(async () => (await readdir(join(data, 'cache'))).includes(digest.replace(':', '-')));
  t.true((await pull()).equals(layer));
  t.is(reads() - before, 1);

  const metrics = await scrape(server);
  const opened = (outcome: string) => metrics.value('entrepot_storage_cache_requests_total', { outcome }) ?? 0;
  t.is(opened('joined') + opened('miss'), 8);
  t.is(opened('hit'), 1);
  t.true(metrics.value('entrepot_storage_cache_bytes')! >= layer.length);
  // The check of the storage has read one byte.
  t.is(metrics.value('entrepot_s3_bytes_total', { direction: 'in' }), layer.length + 1);
  t.is(metrics.value('entrepot_s3_bytes_total', { direction: 'out' }), layer.length);
  t.true(metrics.value('entrepot_s3_requests_total', { operation: 'get', result: 'ok' })! >= 1);
  const stored = (operation: string) => metrics.value('entrepot_s3_requests_total', { operation, result: 'ok' }) ?? 0;
  t.is(stored('put') + stored('early'), puts());
});

test.serial('the first read of a small blob is one request', async (t) => {
  const { s3, settings } = await setUp(t);
  const { digest } = await new TestRepository(await startTestServer(t, settings()), 'team/app').blob('small');
  const key = [...s3.objects.keys()].find((each) => each.endsWith(digest.slice('sha256:'.length)))!;
  const stored = s3.objects.get(key)!;
  const requests = () => s3.requests.filter((each) => each.key === key).map(({ method }) => method);
  for (const [bytes, status, sent] of [
    [stored.bytes, 200, 1],
    [Buffer.from('wrong'), 500, undefined],
    [Buffer.from('too long'), 500, undefined],
  ] as const) {
    const server = await startTestServer(t, settings(0));
    s3.objects.set(key, { ...stored, bytes });
    s3.requests.length = 0;
    const answer = await new TestRepository(server, 'team/app').fetch(`blobs/${digest}`);
    t.is(answer.status, status, await answer.text());
    if (sent !== undefined) t.deepEqual(requests(), ['GET']);
  }
});

test.serial('the copies stay below their limit, and the server works without them', async (t) => {
  const { settings, data } = await setUp(t);
  const server = await startTestServer(t, settings(1_000_000));
  const repository = new TestRepository(server, 'team/app');
  const blobs = [layer, ...Array.from({ length: 5 }, () => randomBytes(300_000))];
  const pushed = [];
  for (const bytes of blobs) pushed.push(await repository.blob(bytes));
  for (const [index, { digest }] of pushed.entries()) {
    const body = await (await repository.fetch(`blobs/${digest}`)).arrayBuffer();
    t.true(Buffer.from(body).equals(blobs[index]!));
  }
  // Three of 300,000 bytes fit, of which the latest are kept. The one of 3,000,000 bytes never fits.
  const copies = await eventually(
    () => readdir(join(data, 'cache')),
    (found) => found.length <= 3,
  );
  const latest = pushed.slice(-3).map(({ digest }) => digest.replace(':', '-'));
  t.deepEqual(copies.toSorted(), latest.toSorted());
});

test.serial('a reader does not wait for the rest of a copy, and damaged content never ends', async (t) => {
  const { s3, settings, data } = await setUp(t);
  const server = await startTestServer(t, settings());
  const repository = new TestRepository(server, 'team/app');
  const { digest } = await repository.blob(layer);
  const copy = join(data, 'cache', digest.replace(':', '-'));
  await rm(copy);
  s3.fault = ({ text }) => (text.startsWith('GET team/blobs/') ? 'stall body' : undefined);
  const response = await repository.fetch(`blobs/${digest}`);
  const reader = response.body!.getReader();
  const { value } = await reader.read();
  t.true(layer.subarray(0, value!.length).equals(value), 'although the storage sent only a half');
  await reader.cancel();

  s3.fault = ({ text }) => (text.startsWith('GET team/blobs/') ? 'wrong bytes' : undefined);
  const other = randomBytes(400_000);
  const pushed = await repository.blob(other);
  await rm(join(data, 'cache', pushed.digest.replace(':', '-')));
  const damaged = await repository.fetch(`blobs/${pushed.digest}`);
  await t.throwsAsync(damaged.arrayBuffer());
  t.false((await readdir(join(data, 'cache'))).includes(pushed.digest.replace(':', '-')), 'it is not kept');
});

test.serial('a scrub drops a damaged local copy', async (t) => {
  const { settings, data } = await setUp(t);
  const server = await startTestServer(t, settings());
  const repository = new TestRepository(server, 'team/app');
  const { digest } = await repository.blob(layer);
  const [whole, copy] = [await repository.blob(randomBytes(300_000)), join(data, 'cache', digest.replace(':', '-'))];
  const kept = join(data, 'cache', whole.digest.replace(':', '-'));
  await flipBit(copy);
  await utimes(kept, 1000, 1000);
  await runJob(server, 'scrub');
  t.deepEqual(await readdir(join(data, 'cache')), [basename(kept)]);
  t.is((await stat(kept)).mtimeMs, 1_000_000, 'a check is no use');
  t.true(layer.equals(Buffer.from(await (await repository.fetch(`blobs/${digest}`)).arrayBuffer())));
});

test.serial('while S3 is away, requests are 503 and nothing is lost', async (t) => {
  const { s3, settings } = await setUp(t);
  const server = await startTestServer(t, settings(0));
  const repository = new TestRepository(server, 'team/app');
  const { digest } = await repository.blob(layer);
  s3.fault = () => ({ code: 'AccessDenied', status: 403 });
  const refused = await repository.fetch(`blobs/${digest}`);
  t.is(refused.status, 503);
  t.truthy(refused.headers.get('retry-after'));
  t.notRegex(await refused.text(), /127\.0\.0\.1|AccessDenied|artifacts/, 'the reason is only in the log');
  const push = await repository.fetch(`blobs/uploads/?digest=${digest.replace(/.$/, '0')}`, { method: 'POST' });
  await push.arrayBuffer();
  t.is((await server.fetch('/readyz')).status, 503);
  s3.fault = () => undefined;
  t.true(layer.equals(Buffer.from(await (await repository.fetch(`blobs/${digest}`)).arrayBuffer())));
});

test.serial('many looks at readiness cost S3 one check, and a failed request the next one', async (t) => {
  const { s3, settings } = await setUp(t);
  const times = { healthTimes: { ...patientHealth, writeEvery: 3_600_000, perSecond: 1000 } };
  const server = await startTestServer(t, settings(0), times);
  const { digest } = await new TestRepository(server, 'team/app').blob(layer);
  const look = async () => (await server.fetch('/readyz')).status;
  // The first looks also check writes.
  t.is(await look(), 200);
  const before = s3.requests.length;
  for (let looks = 0; looks < 8; looks += 1) t.is(await look(), 200);
  t.deepEqual(s3.requests.slice(before), []);

  s3.fault = () => 'reset';
  t.is((await new TestRepository(server, 'team/app').fetch(`blobs/${digest}`)).status, 503);
  t.is(await look(), 503);
});

for (const [name, status, code, setting] of [
  ['an unknown access key', 403, 'InvalidAccessKeyId', 'ACCESS_KEY_ID'],
  ['a wrong secret', 403, 'SignatureDoesNotMatch', 'SECRET_ACCESS_KEY'],
  ['another region', 400, 'AuthorizationHeaderMalformed', 'REGION'],
  ['a missing bucket', 404, 'NoSuchBucket', 'BUCKET'],
  ['a clock that is wrong', 403, 'RequestTimeTooSkewed', 'ENDPOINT'],
  ['a server that fails', 500, 'InternalError', 'BUCKET'],
] as const) {
  test.serial(`the start names the setting of ${name}`, async (t) => {
    const { s3, settings } = await setUp(t);
    // The fake S3 sends no code in an answer to HEAD, as every server.
    s3.fault = () => ({ code, status });
    const error = await t.throwsAsync(startTestServer(t, settings()), { instanceOf: ConfigError });
    t.regex(error.message, new RegExp(`^ENTREPOT_STORAGE_S3_${setting}: .+\\(.+\\)$`));
    t.notRegex(error.message, /secret\b.*=|\n/);
  });
}

test.serial('the start says which permission is missing, and a missing CA file', async (t) => {
  const { s3, settings } = await setUp(t);
  s3.fault = ({ method }) => (method === 'DELETE' ? { code: 'AccessDenied', status: 403 } : undefined);
  const error = await t.throwsAsync(startTestServer(t, settings()), { instanceOf: ConfigError });
  t.regex(error.message, /^ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: the access key may not delete/);
  const { storage } = settings() as { storage: { s3: object } };
  const wrong = { ...settings(), storage: { ...storage, s3: { ...storage.s3, caFile: '/nowhere.pem' } } };
  await t.throwsAsync(startTestServer(t, wrong), { message: /^ENTREPOT_STORAGE_S3_CA_FILE: the file cannot be read/ });
});
