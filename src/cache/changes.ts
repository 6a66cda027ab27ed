import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisStore } from './redis-store.ts';

const key = 'written';
const day = 86_400_000;
/** How long a mark is trusted where the word of a change cannot be passed on; milliseconds. */
const lifetime = 200;

/**
 * Word among instances that something was written: a value in Redis that is another one after each change. Losing it, or
 * Redis, costs speed and no answer.
 */
export class RedisWriteSignal {
  readonly #redis: RedisStore;
  #asking: Promise<string | undefined> | undefined;

  constructor(redis: RedisStore) {
    this.#redis = redis;
  }

  /**
   * Another one than before if any instance has told of a change since, and once in a while besides. Undefined while
   * there is no knowing. Those who ask in one turn of the event loop share one question, which is put after all of them.
   */
  mark(): Promise<string | undefined> {
    this.#asking ??= new Promise((resolve) => setImmediate(() => resolve(this.#ask())));
    return this.#asking;
  }

  /** Ends when all instances know, or trust no mark from before any more. */
  async tell(): Promise<void> {
    if (await this.#renew()) return;
    // A timer counts from the beginning of its turn of the event loop, which may be long ago.
    for (const end = performance.now() + lifetime; performance.now() <= end;) await sleep(lifetime / 10);
  }

  async #ask(): Promise<string | undefined> {
    this.#asking = undefined;
    const period = Math.floor(performance.now() / lifetime);
    const held = await this.#redis.get(key);
    if (held) return `${String(held.value)} ${period}`;
    await this.#renew();
    return undefined;
  }

  #renew(): Promise<boolean> {
    return this.#redis.set(key, { value: randomUUID(), until: Date.now() + day }, day);
  }
}
