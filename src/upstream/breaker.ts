import { hash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { pauseAfter, restOf, type Pause } from './pause.ts';

/** The upstream counts as failing after failures of so many subjects with no success in between. */
const several = 5;
/** Entries in each memory of failures; beyond that the oldest failure is forgotten. */
const remembered = 4096;
/**
 * The pause of an upstream after failures of several subjects, milliseconds. It does not grow: the fault may be in the
 * subjects, and a reader can name as many of those as they like.
 */
const betweenProbes = 1000;

/** The part of a request by which failures are remembered. */
export interface BreakerRequest {
  /** A package or repository. It has many addresses, and all of them may fail for one reason. */
  subject: string;
  /** The address of the request, before any redirect. */
  url: URL;
}

/**
 * `resource`: the thing that was requested fails. `connection`: there is no connection to the upstream. `limit`: the
 * upstream asks for a pause (429).
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
interface Closed extends Pause {
  /** Whether the upstream asked for it (429). */
  isLimit: boolean;
  /** Milliseconds. */
  length: number;
  /** Whether a probe is under way: one request that finds out whether the upstream is back. */
  probing: boolean;
}

/** A request under way. */
export interface Attempt {
  readonly subject: string;
  readonly page: string;
  /** Its place in the order of events. */
  readonly turn: number;
  readonly isProbe: boolean;
}

/**
 * The memory of an upstream's failures. An address that fails gets a pause of its own, so that one bad tag or version
 * does not stop the others. The whole upstream gets a pause when a connection to it fails, when it asks for one (429),
 * and when several subjects fail with no success in between. The first request after that pause is the probe; a request
 * for a subject that is known to fail is not taken for it, because its failure would say nothing about the upstream.
 */
export class Breaker {
  readonly #now: () => number;
  /** By subject and address; `#subjects` by subject alone. */
  readonly #pages = new LRUCache<string, Pause>({ max: remembered });
  readonly #subjects = new LRUCache<string, Pause>({ max: remembered });
  #whole: Closed | undefined;
  /** Subjects that have failed since the last success, `several` at most. */
  readonly #failing = new Set<string>();
  #succeededAt = 0;
  #turn = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Why `asked`, or anything at all, is not requested now; undefined when it may be. Changes nothing. */
  refusal(asked?: BreakerRequest): Refusal | undefined {
    const now = this.#now();
    const own = asked && this.#pages.peek(pageKey(asked));
    const ownWait = restOf(own, now);
    const wait = this.#closedFor(asked, now);
    if (own && ownWait > wait) return { reason: own.reason, wait: ownWait, own: true };
    return wait > 0 ? { reason: this.#whole!.reason, wait, own: false } : undefined;
  }

  /** As `refusal`, but only for a pause that the upstream asked for (429). */
  get limit(): Refusal | undefined {
    return this.#whole?.isLimit ? this.refusal() : undefined;
  }

  /**
   * Notes that a request for `asked` begins. After a pause of the upstream it may be the probe. While it is under way
   * other requests are refused, but no longer than that pause was: a probe that hangs must not keep the upstream closed.
   */
  begin(asked: BreakerRequest): Attempt {
    const whole = this.#whole;
    const subject = subjectKey(asked);
    const isProbe = whole !== undefined && !this.#subjects.has(subject);
    if (isProbe) {
      const now = this.#now();
      this.#whole = { ...whole, probing: true, from: now, until: now + whole.length };
    }
    return { subject, page: pageKey(asked), turn: this.#next(), isProbe };
  }

  /** Ends the pauses that began before the request did; a request that was under way earlier ends none. */
  succeeded({ subject, page, turn }: Attempt): void {
    if (isOver(this.#pages.peek(page), turn)) this.#pages.delete(page);
    if (isOver(this.#subjects.peek(subject), turn)) this.#subjects.delete(subject);
    if (isOver(this.#whole, turn)) this.#whole = undefined;
    this.#failing.clear();
    this.#succeededAt = this.#next();
  }

  /** For a request without a result, because it was called off or not sent: another one may be the probe. */
  abandoned({ isProbe, turn }: Attempt): void {
    const whole = this.#whole;
    if (isProbe && whole && isOver(whole, turn)) this.#whole = { ...whole, probing: false, until: whole.from };
  }

  /**
   * Returns the milliseconds for which the same request will be refused. `retryAfter` is the pause that the upstream asked
   * for, milliseconds.
   */
  failed({ subject, page, turn: began, isProbe }: Attempt, kind: Failure, reason: string, retryAfter = 0): number {
    const now = this.#now();
    const turn = this.#next();
    const failure = { reason, began, turn, now, retryAfter };
    // Other requests have been answered since this one began: the upstream can be reached.
    const isReachable = kind === 'connection' && this.#succeededAt > began;
    if (kind !== 'resource' && !isReachable) {
      const before = this.#whole;
      const pause = pauseAfter(before, failure);
      // A connection that fails during the pause of a 429 must not turn it into an ordinary one.
      const isLimit = kind === 'limit' || (before !== undefined && before.isLimit && !isOver(before, began));
      this.#whole = { ...pause, isLimit, length: pause.until - now, probing: false };
      return restOf(pause, now);
    }
    const pause = pauseAfter(this.#pages.peek(page), failure);
    this.#pages.set(page, pause);
    this.#subjects.set(subject, pauseAfter(this.#subjects.peek(subject), failure));
    if (this.#isFailing(subject, began, isProbe)) {
      const until = now + betweenProbes;
      const closed = { isLimit: false, length: betweenProbes, probing: false };
      this.#whole = { reason, failures: 0, from: now, until, turn, ...closed };
      this.#failing.clear();
    }
    return restOf(pause, now);
  }

  /** Whether the upstream as a whole counts as failing after this failure of `subject`. */
  #isFailing(subject: string, began: number, isProbe: boolean): boolean {
    if (this.#whole) return isProbe && isOver(this.#whole, began);
    // Other requests have been answered since this one began: the upstream works.
    if (this.#succeededAt > began) return false;
    this.#failing.add(subject);
    return this.#failing.size >= several;
  }

  /** Milliseconds for which the upstream's own pause refuses `asked`; 0 for none. */
  #closedFor(asked: BreakerRequest | undefined, now: number): number {
    const whole = this.#whole;
    if (!whole) return 0;
    const rest = restOf(whole, now);
    if (rest > 0) return whole.probing ? Math.min(rest, betweenProbes) : rest;
    return asked ? restOf(this.#subjects.peek(subjectKey(asked)), now) : 0;
  }

  #next(): number {
    this.#turn += 1;
    return this.#turn;
  }
}

/** Whether a request of that turn began after the pause did, so that its result may change the pause. */
function isOver(pause: Pause | undefined, turn: number): pause is Pause {
  return pause !== undefined && pause.turn < turn;
}

// Keys are hashes, so that long addresses take no more memory than short ones.

function subjectKey({ subject }: BreakerRequest): string {
  return hash('sha256', subject, 'base64');
}

function pageKey({ subject, url }: BreakerRequest): string {
  return hash('sha256', `${subject}\n${url.href}`, 'base64');
}
