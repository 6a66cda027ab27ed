import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { digestOf } from '../../../../src/runtime/digest.ts';
import { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { StagedFile } from '../../../../src/storage/files/staged-file.ts';
import { scrape } from '../../../support/metrics.ts';
import { answerOf, openRequest, TestRepository } from '../../../support/registry.ts';
import {
  blobKey,
  s3Access,
  s3Storage,
  startS3,
  type FakeS3,
  type S3Fault,
  type S3Request,
} from '../../../support/s3.ts';
import { startTestServer, type TestServer } from '../../../support/server.ts';
import { until, within } from '../../../support/until.ts';
import { openDriver, stage, type TestedDriver } from '../driver-suite.ts';
import { smallestPart } from './s3-suite.ts';

// In a process of its own: a helper declares tests of it.

// Bodies whose digest is known before they arrive are sent to S3 while they arrive.

const mebibyte = 2 ** 20;

interface SetUp {
  s3: FakeS3;
  server: TestServer;
  repository: TestRepository;
}

async function setUp(t: ExecutionContext): Promise<SetUp> {
  const s3 = await startS3(t);
  const server = await startTestServer(t, { storage: s3Storage(s3) });
  s3.requests.length = 0;
  return { s3, server, repository: new TestRepository(server, 'team/app') };
}

/** Begins a PUT of `body`, with its digest in the URL, and sends the first `bytes`. */
async function beginPut({ server, repository }: SetUp, body: Buffer, bytes: number, digest = digestOf(body)) {
  const location = await repository.start();
  const request = openRequest(server, 'PUT', `${location}?digest=${digest}`, { 'Content-Length': body.length });
  request.write(body.subarray(0, bytes));
  return { location, request };
}

/** Whether an early put ended because its bytes were not to be stored. */
const wasStopped = async ({ server }: SetUp): Promise<boolean> =>
  (await scrape(server)).value('entrepot_s3_requests_total', { operation: 'early', result: 'stopped' }) === 1;
const puts = ({ requests }: FakeS3): S3Request[] =>
  requests.filter(({ method, key }) => method === 'PUT' && key.startsWith('blobs/'));
const storedIn = (s3: FakeS3, body: Buffer): boolean =>
  s3.objects.get(blobKey(digestOf(body)))?.bytes.equals(body) === true;

for (const kind of ['PUT of a session', 'POST of a whole blob'] as const) {
  test(`a ${kind} is sent to S3 while it arrives, in one request, and stored at its end`, async (t) => {
    const each = await setUp(t);
    const { s3, server } = each;
    const body = randomBytes(6 * mebibyte);
    const path = `/v2/team/app/blobs/uploads/?digest=${digestOf(body)}`;
    const request =
      kind === 'PUT of a session'
        ? (await beginPut(each, body, 0)).request
        : openRequest(server, 'POST', path, { 'Content-Length': body.length });
    request.write(body.subarray(0, 4 * mebibyte));
    await until(() => puts(s3).some(({ received }) => received >= 2 * mebibyte)).catch((error: unknown) => {
      t.log(s3.requests.map(({ text, received }) => `${text}: ${received} bytes`));
      t.log(server.lines.slice(-10));
      throw error;
    });
    t.is(s3.objects.has(blobKey(digestOf(body))), false);
    request.end(body.subarray(4 * mebibyte));
    t.is((await answerOf(request)).status, 201);
    t.true(storedIn(s3, body));
    t.is(puts(s3).length, 1);
    t.is(s3.requests.filter(({ key }) => key === blobKey(digestOf(body))).length, 3, 'HEAD, PUT, HEAD');
    const metrics = await scrape(server);
    t.is(metrics.value('entrepot_s3_requests_total', { operation: 'early', result: 'ok' }), 1);
    const pulled = await each.repository.fetch(`blobs/${digestOf(body)}`);
    t.true(body.equals(Buffer.from(await pulled.arrayBuffer())));
    // The check of readiness reads one byte.
    const read = s3.requests.filter(
      ({ method, key, range }) => method === 'GET' && key.startsWith('blobs/') && range !== 'bytes=0-0',
    );
    t.deepEqual(read, [], 'there is a local copy');
  });
}

test('S3 stores nothing of a body with another digest', async (t) => {
  const each = await setUp(t);
  const body = randomBytes(3 * mebibyte);
  const { request } = await beginPut(each, body, body.length, digestOf('another'));
  request.end();
  t.is((await answerOf(request)).status, 400);
  await until(() => wasStopped(each));
  t.deepEqual(
    [...each.s3.objects.keys()].filter((key) => key.startsWith('blobs/')),
    [],
  );
  t.true(puts(each.s3)[0]!.received < body.length);
});

test('a body that is cut off is not stored, and its session continues', async (t) => {
  const each = await setUp(t);
  const body = randomBytes(6 * mebibyte);
  const { location, request } = await beginPut(each, body, 4 * mebibyte);
  await until(() => puts(each.s3).some(({ received }) => received >= mebibyte));
  request.destroy();
  await until(() => wasStopped(each));
  const session = await fetch(each.server.url + location, {
    headers: { authorization: `Bearer ${each.server.token}` },
  });
  t.is(session.status, 204);
  const received = Number(session.headers.get('range')!.split('-')[1]) + 1;
  t.true(received > 0);
  t.false(each.s3.objects.has(blobKey(digestOf(body))));
  const rest = openRequest(each.server, 'PUT', `${location}?digest=${digestOf(body)}`, {
    'Content-Length': body.length - received,
  });
  rest.end(body.subarray(received));
  t.is((await answerOf(rest)).status, 201);
  t.true(storedIn(each.s3, body));
  t.is(puts(each.s3).length, 2);
});

for (const fault of [
  { code: 'SlowDown', status: 503 },
  { code: 'NotImplemented', status: 501 },
  'reset',
  'cut upload',
  'store half',
  'store wrong bytes',
  'damage upload',
  'lose answer',
] satisfies S3Fault[]) {
  test(`after a failure the complete body is sent as any other: ${JSON.stringify(fault)}`, async (t) => {
    const each = await setUp(t);
    const body = randomBytes(3 * mebibyte);
    let failures = 0;
    each.s3.fault = ({ text }) => (text.startsWith('PUT blobs/') && (failures += 1) === 1 ? fault : undefined);
    const { request } = await beginPut(each, body, 2 * mebibyte);
    await until(() => failures > 0);
    request.end(body.subarray(2 * mebibyte));
    t.is((await answerOf(request)).status, 201);
    t.true(storedIn(each.s3, body));
  });
}

test('bytes that S3 already has are not sent again', async (t) => {
  const each = await setUp(t);
  const body = randomBytes(3 * mebibyte);
  each.s3.objects.set(blobKey(digestOf(body)), { bytes: body, modified: new Date(), etag: '"x"' });
  const { request } = await beginPut(each, body, body.length);
  request.end();
  t.is((await answerOf(request)).status, 201);
  t.is(puts(each.s3).length, 0);
});

/** A driver with a limit of its requests in milliseconds. Files of more than 5 MiB are sent in parts of 5 MiB. */
async function openS3(t: ExecutionContext, idle = 30_000): Promise<TestedDriver<S3Driver> & { s3: FakeS3 }> {
  const s3 = await startS3(t);
  const options = { ...s3Access(s3), times: { pause: 1, idle } };
  const tested = await openDriver(t, () => S3Driver.open(options, { single: smallestPart, part: smallestPart }));
  t.teardown(() => tested.driver.close());
  s3.requests.length = 0;
  return { ...tested, s3 };
}

test('a file of which S3 has taken little when it is complete is sent in parts', async (t) => {
  t.timeout(120_000);
  const each = await openS3(t);
  // The sockets between hold some of it.
  const body = randomBytes(48 * mebibyte);
  let isFirst = true;
  each.s3.fault = ({ text }) => {
    if (!text.startsWith('PUT blobs/') || !isFirst) return undefined;
    isFirst = false;
    return { after: new Promise(() => undefined) };
  };
  const staged = await stage(each, Buffer.alloc(0));
  const early = each.driver.putEarly(digestOf(body), staged, body.length)!;
  await staged.write(body);
  early.grown();
  await until(() => puts(each.s3).length === 1);
  await within(each.driver.put(digestOf(body), staged), 60_000);
  early.stop();
  t.true(storedIn(each.s3, body));
  t.is(puts(each.s3).filter(({ query }) => query.has('partNumber')).length, 10);
  await staged.discard();
});

test('few bodies are sent early at the same time, and none that grows too slowly', async (t) => {
  const each = await openS3(t, 3000);
  const files: StagedFile[] = [];
  const begin = async (digest = digestOf(String(files.length)), size = mebibyte) => {
    files.push(await stage(each, Buffer.alloc(0)));
    return each.driver.putEarly(digest, files.at(-1)!, size);
  };
  t.is(await begin(digestOf('small'), mebibyte - 1), undefined);
  t.is(await begin(digestOf('large'), 5 * 2 ** 30 + 1), undefined);
  t.is(await begin(digestOf('other', 'sha512')), undefined);
  for (let count = 1; count <= 8; count += 1) t.truthy(await begin());
  t.is(await begin(), undefined, 'a ninth');
  await until(async () => (await begin()) !== undefined);
  t.pass('they ended without progress');
  for (const file of files) await file.discard();
});
