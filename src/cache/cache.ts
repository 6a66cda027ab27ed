import { LRUCache } from 'lru-cache';
import { RedisWriteSignal } from './changes.ts';
import { RedisStore, type TimedValue } from './redis-store.ts';

const nearSize = 64 * 2 ** 20;
/** A larger value is for this process alone: on its way to Redis it would hold up all others. Characters. */
const redisLimit = 2 * 2 ** 20;

/**
 * What is only fast: JSON values with a time to live, in this process and, where one is configured, in Redis for all
 * instances. Losing any of it changes no answer; a Redis that is down, slow or emptied is a miss.
 */
export class Cache {
  /** Word of what other instances write, where there is a Redis to bring it. */
  readonly changes: RedisWriteSignal | undefined;
  readonly #near: LRUCache<string, TimedValue>;
  readonly #redis: RedisStore | undefined;
  readonly #now: () => number;

  private constructor(now: () => number, redis: RedisStore | undefined) {
    this.#now = now;
    this.#redis = redis;
    this.changes = redis && new RedisWriteSignal(redis);
    this.#near = new LRUCache({ maxSize: nearSize, sizeCalculation: ({ value }) => weigh(value) });
  }

  /**
   * Opens within half a second, whether Redis answers or not. `onError` hears when trouble with Redis begins; it is
   * never an error of a request. Installations that share one Redis have a `namespace` each.
   */
  static async open(
    redisUrl: string | undefined,
    now: () => number,
    onError: (error: unknown) => void,
    namespace = 'entrepot',
  ): Promise<Cache> {
    return new Cache(now, redisUrl === undefined ? undefined : await RedisStore.open(redisUrl, namespace, onError));
  }

  /** The value under `key` unless its time is over. */
  async get<T>(key: string): Promise<T | undefined> {
    const near = this.peek<T>(key);
    if (near !== undefined || !this.#redis) return near;
    const held = await this.#redis.get(key);
    if (!held || held.until <= this.#now()) return undefined;
    this.#near.set(key, held);
    return held.value as T;
  }

  /** The value if this process has it: no waiting. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- as for get, which shares its callers
  peek<T>(key: string): T | undefined {
    const held = this.#near.get(key);
    return held && held.until > this.#now() ? (held.value as T) : undefined;
  }

  /** Keeps a JSON value for `ttl` milliseconds; this process has it at once. */
  async set(key: string, value: unknown, ttl: number): Promise<void> {
    const held = { value, until: this.#now() + ttl };
    const size = weigh(value);
    this.#near.set(key, held, { size });
    if (size <= redisLimit) await this.#redis?.set(key, held, Math.max(1, Math.ceil(ttl)));
    else await this.#redis?.delete(key);
  }

  async delete(key: string): Promise<void> {
    this.#near.delete(key);
    await this.#redis?.delete(key);
  }

  async close(): Promise<void> {
    await this.#redis?.close();
  }
}

function weigh(value: unknown): number {
  return 200 + (typeof value === 'string' ? value.length : JSON.stringify(value).length);
}
