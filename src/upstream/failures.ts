import { setTimeout as sleep } from 'node:timers/promises';
import { AddressRefused } from './addresses.ts';
import type { Failure } from './breaker.ts';

/** The longest pause that a 429 may ask for, milliseconds: a day. An upstream that asks for more has made a mistake. */
const maxLimit = 86_400_000;
/** The longest pause that a 5xx may ask for, milliseconds. */
const maxPause = 5 * 60_000;
const attempts = 3;

/**
 * What a failed request says about the upstream: that it fails, that it works (`answered`), or nothing, because no request
 * was sent (`unsent`).
 */
type FailureVerdict = Failure | 'answered' | 'unsent';

interface RefusedOptions {
  verdict?: FailureVerdict;
  /** Milliseconds. */
  retryAfter?: number;
  denied?: boolean;
}

/** The upstream refused the request, or sent an answer that cannot be used, or led to an address that is not allowed. */
export class Refused extends Error {
  readonly verdict: FailureVerdict;
  /** Milliseconds. */
  readonly retryAfter: number;
  /** Whether the upstream accepted the credentials, but denied access to the resource. */
  readonly denied: boolean;

  constructor(message: string, { verdict = 'answered', retryAfter = 0, denied = false }: RefusedOptions = {}) {
    super(message);
    this.verdict = verdict;
    this.retryAfter = retryAfter;
    this.denied = denied;
  }
}

/** The upstream answered 401 or 403, or would get no credentials. */
export class AccessRefused extends Refused {
  constructor(message = 'refused access; check its credentials') {
    super(message);
  }
}

/** No connection was free in time. This server is overloaded; the upstream did not fail. */
export class Busy extends Refused {
  readonly code = 'ETIMEDOUT';

  constructor() {
    super('got no request: all connections to it are in use', { verdict: 'unsent', retryAfter: 1000 });
  }
}

/** No request is sent any more because this server is stopping. */
export class Closed extends Refused {
  constructor() {
    super('got no request: this server is stopping', { verdict: 'unsent' });
  }
}

/** There is no connection to the host: name lookup, connect or TLS failed or took too long. `code` says which. */
export class NotConnected extends Error {
  readonly origin: string;
  readonly code: string | undefined;

  constructor(origin: string, cause: Error & { code?: string }) {
    super(cause.message, { cause });
    this.origin = origin;
    this.code = cause.code;
  }
}

/** An error with the code that got uses for its own time-outs. */
export function timedOut(what: string): Error {
  return Object.assign(new Error(what), { code: 'ETIMEDOUT' });
}

/**
 * What an error says about the upstream at `origin`. A failed connection to another host that the upstream leads to (a
 * CDN, a token realm) is a failure of the requested resource. If all of that host is down, several resources fail, and
 * that counts for the upstream.
 */
export function verdictOf(error: unknown, origin: string): FailureVerdict {
  if (error instanceof Refused) return error.verdict;
  return error instanceof NotConnected && error.origin === origin ? 'connection' : 'resource';
}

/** Whether the failed request never left this server. */
export function isUnsent(error: unknown): boolean {
  return error instanceof Refused && error.verdict === 'unsent';
}

/** Whether the same request may succeed a moment later: after a stale keep-alive socket, a reset, a single 5xx. */
export function isTransient(error: unknown): boolean {
  if (error instanceof Refused) return error.verdict === 'resource' && error.retryAfter === 0;
  const { code } = error as { code?: string };
  return code === 'ECONNRESET' || code === 'EPIPE';
}

/** Runs `work`, up to three times while its failures are transient. `signal` ends the wait between two attempts. */
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

/** The refusal for an error whose reason is `AddressRefused`, which got may wrap; undefined for any other error. */
export function addressRefusal(error: unknown): Refused | undefined {
  const { cause } = error as { cause?: unknown };
  const refusal = [error, cause].find((each) => each instanceof AddressRefused);
  if (!refusal) return undefined;
  const message = `has, or redirects to, an address that is refused: ${(refusal as Error).message}`;
  return new Refused(message, { verdict: 'unsent' });
}

/**
 * The error for an answer with status 429 or 5xx. A 429 with `isOwn` counts for the whole upstream, because a rate limit
 * applies to an account. Everything else counts for the requested resource. `Retry-After` (RFC 9110, 10.2.3) is limited to
 * a day for the upstream and to 5 minutes for a resource. A date in it is compared with the upstream's own clock.
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
  return new Refused(message, { verdict: 'resource', retryAfter: Math.min(atLeast, maxPause) });
}

/** In milliseconds. */
function retryAfterOf(header: string | undefined, date: string | undefined): number {
  if (header === undefined) return 0;
  const theirNow = Date.parse(date ?? '');
  const milliseconds = /^\d+$/.test(header)
    ? Number(header) * 1000
    : Date.parse(header) - (Number.isNaN(theirNow) ? Date.now() : theirNow);
  return Number.isFinite(milliseconds) ? Math.min(Math.max(milliseconds, 0), maxLimit) : 0;
}

/** The reason for a failure, for the operator; follows the name of the upstream in a sentence. */
export function messageOf(error: unknown): string {
  const { message, code } = error as { message?: string; code?: string };
  if (error instanceof Refused) return error.message;
  if (code === 'ETIMEDOUT') return 'did not answer in time';
  return code === undefined ? `failed: ${message}` : `cannot be reached (${code})`;
}
