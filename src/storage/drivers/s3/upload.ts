import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { S3Client } from '@aws-sdk/client-s3';
import { hexOf } from '../../../runtime/digest.ts';
import { isDomainError } from '../../../runtime/errors.ts';
import type { StagedFile } from '../../files/staged-file.ts';
import { bucketUnavailable, type Bucket } from './bucket.ts';
import { isMissing, isThrottled, isTransientS3 } from './failures.ts';

/** Sizes of an upload, in bytes. */
export interface UploadSizes {
  /** A larger file is sent in parts. */
  single: number;
  /** Smallest part. S3 takes at most 10,000 parts. */
  part: number;
}

/** What an upload reads: a staged file, or stored bytes. `path` is for messages. */
export type UploadBytes = Pick<StagedFile, 'path' | 'size' | 'read' | 'runningDigest'>;

export const uploadSizes: UploadSizes = { single: 64 * 2 ** 20, part: 32 * 2 ** 20 };
const maxParts = 9000;
/** Parts of one file that are sent at the same time. */
export const partsAtOnce = 3;
/** Bytes of one read of the staged file. */
const readSize = 256 * 1024;

/**
 * Sends bytes to their final key, and checks the size of the result. The object appears when all bytes have arrived.
 * S3 compares the bytes with their SHA-256. Rejects with `StorageUnavailable` after the last attempt.
 */
export async function upload(bucket: Bucket, key: string, staged: UploadBytes, sizes: UploadSizes): Promise<void> {
  if (staged.size > sizes.single) await sendParts(bucket, key, staged, sizes.part);
  else {
    // Computed while the bytes arrived, so S3 also refuses bytes that the local disk has damaged since.
    const running = staged.runningDigest('sha256');
    await sendWhole(bucket, key, staged, running ? hexOf(running) : await hashRange(staged, 0, staged.size));
  }
  const stored = await bucket.head(key);
  if (stored?.size === staged.size) return;
  throw bucketUnavailable(new Error(`S3 stored ${stored?.size ?? 'none'} of ${staged.size} bytes of ${key}`));
}

/** Aborts uploads in parts below `prefix` that began before `before` and were never finished. */
export async function abortStaleUploads(bucket: Bucket, prefix: string, before: number): Promise<void> {
  const { ListMultipartUploadsCommand } = bucket.sdk;
  let marker: { KeyMarker?: string; UploadIdMarker?: string } = {};
  for (let isLast = false; !isLast;) {
    const input = { Bucket: bucket.name, Prefix: prefix, ...marker };
    const page = await bucket.run((abortSignal) =>
      bucket.client.send(new ListMultipartUploadsCommand(input), { abortSignal }),
    );
    for (const { Key, UploadId, Initiated } of page.Uploads ?? []) {
      if (Key === undefined || UploadId === undefined || !Initiated || Initiated.getTime() >= before) continue;
      await abort(bucket, Key, UploadId);
    }
    const { NextKeyMarker = '', NextUploadIdMarker = '' } = page;
    isLast = !page.IsTruncated || (NextKeyMarker === marker.KeyMarker && NextUploadIdMarker === marker.UploadIdMarker);
    marker = { KeyMarker: NextKeyMarker, UploadIdMarker: NextUploadIdMarker };
  }
}

async function sendWhole(bucket: Bucket, key: string, staged: UploadBytes, sha256: string): Promise<void> {
  const { size } = staged;
  await sendBody(bucket, staged, 0, size, (body, signal) =>
    sendObject(bucket, bucket.client, { key, body, size, sha256 }, signal),
  );
}

/**
 * Stores `size` bytes of `body` with one request. S3 stores nothing if they do not have this SHA-256. Rejects if S3 answers with
 * the SHA-256 of other bytes; then it removes them, because a later put would find an object of the right size.
 */
export async function sendObject(
  bucket: Bucket,
  client: S3Client,
  { key, body, size, sha256 }: { key: string; body: Readable; size: number; sha256: string },
  abortSignal: AbortSignal,
): Promise<void> {
  const ChecksumSHA256 = Buffer.from(sha256, 'hex').toString('base64');
  const command = new bucket.sdk.PutObjectCommand({
    Bucket: bucket.name,
    Key: key,
    Body: body,
    ContentLength: size,
    ChecksumSHA256,
  });
  signBody(command, sha256);
  const stored = await client.send(command, { abortSignal });
  // Only some servers answer with it.
  if (stored.ChecksumSHA256 === undefined || stored.ChecksumSHA256 === ChecksumSHA256) return;
  if ((await bucket.head(key))?.etag === stored.ETag) await bucket.delete(key);
  throw new Error(`S3 stored other bytes of ${key} than were sent`);
}

async function sendParts(bucket: Bucket, key: string, staged: UploadBytes, minPart: number): Promise<void> {
  const { CreateMultipartUploadCommand, UploadPartCommand, CompleteMultipartUploadCommand } = bucket.sdk;
  const object = { Bucket: bucket.name, Key: key };
  const { UploadId } = await bucket.run((abortSignal) =>
    bucket.client.send(new CreateMultipartUploadCommand(object), { abortSignal }),
  );
  if (UploadId === undefined) throw bucketUnavailable(new Error('S3 sent no upload ID'));
  const partSize = Math.max(minPart, Math.ceil(staged.size / maxParts));
  const count = Math.ceil(staged.size / partSize);
  const tags: string[] = [];
  let next = 0;
  const failed = new AbortController();
  const sendNext = async () => {
    while (next < count && !failed.signal.aborted) {
      const index = next;
      next += 1;
      const start = index * partSize;
      const end = Math.min(staged.size, start + partSize);
      const sha256 = await hashRange(staged, start, end);
      const { ETag } = await sendBody(bucket, staged, start, end, (body, abortSignal) => {
        const part = { UploadId, PartNumber: index + 1, Body: body, ContentLength: end - start };
        const command = new UploadPartCommand({ ...object, ...part });
        signBody(command, sha256);
        return bucket.client.send(command, { abortSignal });
      });
      if (ETag === undefined) throw bucketUnavailable(new Error('S3 sent no ETag of a part'));
      tags[index] = ETag;
    }
  };
  try {
    const senders = Array.from({ length: partsAtOnce }, () =>
      sendNext().catch((error: unknown) => {
        failed.abort();
        throw error;
      }),
    );
    for (const sent of await Promise.allSettled(senders)) if (sent.status === 'rejected') throw sent.reason;
    const Parts = tags.map((ETag, index) => ({ ETag, PartNumber: index + 1 }));
    const command = { ...object, UploadId, MultipartUpload: { Parts } };
    await bucket.run(
      (abortSignal) => bucket.client.send(new CompleteMultipartUploadCommand(command), { abortSignal }),
      bucket.times.assemble,
    );
  } catch (error) {
    // An earlier attempt may have assembled the object although its answer was lost. The caller checks the size.
    if (isMissing(error)) return;
    // If this fails, the job `gc` aborts the upload later.
    await abort(bucket, key, UploadId).catch(() => undefined);
    throw isDomainError(error) ? error : bucketUnavailable(error);
  }
}

async function abort(bucket: Bucket, key: string, UploadId: string): Promise<void> {
  const command = { Bucket: bucket.name, Key: key, UploadId };
  await bucket
    .run((abortSignal) => bucket.client.send(new bucket.sdk.AbortMultipartUploadCommand(command), { abortSignal }))
    .catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
}

/** Sends bytes of a staged file; repeats it from their start after a temporary failure. Ends an attempt that makes no progress. */
async function sendBody<T>(
  bucket: Bucket,
  staged: UploadBytes,
  start: number,
  end: number,
  send: (body: Readable, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const pieces = (onProgress: () => void) => readRange(staged, start, end, onProgress);
    try {
      return await sendOnce(bucket, pieces, readSize, new AbortController(), send);
    } catch (error) {
      if (attempt >= bucket.times.attempts || !isTransientS3(error)) throw bucketUnavailable(error);
      await bucket.pause(attempt, isThrottled(error));
    }
  }
}

/**
 * Sends a body once, in pieces of about `pieceSize` bytes. Aborts `controller` when no piece was taken for a while, and when a
 * piece cannot be read; then rejects with the error of the read.
 */
export async function sendOnce<T>(
  bucket: Bucket,
  pieces: (onProgress: () => void) => AsyncGenerator<Buffer>,
  pieceSize: number,
  controller: AbortController,
  send: (body: Readable, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timer = setTimeout(() => controller.abort(), bucket.times.idle);
  let unreadable: { error: unknown } | undefined;
  const read = async function* () {
    try {
      yield* pieces(() => timer.refresh());
    } catch (error) {
      // The client of S3 does not end a request whose body failed, but destroys a body whose request failed.
      if (!body.destroyed) unreadable = { error };
      controller.abort();
      throw error;
    }
  };
  const body: Readable = Readable.from(read(), { objectMode: false, highWaterMark: pieceSize });
  body.on('error', () => undefined);
  try {
    return await send(body, controller.signal);
  } catch (error) {
    throw unreadable ? unreadable.error : error;
  } finally {
    clearTimeout(timer);
    body.destroy();
  }
}

async function* readRange(
  staged: UploadBytes,
  start: number,
  end: number,
  onProgress: () => void,
): AsyncGenerator<Buffer> {
  for (let position = start; position < end;) {
    const buffer = Buffer.allocUnsafe(Math.min(readSize, end - position));
    const read = await staged.read(buffer, position);
    if (read === 0) throw new Error(`${staged.path} is shorter than its ${staged.size} bytes`);
    position += read;
    onProgress();
    yield buffer.subarray(0, read);
  }
}

async function hashRange(staged: UploadBytes, start: number, end: number): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of readRange(staged, start, end, () => undefined)) hash.update(piece);
  return hash.digest('hex');
}

/** Signs the request together with the SHA-256 of its body, so that S3 refuses other bytes. */
function signBody(
  command: { middlewareStack: { add(middleware: never, options: { step: 'build' }): void } },
  sha256: string,
): void {
  const middleware =
    (next: (args: unknown) => unknown) =>
    (args: { request: { headers: Record<string, string> } }): unknown => {
      args.request.headers['x-amz-content-sha256'] = sha256;
      return next(args);
    };
  command.middlewareStack.add(middleware as never, { step: 'build' });
}
