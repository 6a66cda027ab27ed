import { setImmediate } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { Bucket, retryPause } from '../../../../src/storage/drivers/s3/bucket.ts';
import { isTransientS3, settingError } from '../../../../src/storage/drivers/s3/failures.ts';
import { abortStaleUploads, sendOnce, upload, type UploadBytes } from '../../../../src/storage/drivers/s3/upload.ts';
import { digestOf, hexOf } from '../../../../src/runtime/digest.ts';
import { s3Access, startS3 } from '../../../support/s3.ts';
import { within } from '../../../support/until.ts';

// Answers that no server of the tests gives, and what is hard to see from outside.

interface Command {
  input: Record<string, unknown>;
}
type Answers = Record<string, (input: Record<string, unknown>, call: number) => unknown>;

/** A bucket whose requests get these answers, by the names of the commands. One without an answer waits until it is aborted. */
async function bucketWith(t: ExecutionContext, answers: Answers): Promise<{ bucket: Bucket; sent: string[] }> {
  const access = { region: 'us-east-1', bucket: 'artifacts', forcePathStyle: true };
  const times = { request: 100, idle: 60_000, assemble: 100, pause: 1, attempts: 2 };
  const bucket = await Bucket.open({ ...access, accessKeyId: 'key', secretAccessKey: 'secret', times });
  t.teardown(() => bucket.close());
  const sent: string[] = [];
  const send = async (command: Command, { abortSignal }: { abortSignal: AbortSignal }) => {
    const name = command.constructor.name.replace(/Command$/, '');
    sent.push(name);
    const answer = answers[name];
    if (answer) return answer(command.input, sent.filter((each) => each === name).length);
    return new Promise((_, reject) => {
      abortSignal.addEventListener('abort', () => reject(new Error(`${name} was aborted`)));
    });
  };
  Object.assign(bucket.client, { send });
  return { bucket, sent };
}

function refusal(status: number, name: string): Error {
  return Object.assign(new Error(name), { name, $metadata: { httpStatusCode: status } });
}

function bytesOf(bytes: Buffer, reads: number[] = []): UploadBytes {
  const read = (target: Buffer, position: number) => {
    reads.push(target.length);
    return Promise.resolve(bytes.copy(target, 0, position));
  };
  return { path: 'some', size: bytes.length, read, runningDigest: () => undefined };
}

async function consume(body: unknown): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of body as AsyncIterable<Buffer>) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** What this process has open of a kind. */
function opened(kind: string): number {
  return process.getActiveResourcesInfo().filter((each) => each === kind).length;
}

/** Lets other work run. */
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await setImmediate();
}

const unavailable = { name: 'StorageUnavailable' };

function pauses(isBusy: boolean, random: number): number[] {
  return [1, 2, 3, 4].map((attempt) => retryPause(attempt, isBusy, 400, random));
}

test('pauses grow, with a bound, and are random by half', (t) => {
  t.deepEqual(pauses(false, 1), [400, 800, 1600, 3000]);
  t.deepEqual(pauses(false, 0), [200, 400, 800, 1500]);
  t.deepEqual(pauses(true, 1), [800, 1600, 3000, 3000]);
  t.is(retryPause(1, false, 400, 0.5), 300);
  const some = retryPause(1, false, 400);
  t.true(some >= 200 && some < 400);
});

test('requests that get no answer end after their time', async (t) => {
  const { bucket, sent } = await bucketWith(t, {
    CreateMultipartUpload: () => ({ UploadId: 'one' }),
    UploadPart: async ({ Body }) => ({ ETag: String((await consume(Body)).length) }),
    ListMultipartUploads: () => ({ Uploads: [{ Key: 'key', UploadId: 'one', Initiated: new Date(0) }] }),
  });
  const sizes = { single: 5, part: 5 };
  for (const [name, work] of [
    ['HeadBucket', () => bucket.check()],
    ['HeadObject', () => bucket.head('key')],
    ['DeleteObject', () => bucket.delete('key')],
    ['PutObject', () => bucket.write('key', 'text')],
    ['ListObjectsV2', () => bucket.list('key').next()],
    ['AbortMultipartUpload', () => abortStaleUploads(bucket, 'blobs/', 1)],
    ['CompleteMultipartUpload', () => upload(bucket, 'key', bytesOf(Buffer.alloc(6)), sizes)],
  ] as const) {
    const error = await t.throwsAsync<Error>(within<unknown>(work()), unavailable, name);
    t.is((error.cause as Error).message, `${name} was aborted`);
    t.is(sent.filter((each) => each === name).length, 2, name);
  }
  const other = await bucketWith(t, {});
  await t.throwsAsync(within(abortStaleUploads(other.bucket, 'blobs/', 1)), unavailable);
  await t.throwsAsync(within(upload(other.bucket, 'key', bytesOf(Buffer.alloc(6)), sizes)), unavailable);
  t.deepEqual(other.sent, ['ListMultipartUploads', 'ListMultipartUploads', ...Array(2).fill('CreateMultipartUpload')]);
});

test('a server that does not answer is counted, with the time of its requests', async (t) => {
  const s3 = await startS3(t);
  s3.fault = () => 'silent';
  const bucket = await Bucket.open({ ...s3Access(s3), times: { request: 50, pause: 1, attempts: 2 } });
  t.teardown(() => bucket.close());
  const startedAt = performance.now();
  await t.throwsAsync(within(bucket.write('key', 'text')), unavailable);
  await t.throwsAsync(within(bucket.read('key')), unavailable);
  const elapsed = (performance.now() - startedAt) / 1000;
  const counted = bucket.counts.requests().flatMap(([labels, count]) => (count > 0 ? [{ ...labels, count }] : []));
  t.deepEqual(counted, [
    { operation: 'put', result: 'failed', count: 2 },
    { operation: 'get', result: 'failed', count: 2 },
  ]);
  const { sum } = bucket.counts.times.get('put')!;
  t.true(sum > 0.09 && sum < elapsed, `${sum} of ${elapsed} s`);
  t.is(bucket.counts.retries, 2);
});

test('answers that lack what S3 always sends', async (t) => {
  const heads = [{ ContentLength: 5 }, { ETag: '"x"' }];
  const { bucket } = await bucketWith(t, {
    HeadObject: (_, call) => heads[call - 1],
    ListObjectsV2: (_, call) =>
      call === 1 ? { Contents: [{}], IsTruncated: true, NextContinuationToken: 'next' } : {},
    CreateMultipartUpload: () => ({}),
  });
  t.deepEqual(await bucket.head('key'), { size: 5, etag: '', modified: 0 });
  const error = await t.throwsAsync<Error>(bucket.head('key'), unavailable);
  t.regex(String(error.cause), /no Content-Length/);
  const pages: unknown[] = [];
  for await (const page of bucket.list('')) pages.push(page);
  t.deepEqual(pages, [[{ key: '', size: -1, modified: 0 }], []]);
  const parts = upload(bucket, 'key', bytesOf(Buffer.alloc(6)), { single: 5, part: 5 });
  t.regex(String((await t.throwsAsync<Error>(parts, unavailable)).cause), /no upload ID/);
});

test('a list that does not go on is no complete list', async (t) => {
  for (const answers of [[undefined], ['a', 'a'], ['a', undefined]]) {
    const { bucket, sent } = await bucketWith(t, {
      ListObjectsV2: (_, call) => ({ IsTruncated: true, NextContinuationToken: answers[call - 1] }),
    });
    const reading = async () => {
      for await (const page of bucket.list('')) t.deepEqual(page, []);
    };
    const error = await t.throwsAsync<Error>(within(reading()), unavailable);
    t.regex(String(error.cause), /does not end/);
    t.is(sent.length, answers.length);
  }
});

/** An upload in parts of a list. */
function begun(UploadId: string, time: number) {
  return { Key: `of ${UploadId}`, UploadId, Initiated: new Date(time) };
}

test('uploads that began before a time are aborted, until the list ends or repeats itself', async (t) => {
  const aborted: unknown[] = [];
  const markers: unknown[] = [];
  const next: [string?, string?][] = [['a', '1'], ['b', '1'], ['b'], ['b']];
  const { bucket } = await bucketWith(t, {
    ListMultipartUploads: ({ KeyMarker, UploadIdMarker }, call) => {
      markers.push([KeyMarker, UploadIdMarker]);
      const [NextKeyMarker, NextUploadIdMarker] = next[call - 1]!;
      const Uploads = call === 1 ? [begun('old', 999), begun('gone', 998), begun('new', 1000)] : undefined;
      return { Uploads, IsTruncated: true, NextKeyMarker, NextUploadIdMarker };
    },
    AbortMultipartUpload: ({ Key, UploadId }) => {
      aborted.push([Key, UploadId]);
      if (UploadId === 'gone') throw refusal(404, 'NoSuchUpload');
      return {};
    },
  });
  await within(abortStaleUploads(bucket, 'blobs/', 1000));
  t.deepEqual(aborted, [
    ['of old', 'old'],
    ['of gone', 'gone'],
  ]);
  t.deepEqual(markers, [
    [undefined, undefined],
    ['a', '1'],
    ['b', '1'],
    ['b', ''],
  ]);
  const denied = await bucketWith(t, {
    ListMultipartUploads: () => ({ Uploads: [begun('old', 1)] }),
    AbortMultipartUpload: () => {
      throw refusal(403, 'AccessDenied');
    },
  });
  await t.throwsAsync(abortStaleUploads(denied.bucket, 'blobs/', 1000), unavailable);
});

test('a file is read in small pieces, and sent once with its digest', async (t) => {
  const bytes = Buffer.alloc(600_000, 'some');
  const reads: number[] = [];
  let stored: Buffer = Buffer.alloc(0);
  const { bucket } = await bucketWith(t, {
    PutObject: async ({ Body, ContentLength, ChecksumSHA256 }) => {
      stored = await consume(Body);
      t.is(ContentLength, bytes.length);
      t.is(Buffer.from(ChecksumSHA256 as string, 'base64').toString('hex'), hexOf(digestOf(bytes)));
      // Without the checksum, which not every server sends.
      return {};
    },
    HeadObject: () => ({ ContentLength: stored.length }),
  });
  await upload(bucket, 'key', bytesOf(bytes, reads), { single: bytes.length, part: 1 });
  t.true(stored.equals(bytes));
  const once = [262_144, 262_144, 600_000 - 2 * 262_144];
  t.deepEqual(reads, [...once, ...once], 'for the digest, and for the body');
});

test('parts are larger if there would be too many, and none begins after one has failed', async (t) => {
  const bytes = Buffer.alloc(9001, 'x');
  let parts: unknown[] = [];
  let fails = false;
  const { bucket, sent } = await bucketWith(t, {
    CreateMultipartUpload: () => ({ UploadId: 'one' }),
    UploadPart: async ({ PartNumber, ContentLength, Body }) => {
      if (fails && PartNumber === 1) throw refusal(403, 'AccessDenied');
      // Later than the failure of the first.
      if (fails) await turns(20);
      if ((await consume(Body)).length !== ContentLength) throw refusal(400, 'IncompleteBody');
      return { ETag: `${PartNumber as number}: ${ContentLength}` };
    },
    CompleteMultipartUpload: ({ MultipartUpload }) => {
      parts = (MultipartUpload as { Parts: unknown[] }).Parts;
      return {};
    },
    AbortMultipartUpload: () => {
      throw refusal(403, 'AccessDenied');
    },
    HeadObject: () => ({ ContentLength: bytes.length }),
  });
  await upload(bucket, 'key', bytesOf(bytes), { single: 9000, part: 1 });
  t.is(parts.length, 4501);
  t.deepEqual(parts[0], { ETag: '1: 2', PartNumber: 1 });
  t.deepEqual(parts.at(-1), { ETag: '4501: 1', PartNumber: 4501 });
  sent.length = 0;
  fails = true;
  const error = await t.throwsAsync<Error>(
    upload(bucket, 'key', bytesOf(bytes), { single: 10, part: 100 }),
    unavailable,
  );
  t.is((error.cause as Error).message, 'AccessDenied');
  t.is(sent.filter((each) => each === 'UploadPart').length, 3);
  t.is(sent.at(-1), 'AbortMultipartUpload');
});

// They count what this process has open.

test.serial('a body that is sent is not read much ahead, and ends with its request', async (t) => {
  const { bucket } = await bucketWith(t, {});
  const before = opened('Timeout');
  let [made, hasEnded] = [0, false];
  const pieces = async function* () {
    try {
      for (; ; made += 1) yield Buffer.alloc(10);
    } finally {
      hasEnded = true;
    }
  };
  const controller = new AbortController();
  const result = await sendOnce(bucket, pieces, 10, controller, async (body, signal) => {
    body.read(1);
    await turns(50);
    t.is(signal, controller.signal);
    return 'sent';
  });
  t.is(result, 'sent');
  t.true(made <= 3, `${made} pieces`);
  await turns(50);
  t.true(hasEnded);
  t.is(opened('Timeout'), before);
  t.is(await bucket.run(() => Promise.resolve('done'), 60_000), 'done');
  t.is(opened('Timeout'), before);
});

test.serial('connections are kept for the next request, and closed with the bucket', async (t) => {
  const s3 = await startS3(t);
  const bucket = await Bucket.open({ ...s3Access(s3), times: { pause: 1 } });
  const before = opened('TCPSocketWrap');
  const use = async () => {
    await bucket.write('key', 'text');
    t.is(await bucket.read('key'), 'text');
    await bucket.early.send(new bucket.sdk.HeadObjectCommand({ Bucket: bucket.name, Key: 'key' }));
  };
  await use();
  const kept = opened('TCPSocketWrap');
  t.true(kept > before);
  await use();
  t.is(opened('TCPSocketWrap'), kept);
  bucket.close();
  const isClosed = async () => {
    while (opened('TCPSocketWrap') > before) await setImmediate();
  };
  await t.notThrowsAsync(within(isClosed()));
});

test('what a failure says about a repetition', (t) => {
  for (const [error, expected] of [
    [{}, true],
    [refusal(500, 'Other'), true],
    [refusal(499, 'Other'), false],
    [refusal(404, 'NoSuchKey'), false],
    [refusal(429, 'Other'), true],
    [refusal(400, 'RequestTimeout'), true],
    [{ name: 'CredentialsProviderError' }, false],
    [{ code: 'ECONNRESET' }, true],
    [{ code: 'CERT_HAS_EXPIRED' }, false],
    [{ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' }, false],
    [{ code: 'SELF_SIGNED' }, false],
    [{ code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' }, false],
    [{ code: 'UNABLE_TO_GET_ISSUER' }, false],
  ] as const)
    t.is(isTransientS3(error), expected, JSON.stringify(error));
});

test('what a failure says about the settings', (t) => {
  for (const [error, message] of [
    [
      { name: 'CredentialsProviderError', message: 'a\nb' },
      'accessKeyId: S3 does not know the access key, or none was found (write: CredentialsProviderError: a)',
    ],
    [
      refusal(403, 'InvalidAccessKeyId'),
      'accessKeyId: S3 does not know the access key, or none was found (write: InvalidAccessKeyId: InvalidAccessKeyId)',
    ],
    [
      refusal(403, 'SignatureDoesNotMatch'),
      'secretAccessKey: the secret does not fit the access key (write: SignatureDoesNotMatch: SignatureDoesNotMatch)',
    ],
    [refusal(404, 'Other'), 'bucket: the bucket cannot be used: S3 answers 404 (write: Other: Other)'],
    [
      refusal(403, 'RequestTimeTooSkewed'),
      'endpoint: the clocks of this machine and of S3 differ; set them by NTP (write: RequestTimeTooSkewed: RequestTimeTooSkewed)',
    ],
    [
      { name: 'Error', code: 'CERT_HAS_EXPIRED', message: 'old' },
      'caFile: the certificate of the S3 server is not trusted (write: old)',
    ],
    [{ name: '', message: 'x'.repeat(301) }, `endpoint: the S3 server cannot be reached (write: ${'x'.repeat(300)})`],
    [{}, 'endpoint: the S3 server cannot be reached (write: )'],
  ] as const) {
    const found = settingError(error, 'write');
    t.is(`${found.setting}: ${found.message}`, `storage.s3.${message}`);
    t.is(found.cause, error);
  }
});
