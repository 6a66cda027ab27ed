import { createHash, randomBytes, randomUUID } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import * as sdk from '@aws-sdk/client-s3';
import type { BucketOptions } from '../../../../src/storage/drivers/s3/bucket.ts';
import { presign } from '../../../../src/storage/drivers/s3/presign.ts';
import { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { testDriver } from '../driver-suite.ts';

// What every S3 server in the tests must do, the fake one and a real one: so the fake refuses what a real one refuses.

/** A bucket that exists, with the keys to it. */
export type S3Access = BucketOptions & { accessKeyId: string; secretAccessKey: string };

/** S3 refuses smaller parts, except the last one. */
export const smallestPart = 5 * 2 ** 20;

/** The tests of a server, and those of the driver on it. `open` gives a bucket, which may have other content. */
export function testS3(name: string, open: (t: ExecutionContext) => S3Access | Promise<S3Access>): void {
  testDriver(name, async (_paths, t) =>
    S3Driver.open({ ...(await open(t)), prefix: randomUUID() }, { single: smallestPart, part: smallestPart }),
  );

  const suite = (title: string, run: (t: ExecutionContext, bucket: TestedBucket) => Promise<void>) =>
    test(`${name}: ${title}`, async (t) => run(t, new TestedBucket(t, await open(t))));

  suite('a request needs the secret of a known key, the region, and a clock that is right', async (t, bucket) => {
    await bucket.put('object', 'content');
    const refusal = async (change: object) =>
      codeOf(new TestedBucket(t, { ...bucket.access, ...change }).read(`${bucket.prefix}object`));
    t.is(await refusal({ secretAccessKey: 'wrong' }), '403 SignatureDoesNotMatch');
    // AWS says the first, Swift the second.
    t.regex((await refusal({ accessKeyId: 'nobody' }))!, /^403 (?:InvalidAccessKeyId|SignatureDoesNotMatch)$/);
    t.is(await refusal({ region: 'eu-west-9' }), '400 AuthorizationHeaderMalformed');
    for (const minutes of [-20, 20]) {
      const late = new TestedBucket(t, bucket.access, minutes * 60_000);
      t.is(await codeOf(late.read(`${bucket.prefix}object`)), '403 RequestTimeTooSkewed');
    }
    const { endpoint, bucket: container } = bucket.access;
    const unsigned = await fetch(`${endpoint}/${container}/${bucket.prefix}object`);
    // AWS answers 403, Swift 400.
    t.true(unsigned.status === 403 || unsigned.status === 400, String(unsigned.status));
    t.is(await bucket.read(`${bucket.prefix}object`), 'content');
  });

  suite('what is signed cannot be changed', async (t, bucket) => {
    await bucket.put('object', 'content');
    const { client, access, prefix } = bucket;
    client.middlewareStack.add(
      (next) => (args) => {
        (args.request as { path: string }).path += 'x';
        return next(args);
      },
      { step: 'deserialize', name: 'changePath' },
    );
    t.is(await codeOf(bucket.read(`${prefix}objec`)), '403 SignatureDoesNotMatch');
    const other = new TestedBucket(t, access);
    other.client.middlewareStack.add(
      (next) => (args) => {
        (args.request as { headers: Record<string, string> }).headers['x-amz-date'] = timeText(Date.now() + 60_000);
        return next(args);
      },
      { step: 'deserialize', name: 'changeTime' },
    );
    t.is(await codeOf(other.read(`${prefix}object`)), '403 SignatureDoesNotMatch');
  });

  suite('a signed URL is for one GET of one object, until it expires', async (t, bucket) => {
    await bucket.put('object', 'content');
    const { endpoint, region, bucket: container, accessKeyId, secretAccessKey } = bucket.access;
    const sign = (change: object = {}) =>
      presign({
        endpoint: endpoint!,
        forcePathStyle: true,
        region,
        bucket: container,
        key: `${bucket.prefix}object`,
        credentials: { accessKeyId, secretAccessKey },
        expires: 300,
        now: Date.now(),
        ...change,
      });
    const got = await fetch(sign());
    t.deepEqual([got.status, await got.text()], [200, 'content']);
    t.is(await statusOf(sign(), { method: 'PUT', body: 'other' }), 403);
    t.is(await statusOf(sign(), { method: 'DELETE' }), 403);
    t.is(await statusOf(sign().replace('object?', 'other?')), 403);
    t.is(await statusOf(sign().replace('X-Amz-Expires=300', 'X-Amz-Expires=3000')), 403);
    t.is(await statusOf(sign({ credentials: { accessKeyId, secretAccessKey: 'wrong' } })), 403);
    t.is(await statusOf(sign({ now: Date.now() - 302_000 })), 403, 'it has expired');
    t.is(await statusOf(sign({ now: Date.now() - 240_000 })), 200);
    t.is(await statusOf(sign({ expires: 8 * 86_400 })), 400, 'longer than a week');
    t.is(await statusOf(sign({ key: `${bucket.prefix}none` })), 404);
    t.is(await bucket.read(`${bucket.prefix}object`), 'content');
  });

  suite('a body with another digest is not stored', async (t, bucket) => {
    const wrong = createHash('sha256').update('another').digest('hex');
    const put = (key: string, sha256?: string, more: object = {}) =>
      codeOf(bucket.put(key, 'content', more, sha256 === undefined ? {} : { 'x-amz-content-sha256': sha256 }));
    // AWS says the first, Swift the second.
    t.regex((await put('sha256', wrong))!, /^400 (?:XAmzContentSHA256Mismatch|BadDigest)$/);
    const md5 = createHash('md5').update('another').digest('base64');
    t.is(await put('md5', undefined, { ContentMD5: md5 }), '400 BadDigest');
    t.is(await put('malformed', undefined, { ContentMD5: 'short' }), '400 InvalidDigest');
    for (const key of ['sha256', 'md5', 'malformed'])
      t.is(await codeOf(bucket.read(bucket.prefix + key)), '404 NoSuchKey');
    t.is(await put('unsigned', 'UNSIGNED-PAYLOAD'), undefined);
    t.is(await put('right', createHash('sha256').update('content').digest('hex')), undefined);
    t.is(await bucket.read(`${bucket.prefix}unsigned`), 'content');
  });

  suite('the parts of an upload are those that it names, in ascending order', async (t, bucket) => {
    const bytes = randomBytes(smallestPart + 10);
    const upload = await bucket.begin('object');
    const first = await upload.send(2, bytes.subarray(0, smallestPart));
    const last = await upload.send(5, bytes.subarray(smallestPart));
    t.is(await codeOf(upload.complete([last, first])), '400 InvalidPartOrder');
    t.is(await codeOf(upload.complete([first, { ...last, ETag: first.ETag }])), '400 InvalidPart');
    t.is(await codeOf(upload.complete([first, { ...last, PartNumber: 4 }])), '400 InvalidPart');
    t.is(await codeOf(upload.complete([])), '400 MalformedXML');
    t.is(await codeOf(bucket.read(`${bucket.prefix}object`)), '404 NoSuchKey');
    t.is(await upload.complete([first, last]).then(() => 'completed'), 'completed');
    const { Body, ETag } = await bucket.get('object');
    t.true(bytes.equals(Buffer.from(await Body!.transformToByteArray())));
    t.regex(ETag!, /^"[0-9a-f]{32}-2"$/);

    const other = await bucket.begin('other');
    t.is(await codeOf(other.complete([first])), '400 InvalidPart', 'a part of another upload');
    t.is(await codeOf(bucket.uploadOf('wrong key', other.id).send(1, bytes)), '404 NoSuchUpload');
    for (const number of [0, 10_001]) t.is(await codeOf(other.send(number, Buffer.from('x'))), '400 InvalidArgument');
    await other.abort();
  });

  suite('only the last part may be small, and an aborted upload is gone', async (t, bucket) => {
    const upload = await bucket.begin('object');
    const small = await upload.send(1, randomBytes(smallestPart - 1));
    const last = await upload.send(2, Buffer.from('end'));
    t.is(await codeOf(upload.complete([small, last])), '400 EntityTooSmall');
    t.deepEqual(await bucket.uploads(), [upload.id]);
    await upload.abort();
    t.deepEqual(await bucket.uploads(), []);
    t.is(await codeOf(upload.send(1, Buffer.from('x'))), '404 NoSuchUpload');
    t.is(await codeOf(upload.complete([last])), '404 NoSuchUpload');
    t.is(await codeOf(upload.abort()), '404 NoSuchUpload');
    t.is(await codeOf(bucket.read(`${bucket.prefix}object`)), '404 NoSuchKey');
  });

  suite('a key has at most 1024 bytes', async (t, bucket) => {
    const longest = 'é'.repeat(462) + 'x'.repeat(1024 - 924 - bucket.prefix.length);
    t.is(Buffer.byteLength(bucket.prefix + longest), 1024);
    await bucket.put(longest, 'content');
    t.is(await bucket.read(bucket.prefix + longest), 'content');
    t.is(await codeOf(bucket.put(`${longest}x`, 'content')), '400 KeyTooLongError');
  });

  suite('ranges, copies, deletions and what is missing', async (t, bucket) => {
    await bucket.put('object', '0123456789');
    const part = async (Range: string) => {
      const { Body, ContentRange } = await bucket.get('object', { Range });
      return [await Body!.transformToString(), ContentRange];
    };
    t.deepEqual(await part('bytes=2-4'), ['234', 'bytes 2-4/10']);
    t.deepEqual(await part('bytes=8-20'), ['89', 'bytes 8-9/10']);
    t.deepEqual(await part('bytes=-3'), ['789', 'bytes 7-9/10']);
    t.is(await codeOf(part('bytes=10-')), '416 InvalidRange');
    await bucket.copy('object', 'copy');
    t.is(await bucket.read(`${bucket.prefix}copy`), '0123456789');
    t.is(await codeOf(bucket.copy('none', 'other')), '404 NoSuchKey');
    t.is(await codeOf(bucket.copy('object', 'object')), '400 InvalidRequest');
    await bucket.delete('object');
    await bucket.delete('object');
    t.is(await codeOf(bucket.read(`${bucket.prefix}object`)), '404 NoSuchKey');
    const elsewhere = new TestedBucket(t, { ...bucket.access, bucket: 'no-such-bucket' });
    t.is(await codeOf(elsewhere.read('object')), '404 NoSuchBucket');
    t.is(await codeOf(elsewhere.put('object', 'x')), '404 NoSuchBucket');
  });

  suite('lists are in the order of the keys, in pages', async (t, bucket) => {
    const keys = ['b', 'a/1', 'a/2', 'a&<é>', 'a'];
    for (const key of keys) await bucket.put(key, key);
    const { client, access, prefix } = bucket;
    const found: string[] = [];
    for (let token: string | undefined, pages = 0; pages < 9; pages += 1) {
      const input = { Bucket: access.bucket, Prefix: `${prefix}a`, MaxKeys: 3, ContinuationToken: token };
      const page = await client.send(new sdk.ListObjectsV2Command(input));
      t.true(page.Contents!.length <= 3);
      for (const { Key, Size } of page.Contents!) {
        found.push(Key!.slice(prefix.length));
        t.is(Size, Buffer.byteLength(found.at(-1)!));
      }
      token = page.NextContinuationToken;
      t.is(page.IsTruncated, token !== undefined);
      if (token === undefined) break;
    }
    t.deepEqual(found, ['a', 'a&<é>', 'a/1', 'a/2']);
  });
}

type Part = { ETag: string; PartNumber: number };

/** The objects of one test below a prefix of their own. */
class TestedBucket {
  readonly access: S3Access;
  readonly prefix = `${randomUUID()}/`;
  readonly client: sdk.S3Client;

  constructor(t: ExecutionContext, access: S3Access, systemClockOffset = 0) {
    this.access = access;
    const { endpoint, region, accessKeyId, secretAccessKey } = access;
    this.client = new sdk.S3Client({
      endpoint: endpoint!,
      region,
      credentials: { accessKeyId, secretAccessKey },
      forcePathStyle: true,
      maxAttempts: 1,
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      systemClockOffset,
    });
    t.teardown(() => this.client.destroy());
  }

  async put(key: string, content: string, more: object = {}, headers: Record<string, string> = {}): Promise<void> {
    const command = new sdk.PutObjectCommand({ ...this.#object(key), Body: Buffer.from(content), ...more });
    command.middlewareStack.add(
      (next) => (args) => {
        Object.assign((args.request as { headers: object }).headers, headers);
        return next(args);
      },
      { step: 'build', name: 'addHeaders' },
    );
    await this.client.send(command);
  }

  get(key: string, more: object = {}): Promise<sdk.GetObjectCommandOutput> {
    return this.client.send(new sdk.GetObjectCommand({ ...this.#object(key), ...more }));
  }

  /** The content of an object, by its whole key. */
  async read(Key: string): Promise<string> {
    const { Body } = await this.client.send(new sdk.GetObjectCommand({ Bucket: this.access.bucket, Key }));
    return Body!.transformToString();
  }

  async copy(from: string, to: string): Promise<void> {
    const CopySource = `${this.access.bucket}/${this.prefix}${from}`;
    await this.client.send(new sdk.CopyObjectCommand({ ...this.#object(to), CopySource }));
  }

  async delete(key: string): Promise<void> {
    await this.client.send(new sdk.DeleteObjectCommand(this.#object(key)));
  }

  /** The uploads in parts that are not finished. */
  async uploads(): Promise<string[]> {
    const input = { Bucket: this.access.bucket, Prefix: this.prefix };
    const { Uploads = [] } = await this.client.send(new sdk.ListMultipartUploadsCommand(input));
    return Uploads.map(({ UploadId }) => UploadId!);
  }

  async begin(key: string): Promise<TestedUpload> {
    const { UploadId } = await this.client.send(new sdk.CreateMultipartUploadCommand(this.#object(key)));
    return this.uploadOf(key, UploadId!);
  }

  uploadOf(key: string, UploadId: string): TestedUpload {
    return new TestedUpload(this.client, { ...this.#object(key), UploadId });
  }

  #object(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.access.bucket, Key: this.prefix + key };
  }
}

/** An upload in parts. */
class TestedUpload {
  readonly #client: sdk.S3Client;
  readonly #upload: { Bucket: string; Key: string; UploadId: string };

  constructor(client: sdk.S3Client, upload: { Bucket: string; Key: string; UploadId: string }) {
    this.#client = client;
    this.#upload = upload;
  }

  get id(): string {
    return this.#upload.UploadId;
  }

  async send(PartNumber: number, Body: Buffer): Promise<Part> {
    const { ETag } = await this.#client.send(new sdk.UploadPartCommand({ ...this.#upload, PartNumber, Body }));
    return { ETag: ETag!, PartNumber };
  }

  async complete(Parts: Part[]): Promise<void> {
    await this.#client.send(new sdk.CompleteMultipartUploadCommand({ ...this.#upload, MultipartUpload: { Parts } }));
  }

  async abort(): Promise<void> {
    await this.#client.send(new sdk.AbortMultipartUploadCommand(this.#upload));
  }
}

/** Status and code of the refusal; undefined without one. */
async function codeOf(request: Promise<unknown>): Promise<string | undefined> {
  try {
    await request;
    return undefined;
  } catch (error) {
    const { name, $metadata } = error as sdk.S3ServiceException;
    if ($metadata?.httpStatusCode === undefined) throw error;
    return `${$metadata.httpStatusCode} ${name}`;
  }
}

async function statusOf(url: string, init?: RequestInit): Promise<number> {
  const answer = await fetch(url, init);
  await answer.arrayBuffer();
  return answer.status;
}

function timeText(time: number): string {
  return `${new Date(time).toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`;
}
