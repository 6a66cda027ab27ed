import { randomBytes } from 'node:crypto';
import test from 'ava';
import { digestOf } from '../../../../src/runtime/digest.ts';
import { readAll } from '../../../../src/storage/files/content.ts';
import { blobKey } from '../../../support/s3.ts';
import { store } from '../driver-suite.ts';
import { failing, large, openOnS3, slowDown, small } from './faulty.ts';
import { smallestPart } from './s3-suite.ts';

// In a process of its own: a helper declares tests of it.

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
    const each = await openOnS3(t, limit);
    for (const bytes of [small, large]) {
      failing(each.s3, 'PUT blobs/', fault, 3);
      const digest = await store(each, bytes);
      each.s3.fault = () => undefined;
      t.true(bytes.equals(await readAll(await each.driver.open(digest, bytes.length), bytes.length)));
      t.is(each.s3.uploads.size, 0);
    }
  });

  test.serial(`a put fails if ${name} continues, and leaves nothing`, async (t) => {
    const each = await openOnS3(t, fault === 'silent' ? 200 : undefined);
    failing(each.s3, 'PUT blobs/', fault);
    await t.throwsAsync(store(each, large), { name: 'StorageUnavailable' });
    each.s3.fault = () => undefined;
    t.is(each.s3.uploads.size, 0, 'the upload in parts is aborted');
    t.is(await each.driver.stat(digestOf(large)), undefined);
    t.true(each.s3.requests.filter(({ method }) => method === 'PUT').length <= 12, 'at most four attempts of a part');
  });
}

for (const [name, fault] of [
  ['a lost answer', 'lose answer'],
  ['an error in an answer 200', { code: 'InternalError', status: 200 }],
  ['SlowDown', slowDown],
] as const) {
  test.serial(`an object is assembled from its parts although the request for it gets ${name}`, async (t) => {
    const each = await openOnS3(t);
    let left = 2;
    each.s3.fault = ({ method, query }) =>
      method === 'POST' && query.has('uploadId') && (left -= 1) >= 0 ? fault : undefined;
    const digest = await store(each, large);
    t.true(each.s3.objects.get(blobKey(digest))!.bytes.equals(large));
    t.is(each.s3.uploads.size, 0);
  });
}

test.serial('at most three parts of a file are sent at the same time, and nothing is copied', async (t) => {
  const each = await openOnS3(t);
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
    const each = await openOnS3(t, fault === 'stall body' ? 300 : undefined);
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
    const each = await openOnS3(t, fault === 'stall body' || fault === 'silent' ? 200 : undefined);
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
