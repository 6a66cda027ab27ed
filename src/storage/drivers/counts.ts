import { Times } from '../../metrics/times.ts';

/**
 * Kinds of requests to S3. `early` is a put that sends bytes while they arrive. `multipart` are those about an upload in parts,
 * without the parts.
 */
const s3Operations = ['put', 'early', 'part', 'multipart', 'get', 'head', 'list', 'delete', 'copy'] as const;
export type S3Operation = (typeof s3Operations)[number];
/**
 * How a request ended: `missing` is 404, `throttled` is 503 or 429. `stopped` is an early put whose bytes were not to be stored,
 * or were not taken in time.
 */
const s3Results = ['ok', 'missing', 'throttled', 'failed', 'stopped'] as const;
export type S3Result = (typeof s3Results)[number];

const bounds = [0.005, 0.02, 0.05, 0.1, 0.25, 1, 5, 30];

/** What this process has requested from S3. */
export class S3Counts {
  readonly #requests = new Map<string, number>();
  /** Time until the answer began, by operation. */
  readonly times = new Map<S3Operation, Times>(s3Operations.map((each) => [each, new Times(bounds)]));
  /** Bytes of bodies. */
  sent = 0;
  received = 0;
  /** Requests that were sent again after a failure. */
  retries = 0;

  /** `seconds` is the time until the answer began, or the request failed. */
  count(operation: S3Operation, result: S3Result, seconds: number): void {
    const key = `${operation} ${result}`;
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
    this.times.get(operation)!.observe(seconds);
  }

  /** Requests by operation and result, as series that begin at 0. */
  requests(): [labels: { operation: S3Operation; result: S3Result }, count: number][] {
    return s3Operations.flatMap((operation) =>
      s3Results.map((result): [{ operation: S3Operation; result: S3Result }, number] => [
        { operation, result },
        this.#requests.get(`${operation} ${result}`) ?? 0,
      ]),
    );
  }
}

/** The local copies of this process. */
export interface CacheCounts {
  /** Readers that got a copy, readers that followed one that was being made, and readers that needed the storage. */
  hit: number;
  joined: number;
  miss: number;
  /** Copies that were deleted because there were too many bytes. */
  evicted: number;
  /** Bytes of all copies. */
  bytes: number;
}

/** What a remote driver counts. */
export interface StorageCounts {
  s3: S3Counts;
  cache?: Readonly<CacheCounts> | undefined;
}
