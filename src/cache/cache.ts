import { LRUCache } from 'lru-cache';
import { RedisWriteSignal } from './changes.ts';
import type { RedisStore, TimedValue } from './redis-store.ts';

/** Bytes of memory for all values. */
const memorySize = 64 * 2 ** 20;
/** Bytes of memory for each character of a value's JSON and for each entry, at most as measured. */
const bytesOfCharacter = 3;
const bytesOfEntry = 250;
/** Larger values, in characters, stay in this process: sending them to Redis would delay all other commands. */
const redisLimit = 2 * 2 ** 20;
/** Clocks of instances may differ by this many milliseconds. */
const clockTolerance = 60_000;

/**
 * JSON values with a time to live, in this process and, if configured, in Redis for all instances. It only saves time:
 * losing any value changes no answer. A Redis that is down, slow or empty is a cache miss.
 */
export class Cache {
  /** Reports the writes of other instances; undefined without Redis. */
  readonly changes: RedisWriteSignal | undefined;
  readonly #memory: LRUCache<string, TimedValue>;
  readonly #redis: RedisStore | undefined;
  readonly #now: () => number;

  private constructor(now: () => number, redis: RedisStore | undefined) {
    this.#now = now;
    this.#redis = redis;
    this.changes = redis && new RedisWriteSignal(redis);
    this.#memory = new LRUCache({
      maxSize: memorySize,
      sizeCalculation: ({ value }, key) => memoryOf(key, lengthOf(value)),
    });
  }

  /**
   * Opens within half a second, whether Redis answers or not. Calls `onError` when Redis begins to fail; no request
   * fails because of it. Installations that share one Redis need different namespaces.
   * `timeout` is the time limit of a command of Redis, milliseconds.
   */
  static async open(
    redisUrl: string | undefined,
    now: () => number,
    onError: (error: unknown) => void,
    namespace = 'entrepot',
    timeout?: number,
  ): Promise<Cache> {
    if (redisUrl === undefined) return new Cache(now, undefined);
    // The client has 400 modules, a fifth of all, and is loaded only where it is used.
    const { RedisStore } = await import('./redis-store.ts');
    return new Cache(now, await RedisStore.open(redisUrl, namespace, onError, timeout));
  }

  /** The value of `key`; undefined when there is none or it has expired. */
  async get<T>(key: string): Promise<T | undefined> {
    const local = this.peek<T>(key);
    if (local !== undefined || !this.#redis) return local;
    const entry = await this.#redis.get(key);
    if (!entry || !this.#isCurrent(entry)) return undefined;
    this.#memory.set(key, entry);
    return entry.value as T;
  }

  /** The value if this process has it. Does not wait. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the same signature as get
  peek<T>(key: string): T | undefined {
    const entry = this.#memory.get(key);
    return entry && this.#isCurrent(entry) ? (entry.value as T) : undefined;
  }

  /** Stores a JSON value for `ttl` milliseconds. This process can read it at once. */
  async set(key: string, value: unknown, ttl: number): Promise<void> {
    const from = this.#now();
    const entry = { value, from, until: from + ttl };
    const length = lengthOf(value);
    this.#memory.set(key, entry, { size: memoryOf(key, length) });
    if (length <= redisLimit) await this.#redis?.set(key, entry, Math.max(1, Math.ceil(ttl)));
    else await this.#redis?.delete(key);
  }

  async delete(key: string): Promise<void> {
    this.#memory.delete(key);
    await this.#redis?.delete(key);
  }

  /** Drops what this process has in memory, because another one has written to the database. */
  forgetMemory(): void {
    this.#memory.clear();
  }

  /**
   * Runs a Lua script of Redis with the one key `key`. Undefined without Redis; resolves to undefined when it does not
   * answer.
   */
  evaluate(script: string, key: string, values: readonly string[]): Promise<unknown> | undefined {
    return this.#redis?.evaluate(script, key, values);
  }

  /** Rejects when Redis is configured and does not store a value now. */
  async check(): Promise<void> {
    const stored = await this.#redis?.set('checked', { value: true, until: this.#now() + 10_000 }, 10_000);
    if (stored === false) throw new Error('Redis did not store a value');
  }

  /** When Redis last failed, by `performance.now()`; undefined if it never did. */
  get failedAt(): number | undefined {
    return this.#redis?.failedAt;
  }

  /** Times and failures of Redis; undefined if none is configured. */
  get redis(): Pick<RedisStore, 'times' | 'failures'> | undefined {
    return this.#redis;
  }

  async close(): Promise<void> {
    await this.#redis?.close();
  }

  /** A value from the future was stored before the clock was set back, and would live too long. */
  #isCurrent({ from = 0, until }: TimedValue): boolean {
    const now = this.#now();
    return from <= now + clockTolerance && now < until;
  }
}

/** Characters of the value's JSON. */
function lengthOf(value: unknown): number {
  return typeof value === 'string' ? value.length : JSON.stringify(value).length;
}

function memoryOf(key: string, length: number): number {
  return bytesOfEntry + 2 * key.length + bytesOfCharacter * length;
}
