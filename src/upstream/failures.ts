import { setTimeout as sleep } from 'node:timers/promises';
import { AddressRefused } from './addresses.ts';
import type { Failure } from './breaker.ts';

/** The longest pause that a 429 may ask for, a day: an upstream that asks for more has made a mistake. */
const longestLimit = 86_400_000;
/** The longest pause that a 5xx may ask for. */
const longestPause = 5 * 60_000;
const attempts = 3;

/**
 * What a failed request says about the upstream: a failure, or that it works (`answered`), or nothing, because it was
 * not asked (`unsent`).
 */
export type Verdict = Failure | 'answered' | 'unsent';

interface RefusedOptions {
  verdict?: Verdict;
  /** Milliseconds. */
  retryAfter?: number;
  denied?: boolean;
}

/** The upstream answered, and the answer is no; or it leads where we do not go. */
export class Refused extends Error {
  readonly verdict: Verdict;
  /** Milliseconds. */
  readonly retryAfter: number;
  /** Whether it understood who asks, and says that this is not for them. */
  readonly denied: boolean;

  constructor(message: string, { verdict = 'answered', retryAfter = 0, denied = false }: RefusedOptions = {}) {
    super(message);
    this.verdict = verdict;
    this.retryAfter = retryAfter;
    this.denied = denied;
  }
}

/** No connection was free in time: a congestion here, not a failure of the upstream. */
export class Busy extends Refused {
  readonly code = 'ETIMEDOUT';

  constructor() {
    super('was not asked: all connections to it are busy', { verdict: 'unsent', retryAfter: 1000 });
  }
}

/** The upstream is not asked any more because this server is ending. */
export class Closed extends Refused {
  constructor() {
    super('was not asked: this server is ending', { verdict: 'unsent' });
  }
}

/** There is no connection to the host: name lookup, dialling or TLS failed or took too long. `code` says which. */
export class NotConnected extends Error {
  readonly origin: string;
  readonly code: string | undefined;

  constructor(origin: string, cause: Error & { code?: string }) {
    super(cause.message, { cause });
    this.origin = origin;
    this.code = cause.code;
  }
}

/** A failure of the kind that got reports when its timers run out. */
export function timedOut(what: string): Error {
  return Object.assign(new Error(what), { code: 'ETIMEDOUT' });
}

/**
 * What an error says about the upstream at `origin`. Other hosts that the upstream leads to (a CDN, a token realm) are not
 * the upstream: one that cannot be reached is a failure of the requested resource. When all of such a host is down,
 * several resources fail, and that counts for the upstream.
 */
export function verdictOf(error: unknown, origin: string): Verdict {
  if (error instanceof Refused) return error.verdict;
  return error instanceof NotConnected && error.origin === origin ? 'connection' : 'resource';
}

/** Whether the same request may do better a moment later: a stale keep-alive socket, a reset, a single 5xx. */
export function isTransient(error: unknown): boolean {
  if (error instanceof Refused) return error.verdict === 'resource' && error.retryAfter === 0;
  const { code } = error as { code?: string };
  return code === 'ECONNRESET' || code === 'EPIPE';
}

/** Does `work`, up to three times while its failures may pass. `signal` ends the wait between two attempts. */
export async function withRetries<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (attempt === attempts || signal?.aborted || !isTransient(error)) throw error;
      await sleep(50 * attempt ** 2, undefined, { ...(signal && { signal }) });
    }
  }
}

/** Settles as `promise` does, or rejects with the reason of `signal` when that is aborted first. */
export async function orAbort<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const leave = () => reject(signal.reason as Error);
  signal.addEventListener('abort', leave);
  if (signal.aborted) leave();
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

/** The refusal of an address behind an error, if that is what it is; got wraps it. */
export function addressRefusal(error: unknown): Refused | undefined {
  const { cause } = error as { cause?: unknown };
  const refusal = [error, cause].find((each) => each instanceof AddressRefused);
  if (!refusal) return undefined;
  const message = `is at, or leads to, an address that is refused: ${(refusal as Error).message}`;
  return new Refused(message, { verdict: 'unsent' });
}

/**
 * The error for an answer of `status` 429 or 5xx. A 429 counts for the whole upstream (a rate limit is the account's) if
 * `isOwn`, and everything else for the requested resource. `Retry-After` (RFC 9110, 10.2.3) is believed up to a day for
 * the upstream and up to 5 minutes for a resource; a date is read by the upstream's own clock.
 */
export function busyRefusal(
  message: string,
  status: number,
  headers: { 'retry-after'?: string | undefined; date?: string | undefined },
  isOwn: boolean,
): Refused {
  const asked = retryAfterOf(headers['retry-after'], headers.date);
  const atLeast = status === 429 ? Math.max(asked, 1000) : asked;
  if (status === 429 && isOwn) return new Refused(message, { verdict: 'limit', retryAfter: atLeast });
  return new Refused(message, { verdict: 'resource', retryAfter: Math.min(atLeast, longestPause) });
}

/** In milliseconds. */
function retryAfterOf(header: string | undefined, date: string | undefined): number {
  if (header === undefined) return 0;
  const their = Date.parse(date ?? '');
  const milliseconds = /^\d+$/.test(header)
    ? Number(header) * 1000
    : Date.parse(header) - (Number.isNaN(their) ? Date.now() : their);
  return Number.isFinite(milliseconds) ? Math.min(Math.max(milliseconds, 0), longestLimit) : 0;
}

/** What went wrong, in words for an operator. */
export function messageOf(error: unknown): string {
  const { message, code } = error as { message?: string; code?: string };
  if (error instanceof Refused) return error.message;
  if (code === 'ETIMEDOUT') return 'did not answer in time';
  return code === undefined ? `failed: ${message}` : `cannot be reached (${code})`;
}
