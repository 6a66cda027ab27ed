import type { Readable } from 'node:stream';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { S3Client } from '@aws-sdk/client-s3';
import { S3Counts } from '../counts.ts';
import { storageUnavailable } from '../../files/unavailable.ts';
import { observe } from './observe.ts';
import { isMissing, isThrottled, isTransientS3 } from './failures.ts';
import { presign } from './presign.ts';

/** Names a bucket and the access to it. */
export interface BucketOptions {
  /** Without it, the server of AWS in the region. */
  endpoint?: string | undefined;
  region: string;
  bucket: string;
  /** Before every key. */
  prefix?: string | undefined;
  forcePathStyle: boolean;
  /** Without them, the SDK looks for credentials. */
  accessKeyId?: string | undefined;
  secretAccessKey?: string | undefined;
  /** PEM of a certificate authority. */
  ca?: string | undefined;
  /** Whether clients may get objects from S3 itself. */
  redirect?: boolean | undefined;
  /** URL of the server as those clients reach it; by default `endpoint`. */
  publicEndpoint?: string | undefined;
  times?: Partial<BucketTimes> | undefined;
}

/** Times in milliseconds. */
interface BucketTimes {
  /** Longest time until the answer to a request without a body begins. Less than half of `takeOverAfter`. */
  request: number;
  /** Longest time without progress of a body. */
  idle: number;
  /** Longest time to assemble an object from its parts. */
  assemble: number;
  /** First pause before a repeated request; each further one is twice as long, and twice that if the server is busy. */
  pause: number;
  /** How long a successful write counts as a check that the bucket can be written. */
  checkEvery: number;
  /** Attempts of a request. */
  attempts: number;
}

const bucketTimes: BucketTimes = {
  request: 6000,
  idle: 30_000,
  assemble: 300_000,
  pause: 250,
  checkEvery: 60_000,
  attempts: 4,
};
/** Longest pause between two attempts. */
const maxPause = 3000;
/** Connections for requests, and for bodies that are being read. */
const requestSockets = 256;
const readSockets = 1024;
/** Puts that send bytes while they arrive, at the same time. Each has up to three pieces of 1 MiB in memory. */
export const earlyPuts = 8;

/** Seconds in which a client must send its request to a signed URL. */
const urlExpires = 300;

type Sdk = typeof import('@aws-sdk/client-s3');
export type { Sdk };

/** A part of an object. */
export interface UploadPart {
  body: Readable;
  /** First byte and bytes in `body`, and bytes of the whole object. */
  start: number;
  length: number;
  size: number;
}

/** Requests to one bucket, with time limits, repeated when the failure may be temporary. */
export class Bucket {
  readonly sdk: Sdk;
  readonly name: string;
  readonly prefix: string;
  readonly times: BucketTimes;
  readonly counts = new S3Counts();
  readonly client: S3Client;
  /** For puts that send bytes while they arrive. */
  readonly early: S3Client;
  readonly #reader: S3Client;
  readonly options: BucketOptions;

  private constructor(sdk: Sdk, options: BucketOptions) {
    this.sdk = sdk;
    this.name = options.bucket;
    this.options = options;
    const path = (options.prefix ?? '').replace(/^\/+|\/+$/g, '');
    this.prefix = path === '' ? '' : `${path}/`;
    this.times = { ...bucketTimes, ...options.times };
    this.client = connect(sdk, options, requestSockets);
    this.#reader = connect(sdk, options, readSockets);
    this.early = connect(sdk, options, earlyPuts);
    for (const each of [this.client, this.#reader]) observe(each, this.counts);
    observe(this.early, this.counts, 'early');
  }

  /** Loads the SDK, which takes 0.2 s. Sends nothing. */
  static async open(options: BucketOptions): Promise<Bucket> {
    return new Bucket(await import('@aws-sdk/client-s3'), options);
  }

  /**
   * The result of `work`, which gets a signal that ends it after `limit`. Repeats it after a temporary failure, while
   * `mayRepeat`. Rejects with `StorageUnavailable`, or with the error of S3 if the object is missing.
   */
  async run<T>(
    work: (signal: AbortSignal) => Promise<T>,
    limit = this.times.request,
    mayRepeat: () => boolean = always,
  ): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await inTime(work, limit);
      } catch (error) {
        if (isMissing(error)) throw error;
        if (attempt >= this.times.attempts || !isTransientS3(error)) throw bucketUnavailable(error);
        await this.pause(attempt, isThrottled(error));
        if (!mayRepeat()) throw bucketUnavailable(error);
      }
    }
  }

  /** Waits before attempt `attempt + 1`. */
  async pause(attempt: number, isBusy: boolean): Promise<void> {
    this.counts.retries += 1;
    await sleep(retryPause(attempt, isBusy, this.times.pause));
  }

  /** Rejects when the bucket is missing or cannot be reached. An answer to HEAD does not say whether it misses the bucket or the object. */
  async check(): Promise<void> {
    const { HeadBucketCommand } = this.sdk;
    await this.run((abortSignal) =>
      this.client.send(new HeadBucketCommand({ Bucket: this.name }), { abortSignal }),
    ).catch((error: unknown) => {
      throw isMissing(error) ? bucketUnavailable(error) : error;
    });
  }

  /** One object without its body; undefined if it is missing. */
  async head(key: string): Promise<{ size: number; etag: string; modified: number } | undefined> {
    const { HeadObjectCommand } = this.sdk;
    try {
      const found = await this.run((abortSignal) =>
        this.client.send(new HeadObjectCommand({ Bucket: this.name, Key: key }), { abortSignal }),
      );
      if (found.ContentLength === undefined) throw bucketUnavailable(new Error('S3 sent no Content-Length'));
      return { size: found.ContentLength, etag: found.ETag ?? '', modified: found.LastModified?.getTime() ?? 0 };
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  /**
   * Requests bytes from `start` to before `end`, one attempt. The caller must consume or destroy the body. Rejects with the
   * error of S3, also if the answer has other bytes.
   */
  async get(key: string, start: number, end: number, signal: AbortSignal): Promise<UploadPart> {
    const { GetObjectCommand } = this.sdk;
    const command = new GetObjectCommand({ Bucket: this.name, Key: key, Range: `bytes=${start}-${end - 1}` });
    const answer = await this.#reader.send(command, { abortSignal: signal });
    const body = answer.Body as Readable;
    // An error of a body that was destroyed has no other listener.
    body.on('error', () => undefined);
    const range = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(answer.ContentRange ?? '');
    const part: UploadPart = range
      ? { body, start: Number(range[1]), length: Number(range[2]) + 1 - Number(range[1]), size: Number(range[3]) }
      : { body, start: 0, length: answer.ContentLength ?? -1, size: answer.ContentLength ?? -1 };
    if (part.start === start && part.length <= end - start && part.length >= 0) return part;
    body.destroy();
    throw new Error(`S3 sent bytes ${part.start}+${part.length}, not ${start}+${end - start}`);
  }

  /** Whether clients may get objects from S3 itself, with `signedUrl`. */
  get redirects(): boolean {
    return this.options.redirect === true;
  }

  /** The host from which clients get objects. */
  get publicHost(): string {
    const { bucket, forcePathStyle } = this.options;
    const { hostname } = new URL(this.#publicEndpoint);
    return forcePathStyle ? hostname : `${bucket}.${hostname}`;
  }

  get #publicEndpoint(): string {
    const { endpoint, publicEndpoint, region } = this.options;
    return publicEndpoint ?? endpoint ?? `https://s3.${region}.amazonaws.com`;
  }

  /** A URL for one GET of an object by a client without credentials. Sends nothing to S3. */
  async signedUrl(key: string): Promise<string> {
    const { region, bucket, forcePathStyle } = this.options;
    const credentials = await this.client.config.credentials().catch((error: unknown) => {
      throw bucketUnavailable(error);
    });
    return presign({
      endpoint: this.#publicEndpoint,
      forcePathStyle,
      region,
      bucket,
      key,
      credentials,
      expires: urlExpires,
      now: Date.now(),
    });
  }

  /** Removes an object; resolves also if it is missing. See `Driver.delete`. */
  async delete(key: string, mayRepeat?: () => boolean): Promise<void> {
    const { DeleteObjectCommand } = this.sdk;
    const input = { Bucket: this.name, Key: key };
    const send = (abortSignal: AbortSignal) => this.client.send(new DeleteObjectCommand(input), { abortSignal });
    try {
      await this.run(send, this.times.request, mayRepeat);
    } catch (error) {
      if (!isMissing(error)) throw error;
      await this.check();
    }
  }

  /** Stores a small object. */
  async write(key: string, bytes: string): Promise<void> {
    const { PutObjectCommand } = this.sdk;
    const input = { Bucket: this.name, Key: key, Body: Buffer.from(bytes) };
    await this.run((abortSignal) => this.client.send(new PutObjectCommand(input), { abortSignal }));
  }

  /** The text of a small object; undefined if it is missing. At most `limit` bytes. */
  async read(key: string, limit = 1024): Promise<string | undefined> {
    try {
      return await this.run(async (signal) => {
        const { body } = await this.get(key, 0, limit, signal);
        const pieces: Buffer[] = [];
        for await (const piece of body as AsyncIterable<Buffer>) pieces.push(piece);
        return Buffer.concat(pieces).toString();
      });
    } catch (error) {
      if (!isMissing(error)) throw error;
      await this.check();
      return undefined;
    }
  }

  /** Pages of the objects whose keys begin with `prefix`, in the order of the keys. */
  async *list(prefix: string): AsyncGenerator<{ key: string; size: number; modified: number }[]> {
    const { ListObjectsV2Command } = this.sdk;
    let token: string | undefined;
    do {
      const input = { Bucket: this.name, Prefix: prefix, ContinuationToken: token };
      const page = await this.run((abortSignal) =>
        this.client.send(new ListObjectsV2Command(input), { abortSignal }),
      ).catch((error: unknown) => {
        throw isMissing(error) ? bucketUnavailable(error) : error;
      });
      yield (page.Contents ?? []).map(({ Key, Size, LastModified }) => ({
        key: Key ?? '',
        size: Size ?? -1,
        modified: LastModified?.getTime() ?? 0,
      }));
      const next = page.IsTruncated ? page.NextContinuationToken : undefined;
      if (page.IsTruncated && (next === undefined || next === token))
        throw bucketUnavailable(new Error('S3 sent a list that does not end'));
      token = next;
    } while (token !== undefined);
  }

  close(): void {
    this.client.destroy();
    this.early.destroy();
    this.#reader.destroy();
  }
}

/** The pause before attempt `attempt + 1`, if the first is `pause`. It is random, so that many clients do not return together. */
export function retryPause(attempt: number, isBusy: boolean, pause: number, random = Math.random()): number {
  const longest = Math.min(maxPause, pause * 2 ** (attempt - (isBusy ? 0 : 1)));
  return (longest / 2) * (1 + random);
}

/** `StorageUnavailable` for an error of S3, which is only for the log. */
export function bucketUnavailable(error: unknown): Error {
  return storageUnavailable('The bucket of the storage cannot be used now.', error);
}

async function inTime<T>(work: (signal: AbortSignal) => Promise<T>, limit: number): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), limit);
  try {
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
  }
}

const ignore = () => undefined;
const always = () => true;

function connect(sdk: Sdk, options: BucketOptions, maxSockets: number): S3Client {
  const { endpoint, region, forcePathStyle, accessKeyId, secretAccessKey, ca } = options;
  const agents = { keepAlive: true, maxSockets };
  return new sdk.S3Client({
    region,
    forcePathStyle,
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(accessKeyId === undefined || secretAccessKey === undefined
      ? {}
      : { credentials: { accessKeyId, secretAccessKey } }),
    // Other servers than AWS refuse or break the checksums that the SDK adds by default.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // `Bucket` repeats requests itself, because the SDK does not repeat those with a stream.
    maxAttempts: 1,
    // Otherwise the SDK writes warnings to the console. Failures are in the log of the server.
    logger: { debug: ignore, info: ignore, warn: ignore, error: ignore },
    expectContinueHeader: false,
    requestHandler: {
      connectionTimeout: 5000,
      httpAgent: new HttpAgent(agents),
      httpsAgent: new HttpsAgent({ ...agents, ...(ca === undefined ? {} : { ca }) }),
    },
  });
}
