import { hash } from 'node:crypto';
import { pauseAfter, remaining, type Pause } from './pause.ts';
import { Recent } from '../runtime/recent.ts';

/** The whole upstream is paused when this many subjects fail without a success in between. */
const failingLimit = 5;
/** Entries in each list of pauses; when it is full, the oldest entry is dropped. */
const maxEntries = 4096;
/**
 * The pause of an upstream after failures of several subjects, milliseconds. It does not grow: the fault may be in the
 * subjects, and one client can request any number of those.
 */
const probeInterval = 1000;
/** The longest pause before the first test of an upstream that asked for a long one, milliseconds; doubled with each test. */
const firstTest = 5 * 60_000;

/** The part of a request by which failures are counted. */
export interface BreakerRequest {
  /** A package or repository. It has many addresses, and all of them may fail for one reason. */
  subject: string;
  /** The address of the request, before any redirect. */
  url: URL;
}

/**
 * `resource`: the requested resource fails. `connection`: there is no connection to the upstream. `limit`: the upstream
 * asks for a pause (429).
 */
export type Failure = 'resource' | 'connection' | 'limit';

/** Why a request is not sent now. */
export interface Refusal {
  reason: string;
  /** Milliseconds. */
  wait: number;
  /** Whether the requested address itself has failed, and not the upstream. */
  own: boolean;
}

/** The pause of a whole upstream. */
interface UpstreamPause extends Pause {
  /** Whether the upstream asked for it (429). */
  isLimit: boolean;
  /** Milliseconds. */
  length: number;
  /** Whether a probe is in progress until the end of the pause: one request that tests whether the upstream works again. */
  probing?: boolean;
}

/** An open breaker. Times are in milliseconds since 1970 UTC. */
export interface OpenPause {
  reason: string;
  since: number;
  until: number;
}

/** Called when the breaker opens, with the reason of the pause, and when a request succeeds after it. */
export type OnBreakerChange = (state: 'opened' | 'closed', reason: string) => void;

/** A request in progress. */
export interface Attempt {
  readonly subject: string;
  readonly address: string;
  /** Its place in the order of events. */
  readonly sequence: number;
  readonly isProbe: boolean;
}

/**
 * The circuit breaker of an upstream. An address that fails gets its own pause, so that one bad tag or version does not
 * stop the others. The whole upstream is paused when a connection to it fails, when it asks for a pause (429), and when
 * several subjects fail without a success in between. The first request after that pause is the probe. A request for a
 * subject that already fails is never the probe, because its failure would say nothing about the upstream.
 */
export class Breaker {
  readonly #now: () => number;
  readonly #onChange: OnBreakerChange;
  /** By subject and address; `#subjects` by subject alone. */
  readonly #addresses = new Recent<string, Pause>(maxEntries);
  readonly #subjects = new Recent<string, Pause>(maxEntries);
  #upstream: UpstreamPause | undefined;
  /** Subjects that have failed since the last success, `failingLimit` at most. */
  readonly #failing = new Set<string>();
  #succeededAt = 0;
  #openedAt = 0;
  #sequence = 0;

  constructor(now: () => number, onChange: OnBreakerChange = () => undefined) {
    this.#now = now;
    this.#onChange = onChange;
  }

  /** Why `request` is not sent now, or without `request`: why nothing is. Undefined if it may be sent. Changes nothing. */
  refusal(request?: BreakerRequest): Refusal | undefined {
    const now = this.#now();
    const own = request && this.#addresses.peek(addressKey(request));
    const ownWait = remaining(own, now);
    const wait = this.#upstreamWait(request, now);
    if (own && ownWait > wait) return { reason: own.reason, wait: ownWait, own: true };
    return wait > 0 ? { reason: this.#upstream!.reason, wait, own: false } : undefined;
  }

  /** As `refusal`, but only for a pause that the upstream asked for (429). */
  get limit(): Refusal | undefined {
    return this.#upstream?.isLimit ? this.refusal() : undefined;
  }

  /** Whether the whole upstream is paused, or was and has not answered since. */
  get isOpen(): boolean {
    return this.#upstream !== undefined;
  }

  /** Why and since when it is open, and until when no request is sent; undefined while it is closed. */
  get pause(): OpenPause | undefined {
    if (!this.#upstream) return undefined;
    const { reason, until } = this.#upstream;
    return { reason, since: this.#openedAt, until };
  }

  /**
   * Records that `request` begins. After a pause of the upstream it may be the probe. While the probe is in progress,
   * other requests are refused, but no longer than that pause was: a probe that hangs must not block the upstream.
   */
  begin(request: BreakerRequest): Attempt {
    const paused = this.#upstream;
    const subject = subjectKey(request);
    const isProbe = paused !== undefined && !this.#subjects.has(subject);
    if (isProbe) {
      const now = this.#now();
      this.#upstream = { ...paused, probing: true, from: now, until: now + paused.length };
    }
    return { subject, address: addressKey(request), sequence: this.#next(), isProbe };
  }

  /** Ends the pauses that began before the request did. A request that began before a pause does not end it. */
  succeeded({ subject, address, sequence }: Attempt): void {
    if (beganBefore(this.#addresses.peek(address), sequence)) this.#addresses.delete(address);
    if (beganBefore(this.#subjects.peek(subject), sequence)) this.#subjects.delete(subject);
    if (beganBefore(this.#upstream, sequence)) {
      this.#onChange('closed', this.#upstream.reason);
      this.#upstream = undefined;
    }
    this.#failing.clear();
    this.#succeededAt = this.#next();
  }

  /** For a request without a result, because it was cancelled or not sent: the next request may be the probe. */
  abandoned({ isProbe, sequence }: Attempt): void {
    const paused = this.#upstream;
    if (isProbe && paused && beganBefore(paused, sequence)) {
      this.#upstream = { ...paused, until: paused.from };
    }
  }

  /**
   * Returns the milliseconds for which the same request will be refused. `retryAfter` is the pause that the upstream asked
   * for, milliseconds.
   */
  failed(
    { subject, address, sequence: began, isProbe }: Attempt,
    kind: Failure,
    reason: string,
    retryAfter = 0,
  ): number {
    const now = this.#now();
    const sequence = this.#next();
    const failure = { reason, began, sequence, now, retryAfter };
    // Other requests were answered after this one began: the upstream can be reached.
    const isReachable = kind === 'connection' && this.#succeededAt > began;
    if (kind !== 'resource' && !isReachable) {
      const before = this.#upstream;
      const pause = testedEarly(pauseAfter(before, failure), now);
      // A connection that fails during the pause of a 429 must not replace it by an ordinary one.
      const isLimit = kind === 'limit' || (before !== undefined && before.isLimit && !beganBefore(before, began));
      this.#open({ ...pause, isLimit, length: pause.until - now });
      return remaining(pause, now);
    }
    const pause = pauseAfter(this.#addresses.peek(address), failure);
    this.#addresses.set(address, pause);
    this.#subjects.set(subject, pauseAfter(this.#subjects.peek(subject), failure));
    if (this.#isFailing(subject, began, isProbe)) {
      this.#open({
        reason,
        failures: 0,
        from: now,
        until: now + probeInterval,
        sequence,
        isLimit: false,
        length: probeInterval,
      });
    }
    return remaining(pause, now);
  }

  /** Ends all pauses. The next request is a test, if the upstream was paused: until it succeeds the breaker stays open. */
  tryNow(): void {
    this.#addresses.clear();
    this.#subjects.clear();
    if (this.#upstream) this.#upstream = { ...this.#upstream, until: this.#now() };
  }

  #open(pause: UpstreamPause): void {
    if (!this.#upstream) {
      this.#openedAt = pause.from;
      this.#onChange('opened', pause.reason);
    }
    this.#upstream = pause;
  }

  /** Whether the whole upstream counts as failing after this failure of `subject`. */
  #isFailing(subject: string, began: number, isProbe: boolean): boolean {
    if (this.#upstream) return isProbe && beganBefore(this.#upstream, began);
    // Other requests were answered after this one began: the upstream works.
    if (this.#succeededAt > began) return false;
    this.#failing.add(subject);
    return this.#failing.size >= failingLimit;
  }

  /** Milliseconds for which the upstream's own pause refuses `request`; 0 for none. */
  #upstreamWait(request: BreakerRequest | undefined, now: number): number {
    const paused = this.#upstream;
    if (!paused) return 0;
    const rest = remaining(paused, now);
    if (rest > 0) return paused.probing ? Math.min(rest, probeInterval) : rest;
    return request ? remaining(this.#subjects.peek(subjectKey(request)), now) : 0;
  }

  #next(): number {
    this.#sequence += 1;
    return this.#sequence;
  }
}

/** An upstream may ask for a day, and work again much earlier: one request tests it after some minutes, then less often. */
function testedEarly(pause: Pause, now: number): Pause {
  return { ...pause, until: Math.min(pause.until, now + firstTest * 2 ** Math.min(pause.failures - 1, 10)) };
}

/** Whether the pause began before the request of that sequence number, so that its result may change the pause. */
function beganBefore(pause: Pause | undefined, sequence: number): pause is Pause {
  return pause !== undefined && pause.sequence < sequence;
}

// Keys are hashes, so that long addresses take no more memory than short ones.

function subjectKey({ subject }: BreakerRequest): string {
  return hash('sha256', subject, 'base64');
}

function addressKey({ subject, url }: BreakerRequest): string {
  return hash('sha256', `${subject}\n${url.href}`, 'base64');
}
