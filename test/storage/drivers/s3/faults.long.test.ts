import { randomBytes } from 'node:crypto';
import { truncate } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { digestOf } from '../../../../src/runtime/digest.ts';
import { readAll } from '../../../../src/storage/files/content.ts';
import { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { StagedFile } from '../../../../src/storage/files/staged-file.ts';
import { blobKey, s3Access, startS3, type FakeS3, type S3Fault, type S3Request } from '../../../support/s3.ts';
import { within } from '../../../support/until.ts';
import { openDriver, store, type TestedDriver } from '../driver-suite.ts';
import { smallestPart } from './s3-suite.ts';

// In a process of its own: a helper declares tests of it.

/** A driver and its server. `limit` is the time limit of its requests, in milliseconds. Files of more than 5 MiB are sent in parts of 5 MiB. */
async function setUp(t: ExecutionContext, limit = 5000): Promise<TestedDriver<S3Driver> & { s3: FakeS3 }> {
  const s3 = await startS3(t);
  const times = { request: limit, idle: limit, assemble: limit, pause: 1 };
  const options = { ...s3Access(s3), times };
  const tested = await openDriver(t, () => S3Driver.open(options, { single: smallestPart, part: smallestPart }));
  t.teardown(() => tested.driver.close());
  s3.requests.length = 0;
  return { ...tested, s3 };
}

/** Gives the first `count` requests that begin with `start` a fault; all of them without `count`. */
function failing(s3: FakeS3, start: string, fault: S3Fault, count = Number.POSITIVE_INFINITY): void {
  let left = count;
  s3.fault = ({ text }: S3Request) => {
    if (!text.startsWith(start) || left === 0) return undefined;
    left -= 1;
    return fault;
  };
}

const slowDown = { code: 'SlowDown', status: 503 };
const small = Buffer.from('a small blob');
const large = randomBytes(2 * smallestPart + 1000);

for (const [name, fault] of [
  ['SlowDown', slowDown],
  ['an internal error', { code: 'InternalError', status: 500 }],
  ['a reset', 'reset'],
  ['a cut upload', 'cut upload'],
  ['a lost answer', 'lose answer'],
  ['no answer', 'silent'],
] as const) {
  const limit = fault === 'silent' ? 5000 : undefined;

  test.serial(`a put is repeated after ${name}, from its first byte`, async (t) => {
    const each = await setUp(t, limit);
    for (const bytes of [small, large]) {
      failing(each.s3, 'PUT blobs/', fault, 3);
      const digest = await store(each, bytes);
      each.s3.fault = () => undefined;
      t.true(bytes.equals(await readAll(await each.driver.open(digest, bytes.length), bytes.length)));
      t.is(each.s3.uploads.size, 0);
    }
  });

  test.serial(`a put fails if ${name} continues, and leaves nothing`, async (t) => {
    const each = await setUp(t, fault === 'silent' ? 200 : undefined);
    failing(each.s3, 'PUT blobs/', fault);
    await t.throwsAsync(store(each, large), { name: 'StorageUnavailable' });
    each.s3.fault = () => undefined;
    t.is(each.s3.uploads.size, 0, 'the upload in parts is aborted');
    t.is(await each.driver.stat(digestOf(large)), undefined);
    t.true(each.s3.requests.filter(({ method }) => method === 'PUT').length <= 12, 'at most four attempts of a part');
  });
}

test.serial('a put whose bytes S3 stored in part fails', async (t) => {
  const each = await setUp(t);
  failing(each.s3, 'PUT blobs/', 'store half');
  await t.throwsAsync(store(each, small), { name: 'StorageUnavailable' });
  each.s3.fault = () => undefined;
  await store(each, small);
  t.is((await each.driver.stat(digestOf(small)))?.size, small.length, 'the next put replaces them');
});

for (const [name, fault] of [
  ['bytes that changed on their way', 'damage upload'],
  ['bytes that S3 says to have stored otherwise', 'store wrong bytes'],
] as const) {
  test.serial(`a put of ${name} fails and leaves nothing, and the next one stores the bytes`, async (t) => {
    const each = await setUp(t);
    failing(each.s3, 'PUT blobs/', fault);
    // The parts of an upload have no checksum in their answers.
    const sizes = fault === 'damage upload' ? [small, large] : [small];
    for (const bytes of sizes) {
      await t.throwsAsync(store(each, bytes), { name: 'StorageUnavailable' });
      t.false(each.s3.objects.has(blobKey(digestOf(bytes))));
    }
    t.is(each.s3.uploads.size, 0);
    failing(each.s3, 'PUT blobs/', fault, 0);
    for (const bytes of sizes) {
      const digest = await store(each, bytes);
      t.true(each.s3.objects.get(blobKey(digest))!.bytes.equals(bytes));
    }
  });
}

test.serial('bytes that replaced wrong ones meanwhile stay', async (t) => {
  const each = await setUp(t);
  const key = blobKey(digestOf(small));
  failing(each.s3, 'PUT blobs/', 'store wrong bytes');
  const { fault } = each.s3;
  each.s3.fault = (request) => {
    // Before the look whether the wrong bytes are still there, another server stores the right ones.
    if (request.method === 'HEAD' && each.s3.objects.has(key))
      each.s3.objects.set(key, { bytes: small, modified: new Date(), etag: '"right"' });
    return fault(request);
  };
  await t.throwsAsync(store(each, small), { name: 'StorageUnavailable' });
  t.true(each.s3.objects.get(key)!.bytes.equals(small));
});

test.serial('a part of which S3 sends no ETag is not assembled', async (t) => {
  const each = await setUp(t);
  failing(each.s3, 'PUT blobs/', 'no tag', 1);
  const error = await t.throwsAsync(store(each, large), { name: 'StorageUnavailable' });
  t.regex(String(error.cause), /no ETag of a part/);
  t.is(each.s3.uploads.size, 0);
  t.deepEqual(
    each.s3.requests.filter(({ text, query }) => text.startsWith('POST') && query.has('uploadId')),
    [],
  );
});

for (const [name, fault] of [
  ['a lost answer', 'lose answer'],
  ['an error in an answer 200', { code: 'InternalError', status: 200 }],
  ['SlowDown', slowDown],
] as const) {
  test.serial(`an object is assembled from its parts although the request for it gets ${name}`, async (t) => {
    const each = await setUp(t);
    let left = 2;
    each.s3.fault = ({ method, query }) =>
      method === 'POST' && query.has('uploadId') && (left -= 1) >= 0 ? fault : undefined;
    const digest = await store(each, large);
    t.true(each.s3.objects.get(blobKey(digest))!.bytes.equals(large));
    t.is(each.s3.uploads.size, 0);
  });
}

test.serial('a put whose upload in parts another has aborted fails', async (t) => {
  const each = await setUp(t);
  each.s3.fault = ({ method, query }) => {
    if (method === 'POST' && query.has('uploadId')) each.s3.uploads.clear();
    return undefined;
  };
  await t.throwsAsync(store(each, large), { name: 'StorageUnavailable' });
  t.false(each.s3.objects.has(blobKey(digestOf(large))));
});

test.serial('a put whose file cannot be read does not wait until the request is too old', async (t) => {
  const each = await setUp(t, 60_000);
  const staged = await StagedFile.create(each.paths);
  await staged.write(small);
  await truncate(staged.path, small.length - 1);
  const error = await t.throwsAsync(within(each.driver.put(digestOf(small), staged)), { name: 'StorageUnavailable' });
  t.regex(String(error.cause), /is shorter than its/);
  await staged.discard();
});

test.serial('at most three parts of a file are sent at the same time, and nothing is copied', async (t) => {
  const each = await setUp(t);
  const bytes = randomBytes(7 * smallestPart + 1);
  const digest = await store(each, bytes);
  t.is(each.s3.requests.filter(({ query }) => query.has('partNumber')).length, 8);
  t.true(each.s3.objects.get(blobKey(digest))!.bytes.equals(bytes));
  t.true(each.s3.mostBodies <= 3, String(each.s3.mostBodies));
  t.is([...each.s3.objects].filter(([key]) => key.startsWith('blobs/')).length, 1);
});

for (const [name, fault, attempts] of [
  ['SlowDown', slowDown, 3],
  ['a reset', 'reset', 3],
  ['a body that is cut off', 'cut body', 3],
  ['a body that ends early', 'end body', 3],
  ['a body that stalls', 'stall body', 3],
  ['another range', 'wrong range', 3],
] as const) {
  test.serial(`a read continues after ${name}`, async (t) => {
    const each = await setUp(t, fault === 'stall body' ? 300 : undefined);
    const bytes = randomBytes(600_000);
    each.s3.objects.set(blobKey(digestOf(bytes)), { bytes, modified: new Date(), etag: '"x"' });
    const content = await each.driver.open(digestOf(bytes), bytes.length);
    const first = Buffer.alloc(100_000);
    const read = await content.read(first, 0);
    t.true(first.subarray(0, read).equals(bytes.subarray(0, read)));
    content.close();
    failing(each.s3, 'GET blobs/', fault, attempts);
    t.true(bytes.equals(await readAll(await each.driver.open(digestOf(bytes), bytes.length), 1_000_000)));
  });
}

for (const fault of ['cut body', 'end body', 'stall body', 'wrong range', slowDown, 'silent'] as const) {
  test.serial(`a read never returns a part as the whole: ${JSON.stringify(fault)}`, async (t) => {
    const each = await setUp(t, fault === 'stall body' || fault === 'silent' ? 200 : undefined);
    // Smaller content is read when it is opened.
    const bytes = randomBytes(300_000);
    const content = await each.driver.open(await store(each, bytes), bytes.length);
    const offset = fault === 'wrong range' ? 3 : 0;
    failing(each.s3, 'GET blobs/', fault);
    const target = Buffer.alloc(bytes.length);
    const outcome = content.read(target, offset);
    if (fault === 'cut body' || fault === 'end body' || fault === 'stall body') {
      const read = await outcome;
      t.true(read < bytes.length, 'a part is a part');
      t.deepEqual(target.subarray(0, read), bytes.subarray(0, read));
      // Each attempt makes progress until one byte is left, which has no half.
    } else await t.throwsAsync(outcome, { name: 'StorageUnavailable' });
    content.close();
  });
}

test.serial('content that does not match its digest rejects before its last byte', async (t) => {
  const each = await setUp(t);
  const bytes = randomBytes(300_000);
  const digest = digestOf(bytes);
  each.s3.objects.set(blobKey(digestOf(bytes)), { bytes, modified: new Date(), etag: '"x"' });
  failing(each.s3, 'GET blobs/', 'wrong bytes');
  const content = await each.driver.open(digest, bytes.length);
  let position = 0;
  const error = await t.throwsAsync(async () => {
    for (const target = Buffer.alloc(50_000); position < bytes.length;)
      position += await content.read(target, position);
  });
  t.is(error?.name, 'ContentDamaged');
  t.true(position < bytes.length);
  content.close();
  const forCheck = await each.driver.open(digest, bytes.length, true);
  t.is((await readAll(forCheck, 1_000_000)).length, bytes.length, 'a scrub compares the bytes itself');
});

test.serial('a sequential reader costs one request, and a small part its own bytes', async (t) => {
  const each = await setUp(t);
  const bytes = randomBytes(500_000);
  each.s3.objects.set(blobKey(digestOf(bytes)), { bytes, modified: new Date(), etag: '"x"' });
  const gets = () => each.s3.requests.filter(({ method, key }) => method === 'GET' && key !== '').map((r) => r.range);
  const content = await each.driver.open(digestOf(bytes), bytes.length);
  const target = Buffer.alloc(70_000);
  for (let position = 0; position < bytes.length;) position += await content.read(target, position);
  t.deepEqual(gets(), ['bytes=0-499999']);
  const part = Buffer.alloc(10);
  t.is(await content.read(part, 1000), 10);
  t.deepEqual(part, bytes.subarray(1000, 1010));
  t.is(gets()[1], 'bytes=1000-1009');
  content.close();
});

test.serial('a missing bucket is no missing blob', async (t) => {
  const each = await setUp(t);
  const digest = await store(each, small);
  each.s3.bucket = 'another';
  for (const work of [
    () => each.driver.stat(digest),
    () => each.driver.open(digest, small.length),
    () => store(each, Buffer.from('new')),
    () => each.driver.delete(digest),
    () => each.driver.check(),
    () => each.driver.readIdentity(),
    async () => {
      for await (const page of each.driver.list()) t.fail(`${page.length} listed`);
    },
  ]) {
    await t.throwsAsync(work, { name: 'StorageUnavailable' }, String(work));
  }
});

test.serial('the check notices an emptied bucket', async (t) => {
  const each = await setUp(t);
  await each.driver.writeIdentity('ours');
  await each.driver.check();
  each.s3.objects.clear();
  await t.throwsAsync(each.driver.check(), { name: 'StorageUnavailable' });
});

test.serial('uploads in parts that were never finished are aborted after three days', async (t) => {
  const each = await setUp(t);
  const { uploads } = each.s3;
  uploads.set('old', { key: 'blobs/sha256/ab/ab', initiated: begun(73), parts: new Map() });
  uploads.set('recent', { key: 'blobs/sha256/ab/ab', initiated: begun(71), parts: new Map() });
  await each.driver.shrinkQuarantine({ before: 0, maxBytes: 0, dryRun: true });
  t.is(uploads.size, 2);
  // In pages: two uploads of one key, and others.
  uploads.set('other', { key: 'blobs/sha256/ab/ab', initiated: begun(74), parts: new Map() });
  uploads.set('next', { key: 'blobs/sha256/cd/cd', initiated: begun(100), parts: new Map() });
  uploads.set('foreign', { key: 'backups/full', initiated: begun(100), parts: new Map() });
  each.s3.pageSize = 1;
  await each.driver.shrinkQuarantine({ before: 0, maxBytes: 0 });
  t.deepEqual([...uploads.keys()], ['recent', 'foreign']);
});

/** The time `hours` ago. */
function begun(hours: number): Date {
  return new Date(Date.now() - hours * 3_600_000);
}
