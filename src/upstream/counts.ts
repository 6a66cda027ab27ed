import { Times } from '../metrics/times.ts';
import type { LastFailure } from '../metrics/upstreams.ts';
import { isUnsent } from './failures.ts';

/** Upper bounds in seconds. */
const bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** An upstream may send any status; those outside the registered classes share one name, so that they stay few. */
const firstStatus = 200;
const lastStatus = 599;

/** A rate limit that an upstream has announced, until the end of its window (milliseconds since 1970). */
export interface RateLimit {
  remaining: number;
  limit: number | undefined;
  until: number;
}

/** What one upstream was asked, and how it answered. */
export class UpstreamCounts {
  /**
   * Requests by status of the answer; `timeout`, `error` or `cancelled` without an answer. Each redirect and each retry is
   * a request. The first ones are there from the start, because Prometheus cannot see the increase to a first value.
   */
  readonly statuses = new Map<string, number>(['200', '429', '500', '503', 'timeout', 'error'].map((key) => [key, 0]));
  /** From the request to the beginning of its answer, or to its failure. */
  readonly times = new Times(bounds);
  /** Bytes of bodies that were received. */
  received = 0;
  /** Bodies that were cut because they came too slowly. */
  slowBodies = 0;
  /** When it last answered a request without a failure, in milliseconds since 1970; null if it never did. */
  succeededAt: number | null = null;
  lastFailure: LastFailure | null = null;
  /** Requests that failed since the last success. */
  failures = 0;
  /** Answers with vulnerability data that lack this upstream's, because it fails and has never sent any. */
  auditsWithout = 0;
  #limit: RateLimit | undefined;

  /** Counts the request that `send` sends. */
  async request<T extends { status: number }>(signal: AbortSignal | undefined, send: () => Promise<T>): Promise<T> {
    const startedAt = performance.now();
    try {
      const answer = await send();
      const { status } = answer;
      this.#count(status >= firstStatus && status <= lastStatus ? String(status) : 'other', startedAt);
      return answer;
    } catch (error) {
      if (signal?.aborted) this.#count('cancelled', startedAt);
      else if (!isUnsent(error)) {
        this.#count((error as { code?: string }).code === 'ETIMEDOUT' ? 'timeout' : 'error', startedAt);
      }
      throw error;
    }
  }

  succeeded(now: number): void {
    this.succeededAt = now;
    this.failures = 0;
  }

  failed(failure: LastFailure): void {
    this.lastFailure = failure;
    this.failures += 1;
  }

  /** Notes the rate limit that an answer announces, such as `76;w=21600`; `now` is milliseconds since 1970. */
  noteLimit(remaining: string, limit: string, now: number): void {
    const left = wholeOf(remaining);
    if (left === undefined) return;
    const window = Number(/;\s*w=(\d{1,7})\b/.exec(remaining)?.[1] ?? defaultWindow);
    this.#limit = { remaining: left, limit: wholeOf(limit), until: now + window * 1000 };
  }

  /** The latest announced rate limit, until its window is over: then it says nothing any more. */
  rateLimit(now: number): RateLimit | undefined {
    return this.#limit && now < this.#limit.until ? this.#limit : undefined;
  }

  #count(status: string, startedAt: number): void {
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
    this.times.since(startedAt);
  }
}

/** Seconds of the window of a rate limit that does not say it. */
const defaultWindow = 3600;

function wholeOf(text: string): number | undefined {
  const digits = /^\s*(\d{1,9})\b/.exec(text)?.[1];
  return digits === undefined ? undefined : Number(digits);
}
