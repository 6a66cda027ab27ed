import { AddressRefused } from './addresses.ts';

/** A day: an upstream that asks for more has made a mistake. */
const longestPause = 86_400_000;

/** The upstream answered, and the answer is no; or it leads where we do not go. */
export class Refused extends Error {
  /** Whether it is the upstream that is in trouble, and not this request. */
  readonly trips: boolean;
  /** Milliseconds. */
  readonly retryAfter: number;
  /** Whether it understood who asks, and says that this is not for them. */
  readonly denied: boolean;

  constructor(message: string, trips = false, retryAfter = 0, denied = false) {
    super(message);
    this.trips = trips;
    this.retryAfter = retryAfter;
    this.denied = denied;
  }
}

/** A failure of the kind that got reports when its timers run out. */
export function timedOut(what: string): Error {
  return Object.assign(new Error(what), { code: 'ETIMEDOUT' });
}

/** Whether the same request may do better a moment later: a stale keep-alive socket, a reset, a single 5xx. */
export function isPassing(error: unknown): boolean {
  if (error instanceof Refused) return error.trips && error.retryAfter === 0;
  const { code } = error as { code?: string };
  return code === 'ECONNRESET' || code === 'EPIPE';
}

/** The refusal of an address behind an error, if that is what it is; got wraps it. */
export function addressRefusal(error: unknown): Refused | undefined {
  const { cause } = error as { cause?: unknown };
  const refusal = [error, cause].find((each) => each instanceof AddressRefused);
  return refusal && new Refused(`is at, or leads to, an address that is refused: ${(refusal as Error).message}`);
}

/** `Retry-After` (RFC 9110, 10.2.3) in milliseconds; a date is taken by the upstream's own clock. */
export function retryAfterOf(header: string | undefined, date: string | undefined): number {
  if (header === undefined) return 0;
  const their = Date.parse(date ?? '');
  const milliseconds = /^\d+$/.test(header)
    ? Number(header) * 1000
    : Date.parse(header) - (Number.isNaN(their) ? Date.now() : their);
  return Number.isFinite(milliseconds) ? Math.min(Math.max(milliseconds, 0), longestPause) : 0;
}

/** What went wrong, in words for an operator. */
export function messageOf(error: unknown): string {
  const { message, code } = error as { message?: string; code?: string };
  if (error instanceof Refused) return error.message;
  if (code === 'ETIMEDOUT') return 'did not answer in time';
  return code === undefined ? `failed: ${message}` : `cannot be reached (${code})`;
}
