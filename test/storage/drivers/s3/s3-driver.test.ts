import { randomBytes } from 'node:crypto';
import { truncate } from 'node:fs/promises';
import test from 'ava';
import { digestOf } from '../../../../src/runtime/digest.ts';
import { readAll } from '../../../../src/storage/files/content.ts';
import { StagedFile } from '../../../../src/storage/files/staged-file.ts';
import { StorageSettingError } from '../../../../src/storage/drivers/s3/failures.ts';
import { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { blobKey, s3Access, startS3 } from '../../../support/s3.ts';
import { within } from '../../../support/until.ts';
import { store } from '../driver-suite.ts';
import { failing, large, openOnS3, slowDown, small } from './faulty.ts';
import { smallestPart, testS3 } from './s3-suite.ts';

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

  const other = await openOnS3(t);
  other.s3.objects.set('identity', { bytes: Buffer.from('theirs'), modified: new Date(), etag: '"x"' });
  await t.notThrowsAsync(other.driver.check(), 'before it is known');
  t.is(await other.driver.readIdentity(), 'theirs');
  other.s3.objects.clear();
  t.is(await other.driver.readIdentity(), undefined);
  await t.throwsAsync(other.driver.check(), { name: 'StorageUnavailable' });
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
  const folder = `quarantine/sha256-${'a'.repeat(64)}`;
  for (const place of ['', 'backups/'])
    each.s3.objects.set(`${place}${folder}/1`, { bytes: small, modified: new Date(), etag: '"x"' });
  const foreign = [`backups/${folder}/1`, `${folder}/1.old`, 'quarantine/sha256-ab/1', 'quarantine/notes'];
  for (const key of foreign) each.s3.objects.set(key, { bytes: small, modified: new Date(), etag: '"x"' });
  t.deepEqual(await each.driver.shrinkQuarantine({ before: 1, maxBytes: small.length }), { blobs: 0, bytes: 0 });
  t.deepEqual([...uploads.keys()], ['recent', 'foreign']);
  const removed = await each.driver.shrinkQuarantine({ before: 2, maxBytes: small.length });
  t.deepEqual(removed, { blobs: 1, bytes: small.length });
  t.deepEqual([...each.s3.objects.keys()], foreign, 'what another program put there stays');
});

test.serial('what another program put beside the blobs is not listed', async (t) => {
  const each = await openOnS3(t);
  const [digest, hex] = [await store(each, small), 'a'.repeat(64)];
  const foreign = [`x/sha256/aa/${hex}`, `sha256/bb/${hex}`, `sha256/aa/${hex}.old`, 'sha256/aa/aab', `md5/aa/${hex}`];
  for (const key of foreign) each.s3.objects.set(`blobs/${key}`, { bytes: small, modified: new Date(), etag: '"x"' });
  for await (const page of each.driver.list())
    t.deepEqual(
      page.map((blob) => blob.digest),
      [digest],
    );
});

test.serial('the same bytes that were stored again are another version', async (t) => {
  const each = await openOnS3(t);
  const digest = await store(each, small);
  const object = each.s3.objects.get(blobKey(digest))!;
  const versions = new Set<string>();
  for (const time of [1e12, 1e12 + 1000]) {
    each.s3.objects.set(blobKey(digest), { ...object, modified: new Date(time) });
    versions.add((await each.driver.stat(digest))!.version);
  }
  t.is(versions.size, 2);
});

test.serial('a sequential reader costs one request, and a small part its own bytes', async (t) => {
  const each = await openOnS3(t);
  const bytes = randomBytes(500_000);
  each.s3.objects.set(blobKey(digestOf(bytes)), { bytes, modified: new Date(), etag: '"x"' });
  const gets = () => each.s3.requests.filter(({ method, key }) => method === 'GET' && key !== '').map((r) => r.range);
  const content = await each.driver.open(digestOf(bytes), bytes.length);
  const target = Buffer.alloc(70_000);
  for (let position = 0; position < bytes.length;) position += await content.read(target, position);
  t.deepEqual(gets(), ['bytes=0-499999']);
  const part = Buffer.alloc(65_536);
  t.is(await content.read(part, 1000), 65_536);
  t.deepEqual(part, bytes.subarray(1000, 66_536));
  t.is(gets()[1], 'bytes=1000-66535');
  content.close();
  const other = await each.driver.open(digestOf(bytes), bytes.length);
  t.is(await other.read(Buffer.alloc(10), 0), 10);
  const large = Buffer.alloc(65_537);
  t.true((await other.read(large, 0)) > 0);
  t.deepEqual(gets().slice(2), ['bytes=0-9', 'bytes=0-499999']);
  other.close();
  await t.throwsAsync(other.read(large, 100_000), { name: 'Aborted' });
  t.is(gets().length, 4);
});

for (const fault of ['end body', 'wrong range', 'reset'] as const) {
  test.serial(`a read continues after a fault: ${fault}`, async (t) => {
    const each = await openOnS3(t);
    const bytes = randomBytes(300_000);
    each.s3.objects.set(blobKey(digestOf(bytes)), { bytes, modified: new Date(), etag: '"x"' });
    failing(each.s3, 'GET blobs/', fault, 2);
    const content = await each.driver.open(digestOf(bytes), bytes.length);
    const [first, rest] = [Buffer.alloc(10), Buffer.alloc(299_990)];
    t.is(await content.read(rest, 10), await content.read(rest, 10));
    t.is(await content.read(first, 0), 10);
    t.deepEqual(first, bytes.subarray(0, 10));
    t.true(bytes.equals(await readAll(content, bytes.length)));
    const { s3: counts } = each.driver.counts;
    t.is(counts.retries > 0, fault !== 'end body');
    t.true(counts.received >= bytes.length);
  });
}

test.serial('content that changed in the bucket after it was opened is damaged or missing', async (t) => {
  const each = await openOnS3(t);
  const bytes = randomBytes(300_000);
  const digest = digestOf(bytes);
  const key = blobKey(digest);
  const object = { bytes, modified: new Date(), etag: '"x"' };
  for (const [now, read, name] of [
    [bytes.subarray(1), [0, 300_000], 'ContentDamaged'],
    [bytes.subarray(0, 10), [1000, 10], 'ContentDamaged'],
    [Buffer.concat([bytes, bytes]), [0, 300_000], 'ContentDamaged'],
    [undefined, [0, 300_000], 'BlobUnknown'],
  ] as const) {
    each.s3.objects.set(key, object);
    const content = await each.driver.open(digest, bytes.length);
    if (now) each.s3.objects.set(key, { ...object, bytes: now });
    else each.s3.objects.delete(key);
    await t.throwsAsync(content.read(Buffer.alloc(read[1]), read[0]), { name }, `${now?.length}`);
    content.close();
  }
  for (const size of [bytes.length - 1, bytes.length + 1, 0]) {
    each.s3.objects.set(key, object);
    await t.throwsAsync(each.driver.open(digest, size), { name: 'ContentDamaged' });
  }
  await t.throwsAsync(each.driver.open(digestOf(''), 0), { name: 'BlobUnknown' });
});

test.serial('a refusal that may be temporary is repeated, another one is not', async (t) => {
  const each = await openOnS3(t);
  for (const [code, status, tries] of [
    ['InternalError', 500, 4],
    ['RequestTimeout', 400, 4],
    ['Throttling', 400, 4],
    ['ThrottlingException', 400, 4],
    ['TooManyRequestsException', 400, 4],
    ['SlowDown', 400, 4],
    ['Other', 429, 4],
    ['InvalidRequest', 499, 1],
    ['ExpiredToken', 500, 1],
    ['InvalidToken', 500, 1],
    ['InvalidAccessKeyId', 500, 1],
    ['Unauthorized', 500, 1],
  ] as const) {
    each.s3.requests.length = 0;
    failing(each.s3, 'PUT identity', { code, status });
    await t.throwsAsync(each.driver.writeIdentity('some', true), { name: 'StorageUnavailable' });
    t.is(each.s3.requests.length, tries, code);
  }
  const counted = each.driver.counts.s3.requests().filter(([{ operation }, count]) => operation === 'put' && count > 1);
  t.deepEqual(
    counted.map(([{ result }, count]) => [result, count]),
    [
      ['throttled', 20],
      ['failed', 13],
    ],
  );
});

test.serial('the start names the setting that a refusal is about', async (t) => {
  const s3 = await startS3(t);
  const access = { ...s3Access(s3), times: { attempts: 1 } };
  const refusal = async (change: object = {}) => {
    const driver = await S3Driver.open({ ...access, ...change });
    const error = await t.throwsAsync(driver.prepare(), { instanceOf: StorageSettingError });
    await driver.close();
    return `${error.setting.replace('storage.s3.', '')}: ${error.message}`;
  };
  for (const [code, status, message] of [
    ['ExpiredToken', 400, 'accessKeyId: S3 does not know the access key, or none was found (find the bucket: Ex'],
    ['InvalidToken', 400, 'accessKeyId: S3 does not know the access key'],
    ['Unauthorized', 401, 'accessKeyId: S3 does not know the access key'],
    ['AuthorizationHeaderMalformed', 400, 'region: the bucket is in another region (find the bucket: Authorization'],
    ['PermanentRedirect', 400, 'region: the bucket is in another region'],
    ['IllegalLocationConstraintException', 400, 'region: the bucket is in another region'],
    ['TemporaryRedirect', 400, 'region: the bucket is in another region'],
    ['Other', 301, 'region: the bucket is in another region'],
    ['Other', 404, 'bucket: there is no such bucket; create it, or correct the name (find the bucket: Other: Other)'],
    ['NoSuchBucket', 400, 'bucket: there is no such bucket'],
    ['AccessDenied', 403, 'accessKeyId: the access key may not find the bucket; check the secret'],
    ['MethodNotAllowed', 405, 'bucket: the bucket cannot be used: S3 answers 405 (find the bucket: MethodNotAllowed'],
  ] as const) {
    s3.fault = () => ({ code, status });
    const found = await refusal();
    t.is(found.slice(0, message.length), message);
  }
  s3.fault = () => undefined;
  t.regex(await refusal({ endpoint: 'http://127.0.0.1:1' }), /^endpoint: the S3 server cannot be reached \(find the b/);
  for (const [method, status, message] of [
    ['PUT', 403, 'accessKeyId: the access key may not write;'],
    ['GET', 403, 'accessKeyId: the access key may not read;'],
    ['DELETE', 403, 'accessKeyId: the access key may not delete;'],
  ] as const) {
    s3.fault = (request) =>
      request.method === method && request.key.startsWith('probe/') ? { code: 'Other', status } : undefined;
    const found = await refusal();
    t.is(found.slice(0, message.length), message);
  }
  const lists: string[] = [];
  s3.fault = ({ method, key }) => (method === 'GET' && key === '' && lists.push(key) > 1 ? slowDown : undefined);
  t.regex(await refusal(), /^bucket: the bucket cannot be used: S3 answers 503 \(list: /);
  for (const end of [undefined, 'x']) {
    s3.objects.clear();
    s3.fault = ({ method, key, query }) => {
      const prefix = query.get('prefix') ?? '';
      if (method !== 'GET' || key !== '' || !s3.objects.delete(prefix)) return undefined;
      if (end) s3.objects.set(prefix + end, { bytes: small, modified: new Date(), etag: '"x"' });
      return undefined;
    };
    t.regex(await refusal(), /\(list: an object that was written is not listed\)$/);
  }
  s3.fault = ({ method, key }) => {
    if (method === 'GET' && key.startsWith('probe/')) s3.objects.delete(key);
    return undefined;
  };
  t.regex(await refusal(), /\(read: a range of an object has other bytes than were written\)$/);
});

test.serial('a bucket describes its place, and from where clients get content', async (t) => {
  const s3 = await startS3(t);
  const access = { ...s3Access(s3), prefix: '//team/a//' };
  const about = async (change: object) => {
    const driver = await S3Driver.open({ ...access, ...change });
    t.teardown(() => driver.close());
    return [driver.describe(), await driver.fact()];
  };
  const described = { kind: 'bucket', name: 'artifacts', setting: 'storage.s3.bucket' };
  const tried = 'can be written, read, listed and deleted from';
  t.deepEqual(await about({}), [
    { ...described, tried, redirectHost: undefined },
    { place: `s3 ${s3.endpoint} artifacts //team/a` },
  ]);
  const redirect = { redirect: true, endpoint: undefined, region: 'eu-west-9', prefix: undefined };
  for (const [change, redirectHost, place] of [
    [redirect, 's3.eu-west-9.amazonaws.com', 's3 aws artifacts '],
    [{ ...redirect, forcePathStyle: false }, 'artifacts.s3.eu-west-9.amazonaws.com', 's3 aws artifacts '],
    [{ ...redirect, endpoint: 'http://s3.test:9/' }, 's3.test', 's3 http://s3.test:9 artifacts '],
    [{ ...redirect, endpoint: 'http://s3.test', publicEndpoint: 'https://cdn.test' }, 'cdn.test', undefined],
  ] as const) {
    const [found, fact] = await about(change);
    t.deepEqual(found, { ...described, tried, redirectHost });
    if (place) t.deepEqual(fact, { place });
  }
  const [, fact] = await about({ prefix: 'x'.repeat(300) });
  t.is((fact as { place: string }).place.length, 255, 'as much as the database takes');
  const driver = await S3Driver.open(access);
  t.teardown(() => driver.close());
  await driver.prepare();
  await driver.writeIdentity('ours');
  t.deepEqual([...s3.objects.keys()], ['team/a/identity']);
});

test.serial('checks of writes write at most once in their time, and after a put that failed', async (t) => {
  const each = await openOnS3(t);
  const writes = async () => {
    each.s3.requests.length = 0;
    await each.driver.checkWrites();
    return each.s3.requests.map(({ text }) => text);
  };
  t.deepEqual(await writes(), [], 'the start has written');
  failing(each.s3, 'PUT blobs/', { code: 'AccessDenied', status: 403 });
  await t.throwsAsync(store(each, small), { name: 'StorageUnavailable' });
  t.deepEqual(await writes(), ['PUT probe/write']);
  t.deepEqual(await writes(), []);
  t.is(each.s3.objects.get('probe/write')!.bytes.toString(), 'entrepot');
  await t.throwsAsync(store(each, small), { name: 'StorageUnavailable' });
  each.s3.fault = () => undefined;
  await store(each, small);
  t.deepEqual(await writes(), [], 'a put that succeeded is a check');
  failing(each.s3, 'PUT blobs/', { code: 'AccessDenied', status: 403 });
  await t.throwsAsync(store(each, Buffer.from('other')), { name: 'StorageUnavailable' });
  failing(each.s3, 'PUT probe/', { code: 'AccessDenied', status: 403 });
  await t.throwsAsync(each.driver.checkWrites(), { message: /^the access key may not write; .*AccessDenied/ });
});

test.serial('a file of the size of a part is one request, and the next size is parts', async (t) => {
  const each = await openOnS3(t);
  const bytes = large.subarray(0, smallestPart);
  each.s3.requests.length = 0;
  await store(each, bytes);
  t.deepEqual(
    each.s3.requests.map(({ method, query }) => `${method} ${query.get('partNumber') ?? ''}`),
    ['HEAD ', 'PUT ', 'HEAD '],
  );
  await store(each, large.subarray(0, smallestPart + 1));
  const parts = each.s3.requests.flatMap(({ query }) => query.get('partNumber') ?? []);
  t.deepEqual(parts.toSorted(), ['1', '2']);
  const counts = each.driver.counts.s3;
  const counted = counts.requests().filter(([{ operation }, count]) => operation !== 'get' && count > 0);
  t.deepEqual(
    counted.map(([{ operation, result }, count]) => `${operation} ${result} ${count}`),
    ['put ok 2', 'part ok 2', 'multipart ok 2', 'head ok 2', 'head missing 2', 'list ok 2', 'delete ok 1'],
  );
  t.true(counts.sent >= 2 * smallestPart + 1);
  t.is(counts.retries, 0);
});

/** The time `hours` ago. */
function begun(hours: number): Date {
  return new Date(Date.now() - hours * 3_600_000);
}
