import { hash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { pauseAfter, restOf, type Pause } from './pause.ts';

/** Subjects that fail one after the other, with no success of any, before the upstream itself counts as failing. */
const several = 5;
/** Failing subjects, and failing addresses, that are remembered; of more, those that failed longest ago are forgotten. */
const remembered = 4096;
/** An upstream that fails at several subjects is asked once in so many milliseconds: the fault may be theirs. */
const betweenProbes = 1000;

/** What a request asks for, as failures are remembered. */
export interface Asked {
  /** A package or a repository: it may have very many addresses, and all of them may fail for the same reason. */
  subject: string;
  /** Where the request begins. */
  url: URL;
}

/**
 * Whose failure it is: of what was asked for, of the upstream (no connection to it), or the upstream's word that it
 * wants to be left alone (429).
 */
export type Failure = 'resource' | 'connection' | 'limit';

/** Why something is not asked for now. */
export interface Refusal {
  reason: string;
  /** Milliseconds. */
  wait: number;
  /** Whether it is for its own failures, not for the upstream's. */
  own: boolean;
}

/** The pause of a whole upstream. */
interface Closed extends Pause {
  /** Whether the upstream asked for it (429). */
  isLimit: boolean;
  /** Milliseconds. */
  length: number;
  /** Whether a request has been let through since, to see whether the upstream is back. */
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
 * The memory of failures of an upstream. What fails is left alone by itself, by its address, so that one bad tag or
 * version does not take the others along. The whole upstream is left alone after a failure to connect to it, at its own
 * word (429), and when several subjects fail while none succeeds. After that pause one request probes: never one for a
 * subject that is known to fail, for it would say nothing about the upstream.
 */
export class Breaker {
  readonly #now: () => number;
  /** By subject and address. */
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

  /** Why `asked`, or the upstream as a whole, is left alone now; undefined when it may be asked. Changes nothing. */
  refusal(asked?: Asked): Refusal | undefined {
    const now = this.#now();
    const own = asked && this.#pages.peek(pageKey(asked));
    const ownWait = restOf(own, now);
    const wait = this.#closedFor(asked, now);
    if (own && ownWait > wait) return { reason: own.reason, wait: ownWait, own: true };
    return wait > 0 ? { reason: this.#whole!.reason, wait, own: false } : undefined;
  }

  /** As `refusal`, while the upstream wants to be left alone by its own word (429). */
  get limit(): Refusal | undefined {
    return this.#whole?.isLimit ? this.refusal() : undefined;
  }

  /**
   * Notes that `asked` is about to be asked for. After a pause of the upstream's this may be the probe; the others wait
   * for what it finds, but no longer than that pause was: a probe that hangs must not keep the upstream closed.
   */
  begin(asked: Asked): Attempt {
    const whole = this.#whole;
    const subject = subjectKey(asked);
    const isProbe = whole !== undefined && !this.#subjects.has(subject);
    if (isProbe) {
      const now = this.#now();
      this.#whole = { ...whole, probing: true, from: now, until: now + whole.length };
    }
    return { subject, page: pageKey(asked), turn: this.#next(), isProbe };
  }

  /** An answer to a request that was under way before a pause began does not end that pause. */
  succeeded({ subject, page, turn }: Attempt): void {
    if (isOver(this.#pages.peek(page), turn)) this.#pages.delete(page);
    if (isOver(this.#subjects.peek(subject), turn)) this.#subjects.delete(subject);
    if (isOver(this.#whole, turn)) this.#whole = undefined;
    this.#failing.clear();
    this.#succeededAt = this.#next();
  }

  /** A request that says nothing (its reader left, or it was never sent): lets another one probe. */
  abandoned({ isProbe, turn }: Attempt): void {
    const whole = this.#whole;
    if (isProbe && whole && isOver(whole, turn)) this.#whole = { ...whole, probing: false, until: whole.from };
  }

  /** Returns for how many milliseconds the same is not asked for again. `retryAfter` is what the upstream asked for. */
  failed({ subject, page, turn: began, isProbe }: Attempt, kind: Failure, reason: string, retryAfter = 0): number {
    const now = this.#now();
    const turn = this.#next();
    const failure = { reason, began, turn, now, retryAfter };
    // One connection in many that fails, while others come about, is no reason to leave the upstream alone.
    const isReachable = kind === 'connection' && this.#succeededAt > began;
    if (kind !== 'resource' && !isReachable) {
      const before = this.#whole;
      const pause = pauseAfter(before, failure);
      // What fails together with a 429 does not make another pause of the one that was asked for.
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

  /** Whether it is the upstream that fails, now that a request for `subject` has. */
  #isFailing(subject: string, began: number, isProbe: boolean): boolean {
    if (this.#whole) return isProbe && isOver(this.#whole, began);
    // Another request has succeeded since this one began: the upstream is well.
    if (this.#succeededAt > began) return false;
    this.#failing.add(subject);
    return this.#failing.size >= several;
  }

  /** For how many milliseconds the upstream is closed to `asked`, 0 where it is not. */
  #closedFor(asked: Asked | undefined, now: number): number {
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

/** Whether a request of that turn began after the pause did, and so says something about it. */
function isOver(pause: Pause | undefined, turn: number): pause is Pause {
  return pause !== undefined && pause.turn < turn;
}

// Keys of one length: a search, for one, can be long.

function subjectKey({ subject }: Asked): string {
  return hash('sha256', subject, 'base64');
}

function pageKey({ subject, url }: Asked): string {
  return hash('sha256', `${subject}\n${url.href}`, 'base64');
}
