import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisStore } from './redis-store.ts';

const key = 'written';
const day = 86_400_000;
/** How long a version is valid when a write cannot be announced; milliseconds. */
const lifetime = 200;

/**
 * A `WriteSignal` over Redis: a value that changes after each write by any instance. Losing it, or Redis, costs only
 * speed.
 */
export class RedisWriteSignal {
  readonly #redis: RedisStore;
  #pending: Promise<string | undefined> | undefined;

  constructor(redis: RedisStore) {
    this.#redis = redis;
  }

  /**
   * Changes after every announced write of any instance, and also every `lifetime`. Undefined while it is unknown. All
   * callers in one turn of the event loop share one read of Redis, which starts after the last of them.
   */
  version(): Promise<string | undefined> {
    this.#pending ??= new Promise((resolve) => setImmediate(() => resolve(this.#read())));
    return this.#pending;
  }

  /** Resolves when all instances get a new version, or when every old one has expired. */
  async announce(): Promise<void> {
    if (await this.#renew()) return;
    // A timer counts from the start of its turn of the event loop, which may be much earlier.
    for (const end = performance.now() + lifetime; performance.now() <= end;) await sleep(lifetime / 10);
  }

  async #read(): Promise<string | undefined> {
    this.#pending = undefined;
    const period = Math.floor(performance.now() / lifetime);
    const entry = await this.#redis.get(key);
    if (entry) return `${String(entry.value)} ${period}`;
    await this.#renew();
    return undefined;
  }

  #renew(): Promise<boolean> {
    return this.#redis.set(key, { value: randomUUID(), until: Date.now() + day }, day);
  }
}
