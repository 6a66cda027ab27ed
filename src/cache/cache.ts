import KeyvRedis, { createClient } from '@keyv/redis';
import { Keyv } from 'keyv';
import { LRUCache } from 'lru-cache';

interface Held {
  value: unknown;
  until: number;
}

/**
 * What is only fast: JSON values with a time to live, in this process and, where one is configured, in Redis for all
 * instances. Losing any of it changes no answer; a Redis that is down, slow or emptied is a miss.
 */
export class Cache {
  readonly #near: LRUCache<string, Held>;
  readonly #far: Keyv | undefined;
  readonly #now: () => number;
  readonly #close: () => Promise<void>;

  private constructor(now: () => number, far: Keyv | undefined, close: () => Promise<void>) {
    this.#now = now;
    this.#far = far;
    this.#close = close;
    this.#near = new LRUCache({ maxSize: 64 * 2 ** 20, sizeCalculation: ({ value }) => weigh(value) });
  }

  /** `onError` hears of each trouble with Redis; it is never an error of a request. */
  static async open(
    redisUrl: string | undefined,
    now: () => number,
    onError: (error: unknown) => void,
  ): Promise<Cache> {
    if (redisUrl === undefined) return new Cache(now, undefined, async () => undefined);
    const client = createClient({
      url: redisUrl,
      disableOfflineQueue: true,
      commandOptions: { timeout: 300 },
      socket: { connectTimeout: 500, reconnectStrategy: (retries) => Math.min(100 * 2 ** retries, 2000) },
    });
    client.on('error', onError);
    // The start does not wait for a Redis that is down: the client goes on trying by itself.
    const connected = client.connect().catch(onError);
    await Promise.race([connected, new Promise((resolve) => setTimeout(resolve, 500).unref())]);
    const far = new Keyv({ store: new KeyvRedis(client, { namespace: 'entrepot' }), useKeyPrefix: false });
    far.on('error', onError);
    return new Cache(now, far, async () => client.destroy());
  }

  /** The value under `key` unless its time is over. */
  async get<T>(key: string): Promise<T | undefined> {
    const near = this.peek<T>(key);
    if (near !== undefined || !this.#far) return near;
    const held = await this.#far.get<Held>(key).catch(() => undefined);
    if (!held || held.until <= this.#now()) return undefined;
    this.#near.set(key, held);
    return held.value as T;
  }

  /** The value if this process has it: no waiting. */
  peek<T>(key: string): T | undefined {
    const held = this.#near.get(key);
    return held && held.until > this.#now() ? (held.value as T) : undefined;
  }

  /** Keeps a JSON value for `ttl` milliseconds. */
  async set(key: string, value: unknown, ttl: number): Promise<void> {
    const held = { value, until: this.#now() + ttl };
    this.#near.set(key, held);
    await this.#far?.set(key, held, Math.max(1, Math.ceil(ttl))).catch(() => undefined);
  }

  async delete(key: string): Promise<void> {
    this.#near.delete(key);
    await this.#far?.delete(key).catch(() => undefined);
  }

  async close(): Promise<void> {
    await this.#close();
  }
}

function weigh(value: unknown): number {
  return 200 + (typeof value === 'string' ? value.length : JSON.stringify(value).length);
}
