import { randomBytes } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import test from 'ava';
import { digestOf } from '../../../../src/runtime/digest.ts';
import type { S3Result } from '../../../../src/storage/drivers/counts.ts';
import type { EarlyUpload } from '../../../../src/storage/drivers/s3/early-upload.ts';
import type { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { blobKey, type FakeS3, type S3Request } from '../../../support/s3.ts';
import { until, within } from '../../../support/until.ts';
import { stage } from '../driver-suite.ts';
import { failing, openOnS3 } from './faulty.ts';

// In a process of its own: a helper declares tests of it.

// Files that are sent to S3 while they grow. `early.long.test.ts` has whole servers.

const mebibyte = 2 ** 20;

const puts = ({ requests }: FakeS3): S3Request[] =>
  requests.filter(({ method, key }) => method === 'PUT' && key.startsWith('blobs/'));
const earlyPuts = ({ driver }: { driver: S3Driver }, result: S3Result): number =>
  driver.counts.s3.requests().find(([each]) => each.operation === 'early' && each.result === result)![1];
const storedIn = (s3: FakeS3, body: Buffer): boolean =>
  s3.objects.get(blobKey(digestOf(body)))?.bytes.equals(body) === true;

test('the last byte waits for the put', async (t) => {
  for (const end of ['put', 'stop'] as const) {
    const each = await openOnS3(t);
    const body = randomBytes(2 * mebibyte);
    const staged = await stage(each, Buffer.alloc(0));
    const early = each.driver.putEarly(digestOf(body), staged, body.length)!;
    await staged.write(body);
    early.grown();
    await until(() => puts(each.s3)[0]?.received === body.length - 1);
    for (let turn = 0; turn < 100; turn += 1) await setImmediate();
    t.is(puts(each.s3)[0]!.received, body.length - 1);
    t.false(storedIn(each.s3, body));
    if (end === 'stop') early.stop();
    await each.driver.put(digestOf(body), staged);
    t.true(storedIn(each.s3, body));
    t.is(puts(each.s3).length, end === 'put' ? 1 : 2);
    await staged.discard();
  }
});

test('a session whose first request broke off before its first byte is sent early again', async (t) => {
  const each = await openOnS3(t);
  const body = randomBytes(2 * mebibyte);
  const staged = await stage(each, Buffer.alloc(0));
  each.driver.putEarly(digestOf(body), staged, body.length)!.stop();
  const early = each.driver.putEarly(digestOf(body), staged, body.length)!;
  await staged.write(body);
  early.grown();
  await until(() => puts(each.s3)[0]?.received === body.length - 1);
  await each.driver.put(digestOf(body), staged);
  t.true(storedIn(each.s3, body));
  t.is(puts(each.s3).length, 1);
  await staged.discard();
});

test('a file that is shorter than its put said is not stored early', async (t) => {
  const each = await openOnS3(t);
  const body = randomBytes(2 * mebibyte);
  const staged = await stage(each, Buffer.alloc(0));
  const early = each.driver.putEarly(digestOf(body), staged, body.length + 1)!;
  await staged.write(body);
  early.grown();
  await until(() => puts(each.s3)[0]?.received === body.length);
  await within(each.driver.put(digestOf(body), staged));
  t.true(storedIn(each.s3, body));
  t.is(puts(each.s3).length, 2);
  await staged.discard();
});

test('a file of which S3 has the bytes, or refuses them early, is sent as any other, once', async (t) => {
  for (const [what, count] of [
    ['stored', 0],
    ['refused', 2],
    ['stored in part', 2],
  ] as const) {
    const each = await openOnS3(t);
    const body = randomBytes(mebibyte);
    const object = { bytes: body, modified: new Date(), etag: '"x"' };
    if (what === 'stored') each.s3.objects.set(blobKey(digestOf(body)), object);
    else failing(each.s3, 'PUT blobs/', what === 'refused' ? { code: 'NotImplemented', status: 501 } : 'store half', 1);
    const staged = await stage(each, body);
    const early = each.driver.putEarly(digestOf(body), staged, body.length) as EarlyUpload;
    if (what === 'stored') t.false(await within(early.stored));
    else await until(() => puts(each.s3).length === 1);
    await within(each.driver.put(digestOf(body), staged));
    t.true(storedIn(each.s3, body), what);
    t.is(puts(each.s3).length, count, what);
    t.is(earlyPuts(each, 'failed'), what === 'refused' ? 1 : 0);
    await staged.discard();
  }
});

test('only some sizes and digests are sent early, and few files at the same time', async (t) => {
  const each = await openOnS3(t);
  const files = await Promise.all(Array.from({ length: 9 }, () => stage(each, Buffer.alloc(0))));
  const begin = (index: number, size: number, digest = digestOf(String(index))) =>
    each.driver.putEarly(digest, files[index]!, size);
  t.is(begin(0, mebibyte - 1), undefined);
  t.is(begin(0, 5 * 2 ** 30 + 1), undefined);
  t.is(begin(0, mebibyte, digestOf('other', 'sha512')), undefined);
  const begun = files.slice(1).map((_, index) => begin(index, index === 0 ? 5 * 2 ** 30 : mebibyte)!);
  t.is(begin(8, mebibyte), undefined, 'a ninth');
  for (const early of begun) early.stop();
  await until(() => begin(8, mebibyte) !== undefined);
  t.is(puts(each.s3).filter(({ received }) => received > 0).length, 0);
  t.is(earlyPuts(each, 'stopped'), 0, 'a put that is stopped before it begins is no request');
  for (const file of files) await file.discard();
});

test('a file whose early put has not begun when it is complete is sent as any other', async (t) => {
  const each = await openOnS3(t);
  const [body, head] = [randomBytes(mebibyte), Promise.withResolvers<void>()];
  let isFirst = true;
  each.s3.fault = () => {
    if (!isFirst) return undefined;
    isFirst = false;
    return { after: head.promise };
  };
  const staged = await stage(each, body);
  each.driver.putEarly(digestOf(body), staged, body.length);
  await until(() => !isFirst);
  await within(each.driver.put(digestOf(body), staged));
  t.true(storedIn(each.s3, body));
  t.is(each.driver.counts.s3.retries, 0, 'the put did not wait for the early one');
  head.resolve();
  await staged.discard();
});

test('a file of which S3 has taken little when it is complete is sent in parts if it is large', async (t) => {
  for (const [size, sent, parts] of [
    [6, 1, 2],
    [6, 2, 0],
    [5, 1, 0],
  ] as const) {
    const each = await openOnS3(t);
    const body = randomBytes(size * mebibyte);
    const staged = await stage(each, body.subarray(0, sent * mebibyte));
    each.driver.putEarly(digestOf(body), staged, body.length);
    await until(() => puts(each.s3)[0]?.received === sent * mebibyte);
    // Nobody says that the file has grown, so no more of it is sent early.
    await staged.write(body.subarray(sent * mebibyte));
    await within(each.driver.put(digestOf(body), staged));
    t.true(storedIn(each.s3, body));
    t.is(puts(each.s3).length, 1 + parts);
    t.is(puts(each.s3).filter(({ query }) => query.has('partNumber')).length, parts);
    await until(() => earlyPuts(each, parts > 0 ? 'stopped' : 'ok') === 1);
    await staged.discard();
  }
});
