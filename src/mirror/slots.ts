import { callerLeft, type Caller } from '../caller.ts';
import { DomainError } from '../errors.ts';

/** Milliseconds that a fetch waits for a free slot. */
const waitLimit = 60_000;
/** After this part of the limit, the wait is reported. */
const reportShare = 1 / 12;

interface Upstream {
  running: number;
  /** In the order of arrival. */
  waiting: Set<Waiting>;
}

interface Account {
  running: number;
  upstreams: Map<string, Upstream>;
}

interface Waiting {
  since: number;
  go: () => void;
}

export interface SlotsOptions {
  /** Fetches that one account may have in progress. */
  max: number;
  /** Milliseconds that a fetch waits for a slot. */
  wait?: number;
  /** Called for each fetch that has waited for long. */
  report?: (upstream: string, account: string) => void;
}

/**
 * Limits the fetches that one account has in progress: above `max` they wait in a queue. An upstream may use at most as many
 * slots as it leaves free, so that one whose answers hang never keeps the others from theirs.
 */
export class Slots {
  readonly #options: Required<SlotsOptions>;
  readonly #accounts = new Map<string, Account>();
  #arrivals = 0;

  constructor({ max, wait = waitLimit, report = () => undefined }: SlotsOptions) {
    this.#options = { max, wait, report };
  }

  /**
   * Takes a slot of the caller's account for `upstream`; the returned function releases it. Returns at once if a slot is
   * free, else a promise. Rejects with `TooManyRequests` after a minute, and with `Aborted` when the caller leaves. Work
   * without an account needs no slot.
   */
  take(caller: Caller | undefined, upstream: string): (() => void) | Promise<() => void> {
    const name = caller?.account;
    if (!caller || name === undefined) return () => undefined;
    let account = this.#accounts.get(name);
    if (!account) this.#accounts.set(name, (account = { running: 0, upstreams: new Map() }));
    let used = account.upstreams.get(upstream);
    if (!used) account.upstreams.set(upstream, (used = { running: 0, waiting: new Set() }));
    if (this.#hasRoom(account, used)) return this.#use(name, account, upstream, used);
    return this.#wait(caller, account, upstream, used, () => this.#use(name, account, upstream, used));
  }

  /** How many fetches from `upstream` wait. */
  waiting(upstream: string): number {
    let sum = 0;
    for (const { upstreams } of this.#accounts.values()) sum += upstreams.get(upstream)?.waiting.size ?? 0;
    return sum;
  }

  #wait(
    caller: Caller,
    account: Account,
    upstream: string,
    used: Upstream,
    use: () => () => void,
  ): Promise<() => void> {
    const { max, wait, report } = this.#options;
    const { waiting } = used;
    return new Promise((resolve, reject) => {
      const leave = (error: DomainError) => {
        end();
        forgetUnused(account, upstream, used);
        reject(error);
      };
      const reported = wait * reportShare;
      let timer = setTimeout(() => {
        report(upstream, caller.account!);
        timer = setTimeout(() => leave(tooMany(max)), wait - reported);
      }, reported);
      const stopListening = caller.whenGone(() => leave(callerLeft()));
      const end = () => {
        waiting.delete(each);
        clearTimeout(timer);
        stopListening();
      };
      const go = () => {
        end();
        resolve(use());
      };
      const each: Waiting = { since: (this.#arrivals += 1), go };
      waiting.add(each);
    });
  }

  #hasRoom(account: Account, { running }: Upstream): boolean {
    const free = this.#options.max - account.running;
    return free > 0 && running <= free;
  }

  #use(name: string, account: Account, upstream: string, used: Upstream): () => void {
    account.running += 1;
    used.running += 1;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      account.running -= 1;
      used.running -= 1;
      this.#startNext(account);
      forgetUnused(account, upstream, used);
      if (account.running === 0) this.#accounts.delete(name);
    };
  }

  /** Free slots go to the fetches that have waited longest and whose upstream may use one more. */
  #startNext(account: Account): void {
    for (;;) {
      let next: Waiting | undefined;
      for (const used of account.upstreams.values()) {
        const [first] = used.waiting;
        if (first && this.#hasRoom(account, used) && (!next || first.since < next.since)) next = first;
      }
      if (!next) return;
      next.go();
    }
  }
}

/** So that an account has as many upstreams here as it uses now. */
function forgetUnused(account: Account, upstream: string, { running, waiting }: Upstream): void {
  if (running === 0 && waiting.size === 0) account.upstreams.delete(upstream);
}

function tooMany(max: number): DomainError {
  return new DomainError(
    'TooManyRequests',
    `This account may have ${max} fetches from upstreams in progress, and all that this one may use are. Try again in a moment.`,
    { retryAfter: 5 },
  );
}
