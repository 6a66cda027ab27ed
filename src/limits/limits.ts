import type { Cache } from '../cache/cache.ts';
import { endingWait, systemOrigin } from '../runtime/caller.ts';
import type { Config } from '../config/schema.ts';
import type { RepeatedEvents } from '../events/repeated.ts';
import { Semaphore } from '../runtime/semaphore.ts';
import { addressKey } from './address.ts';
import { MemoryBuckets, maxKeys, period, SharedBuckets } from './buckets.ts';
import type { ReturnUnit, Taken, TakeUnit } from './buckets.ts';
import { concurrencyFields, LimitExceeded, rateFields, type RateLimitFields } from './limit-exceeded.ts';
import { waitFor, type Waiter } from './waiting.ts';
import { Recent } from '../runtime/recent.ts';

/** The limits of a rate, by their names in answers, events and metrics. */
const rateNames = ['requests', 'anonymous-requests', 'misses', 'searches', 'pushes', 'failed-sign-ins'] as const;
export type RateName = (typeof rateNames)[number];
const limitNames = [...rateNames, 'uploads', 'connections'] as const;
type LimitName = (typeof limitNames)[number];
type Outcome = 'delayed' | 'refused';

/** The sender of a request, as limits count it: its token, else its address. */
export interface LimitedClient {
  key: string;
  /** 0 for a client without a token. */
  accountId: number;
  accountName: string | null;
}

/** The answer that a limit delays. */
export interface Limited extends Waiter {
  /** Adds fields to the answer. */
  readonly always: Record<string, unknown>;
}

const texts: Record<RateName | 'uploads', (most: number) => string> = {
  requests: (most) => `The limit of ${most} requests a minute is reached for this token or its account.`,
  'anonymous-requests': (most) => `This address has reached the limit of ${most} requests without a token a minute.`,
  misses: (most) => `The limit of ${most} upstream fetches a minute is reached for this token, its account or address.`,
  searches: (most) => `The limit of ${most} searches a minute is reached for this token, its account or address.`,
  pushes: (most) => `The limit of ${most} pushes a minute is reached for this token or its account.`,
  'failed-sign-ins': (most) =>
    `Not signed in, because more than ${most} sign-ins from this address, or of this identity, failed in a minute. Correct the token.`,
  uploads: (most) => `This token has reached its limit of ${most} uploads at the same time.`,
};

/** The quota of an account, in quotas of one token. */
const tokensOfAccount = 10;

/** Requests above a limit that wait under one key until they are refused, and in all. Further ones are refused at once. */
const maxHeld = 100;
const maxHeldInAll = 5000;
/** Uploads that wait under one key for the end of another. */
const maxWaitingUploads = 1000;
/** Concurrent look-ups of credentials for one address with too many failed sign-ins. */
const maxLookUps = 2;
/** Concurrent sign-ins of one address that another server has to check. */
const maxAttempts = 2;

/** The longest `Retry-After`, milliseconds. NuGet's clients wait up to an hour. */
const maxRetry = 300_000;

/** For `Retry-After` of an upload, whose turn cannot be known; seconds. */
const uploadRetry = 5;

interface LimitParts {
  settings: Config['limits'];
  cache: Cache;
  events: RepeatedEvents;
  /** A clock in milliseconds, monotonic if possible. */
  now: () => number;
}

/**
 * Limits what one client may cost: above a limit its requests wait, then they are refused with `TooManyRequests`. Instances
 * share the counts through Redis; without Redis, each process counts for itself.
 */
export class Limits {
  readonly #delay: number;
  readonly #quotas: Record<RateName, number | undefined>;
  readonly #take: Record<RateName, TakeUnit>;
  readonly #events: RepeatedEvents;
  readonly #now: () => number;
  readonly #held = new Semaphore({ max: maxHeld, maxWaiting: 0 });
  #heldInAll = 0;
  readonly #maxUploads: number | undefined;
  readonly #uploads: Semaphore | undefined;
  readonly #giveBack: ReturnUnit;
  readonly #lookUps = new Semaphore({ max: maxLookUps });
  readonly #attempts = new Semaphore({ max: maxAttempts });
  /** Until when the credentials from an address are looked up in turns. */
  readonly #failingAddresses = new Recent<string, number>(maxKeys);
  /** The latest time that a `Retry-After` has named for a key. */
  readonly #named = new Recent<string, number>(maxKeys);
  /** From 0, because Prometheus cannot see the growth to a first value. */
  readonly #counts = new Map<string, number>(
    limitNames.flatMap((limit) => [
      [`${limit} delayed`, 0],
      [`${limit} refused`, 0],
    ]),
  );

  constructor({ settings, cache, events, now }: LimitParts) {
    this.#delay = settings.delay;
    this.#quotas = {
      requests: settings.requestsPerMinute,
      'anonymous-requests': settings.anonymousRequestsPerMinute,
      misses: settings.missesPerMinute,
      searches: settings.searchesPerMinute,
      pushes: settings.pushesPerMinute,
      'failed-sign-ins': settings.failedSignInsPerMinute,
    };
    const memory = new MemoryBuckets(now);
    const shared = new SharedBuckets(cache, memory);
    // Every request counts here, and an answer of Redis takes longer than a small answer.
    const local: TakeUnit = (...unit) => memory.take(...unit);
    const common: TakeUnit = (...unit) => shared.take(...unit);
    this.#take = {
      requests: local,
      'anonymous-requests': local,
      misses: common,
      searches: common,
      pushes: common,
      'failed-sign-ins': common,
    };
    this.#giveBack = (...unit) => shared.giveBack(...unit);
    this.#maxUploads = settings.uploads;
    this.#uploads =
      settings.uploads === undefined
        ? undefined
        : new Semaphore({ max: settings.uploads, maxWaiting: maxWaitingUploads });
    this.#events = events;
    this.#now = now;
  }

  /** Whether `limit` is set. */
  has(limit: RateName): boolean {
    return this.#quotas[limit] !== undefined;
  }

  /**
   * Counts one unit of `limit` for `client`. Returns undefined, or a promise if that takes time. Above the limit it resolves
   * when a unit is free, or rejects with `LimitExceeded` after the setting `limits.delay`; with `Aborted` when the client
   * leaves. A unit of a token also counts for its account, which has ten times the quota: otherwise more tokens would be more
   * quota.
   */
  take(limit: RateName, client: LimitedClient, answer: Limited): Promise<void> | undefined {
    const quota = this.#quotas[limit];
    if (quota === undefined) return undefined;
    const taking = this.#takeFor(limit, quota, client, answer);
    if (client.accountId === 0) return taking;
    const account = { ...client, key: `account ${client.accountId}` };
    const most = quota * tokensOfAccount;
    return taking
      ? taking.then(() => this.#takeFor(limit, most, account, answer))
      : this.#takeFor(limit, most, account, answer);
  }

  #takeFor(limit: RateName, quota: number, client: LimitedClient, answer: Limited): Promise<void> | undefined {
    const taken = this.#take[limit](`${limit} ${client.key}`, { quota }, this.#delay);
    if (taken instanceof Promise) return taken.then((found) => this.#apply(limit, quota, client, answer, found));
    return this.#apply(limit, quota, client, answer, taken);
  }

  #apply(
    limit: RateName,
    quota: number,
    client: LimitedClient,
    answer: Limited,
    { wait, reset }: Taken,
  ): Promise<void> | undefined {
    if (wait <= 0) return undefined;
    if (limit === 'failed-sign-ins') this.#failingAddresses.set(client.key, this.#now() + reset);
    if (wait > this.#delay) return this.#hold(limit, quota, client, answer, { wait, reset });
    this.#count(limit, 'delayed');
    Object.assign(answer.always, rateFields(limit, quota, reset));
    return waitFor(wait, answer);
  }

  /** Holds a request until it may be refused, so that a client which repeats it at once does so slowly. */
  async #hold(limit: RateName, quota: number, client: LimitedClient, answer: Limited, first: Taken): Promise<void> {
    const key = `${limit} ${client.key}`;
    let last = first;
    const leave = this.#heldInAll < maxHeldInAll ? this.#held.take(key) : undefined;
    if (typeof leave === 'function') {
      this.#heldInAll += 1;
      this.#count(limit, 'delayed');
      try {
        await waitFor(this.#delay, answer);
      } finally {
        this.#heldInAll -= 1;
        leave();
      }
      last = await this.#take[limit](key, { quota }, 0);
    }
    const { wait, reset } = last;
    if (wait <= 0) {
      Object.assign(answer.always, rateFields(limit, quota, reset));
      return;
    }
    const retryAfter = this.#retryAfter(key, quota, wait);
    throw this.#refusal(limit, quota, client, retryAfter, rateFields(limit, quota, reset));
  }

  /**
   * Seconds until a refused request may succeed. Each refusal names a later time than the one before it. If they named the
   * same time, parallel requests of a client would come back together, and all but one would be refused again.
   */
  #retryAfter(key: string, quota: number, wait: number): number {
    const now = this.#now();
    const last = this.#named.get(key) ?? 0;
    const soonest = now + wait;
    const next = last > now + maxRetry ? soonest : Math.max(soonest, last + period / quota);
    const time = Math.min(next, now + maxRetry);
    this.#named.set(key, time);
    return Math.max(1, Math.ceil((time - now) / 1000));
  }

  /**
   * Begins an upload; the result ends it. Throws `LimitExceeded` if the client has too many at the same time, after waiting
   * for the end of one.
   */
  async upload(client: LimitedClient, answer: Limited): Promise<() => void> {
    if (!this.#uploads || this.#maxUploads === undefined) return () => undefined;
    const taken = this.#uploads.take(client.key, { patience: this.#delay, whenLeft: endingWait(answer) });
    if (taken instanceof Promise) this.#count('uploads', 'delayed');
    const end = await taken;
    if (end) return end;
    const fields = concurrencyFields('uploads', this.#maxUploads);
    throw this.#refusal('uploads', this.#maxUploads, client, uploadRetry, fields);
  }

  /**
   * Runs `look`, which looks for a credential. For an address with too many failed sign-ins, few run at the same time, so
   * that it cannot use the whole database. No valid credential is refused because of that.
   */
  lookUp<T>(address: () => string | undefined, look: () => Promise<T>): Promise<T> {
    if (this.#failingAddresses.size === 0) return look();
    const { key } = addressClient(address());
    const until = this.#failingAddresses.get(key);
    if (until === undefined) return look();
    if (until > this.#now()) return this.#lookUps.run(look, key);
    this.#failingAddresses.delete(key);
    return look();
  }

  /**
   * Runs `work`, which finds out whether a sign-in is right, and is costly. It counts as a failed sign-in before it begins, and
   * no more after it has succeeded: many at the same time cannot pass the limit together. `succeeded` tells from the result;
   * work that rejects has failed. Throws `LimitExceeded` and `Aborted` as `take`.
   */
  async attempt<T>(
    client: LimitedClient,
    answer: Limited,
    work: () => Promise<T>,
    succeeded: (result: T) => boolean = () => true,
  ): Promise<T> {
    await this.take('failed-sign-ins', client, answer);
    const end = await this.#attempts.take(client.key, { whenLeft: endingWait(answer) });
    try {
      const result = await work();
      const quota = this.#quotas['failed-sign-ins'];
      if (quota !== undefined && succeeded(result)) await this.#giveBack(`failed-sign-ins ${client.key}`, { quota });
      return result;
    } finally {
      end?.();
    }
  }

  /** Counts a connection that was closed, because its address has too many. */
  connectionRefused(address: string | undefined, most: number): void {
    this.#count('connections', 'refused');
    this.#events.note(eventOf('connections', most, addressClient(address)), {
      ...systemOrigin(null),
      actor: { kind: 'anonymous', id: null, name: null },
      address: address ?? null,
    });
  }

  /** The numbers of delayed and of refused requests by limit, for the metrics. */
  get counts(): Iterable<[labels: { limit: string; outcome: string }, count: number]> {
    return [...this.#counts].map(([key, count]) => {
      const [limit, outcome] = key.split(' ') as [string, string];
      return [{ limit, outcome }, count];
    });
  }

  #refusal(
    limit: RateName | 'uploads',
    most: number,
    client: LimitedClient,
    retryAfter: number,
    fields: RateLimitFields,
  ): LimitExceeded {
    this.#count(limit, 'refused');
    this.#events.note(eventOf(limit, most, client));
    return new LimitExceeded(texts[limit](most), limit, retryAfter, fields);
  }

  #count(limit: LimitName, outcome: Outcome): void {
    const key = `${limit} ${outcome}`;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }
}

/** A client that is known only by its address. */
export function addressClient(address: string | undefined): LimitedClient {
  return { key: `address ${addressKey(address)}`, accountId: 0, accountName: null };
}

function eventOf(limit: LimitName, allowed: number, { accountId, accountName }: LimitedClient) {
  return {
    type: 'limit.reached',
    accountId,
    subject: { kind: 'account', name: accountName, reference: limit },
    details: { limit, allowed },
  } as const;
}
