import { randomBytes } from 'node:crypto';
import { truncate } from 'node:fs/promises';
import test from 'ava';
import { digestOf } from '../../../../src/runtime/digest.ts';
import { readAll } from '../../../../src/storage/files/content.ts';
import { StagedFile } from '../../../../src/storage/files/staged-file.ts';
import { blobKey, s3Access, startS3 } from '../../../support/s3.ts';
import { within } from '../../../support/until.ts';
import { store } from '../driver-suite.ts';
import { failing, large, openOnS3, slowDown, small } from './faulty.ts';
import { testS3 } from './s3-suite.ts';

// In a process of its own: a helper declares tests of it.

// The same suite as that of Swift in `test/clients/s3.test.ts`.

testS3('fake S3', async (t) => s3Access(await startS3(t)));

// What a server does wrong, without waiting. `faults.long.test.ts` has the rest.

test.serial('a request is repeated after a failure that may be temporary, three times at most', async (t) => {
  const each = await openOnS3(t);
  const tries = (method: string) => each.s3.requests.splice(0).filter((request) => request.method === method).length;
  for (const fault of ['reset', slowDown] as const) {
    const bytes = randomBytes(100);
    failing(each.s3, 'PUT blobs/', fault, 3);
    const digest = await store(each, bytes);
    t.true(each.s3.objects.get(blobKey(digest))!.bytes.equals(bytes));
    t.is(tries('PUT'), 4);
    failing(each.s3, 'PUT blobs/', fault);
    await t.throwsAsync(store(each, randomBytes(100)), { name: 'StorageUnavailable' });
    t.is(tries('PUT'), 4);
  }
  failing(each.s3, 'PUT blobs/', { code: 'AccessDenied', status: 403 });
  await t.throwsAsync(store(each, small), { name: 'StorageUnavailable' });
  t.is(tries('PUT'), 1, 'the next attempt would fail, too');

  const bytes = randomBytes(600_000);
  const digest = digestOf(bytes);
  each.s3.objects.set(blobKey(digest), { bytes, modified: new Date(), etag: '"x"' });
  failing(each.s3, 'GET blobs/', 'cut body', 3);
  t.true(bytes.equals(await readAll(await each.driver.open(digest, bytes.length), bytes.length)));
  t.is(tries('GET'), 4);
});

test.serial('a put whose bytes S3 stored in part fails', async (t) => {
  const each = await openOnS3(t);
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
    const each = await openOnS3(t);
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
  const each = await openOnS3(t);
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
  const each = await openOnS3(t);
  failing(each.s3, 'PUT blobs/', 'no tag', 1);
  const error = await t.throwsAsync(store(each, large), { name: 'StorageUnavailable' });
  t.regex(String(error.cause), /no ETag of a part/);
  t.is(each.s3.uploads.size, 0);
  t.deepEqual(
    each.s3.requests.filter(({ text, query }) => text.startsWith('POST') && query.has('uploadId')),
    [],
  );
});

test.serial('a put whose upload in parts another has aborted fails', async (t) => {
  const each = await openOnS3(t);
  each.s3.fault = ({ method, query }) => {
    if (method === 'POST' && query.has('uploadId')) each.s3.uploads.clear();
    return undefined;
  };
  await t.throwsAsync(store(each, large), { name: 'StorageUnavailable' });
  t.false(each.s3.objects.has(blobKey(digestOf(large))));
});

test.serial('a put whose file cannot be read does not wait until the request is too old', async (t) => {
  const each = await openOnS3(t, 60_000);
  const staged = await StagedFile.create(each.paths);
  await staged.write(small);
  await truncate(staged.path, small.length - 1);
  const error = await t.throwsAsync(within(each.driver.put(digestOf(small), staged)), { name: 'StorageUnavailable' });
  t.regex(String(error.cause), /is shorter than its/);
  await staged.discard();
});

test.serial('content that does not match its digest rejects before its last byte', async (t) => {
  const each = await openOnS3(t);
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

test.serial('a missing bucket is no missing blob', async (t) => {
  const each = await openOnS3(t);
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
  const each = await openOnS3(t);
  await each.driver.writeIdentity('ours');
  await each.driver.check();
  each.s3.objects.clear();
  await t.throwsAsync(each.driver.check(), { name: 'StorageUnavailable' });
});

test.serial('uploads in parts that were never finished are aborted after three days', async (t) => {
  const each = await openOnS3(t);
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
