import KeyvRedis, { createClient } from '@keyv/redis';
import { Keyv } from 'keyv';
import { LRUCache } from 'lru-cache';

interface Held {
  value: unknown;
  until: number;
}

/** A Redis that failed is left alone for so long, so that a slow one does not slow every request; milliseconds. */
const rest = 1000;
/** What a command of Redis' may take; its client times only those that it has not sent yet. Milliseconds. */
const patience = 300;
const nearSize = 64 * 2 ** 20;
/** A larger value is for this process alone: on its way to Redis it would hold up all others. Characters. */
const farLimit = 2 * 2 ** 20;

/**
 * What is only fast: JSON values with a time to live, in this process and, where one is configured, in Redis for all
 * instances. Losing any of it changes no answer; a Redis that is down, slow or emptied is a miss.
 */
export class Cache {
  readonly #near: LRUCache<string, Held>;
  readonly #far: Far | undefined;
  readonly #now: () => number;

  private constructor(now: () => number, far: Far | undefined) {
    this.#now = now;
    this.#far = far;
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
    return new Cache(now, redisUrl === undefined ? undefined : await Far.open(redisUrl, namespace, onError));
  }

  /** The value under `key` unless its time is over. */
  async get<T>(key: string): Promise<T | undefined> {
    const near = this.peek<T>(key);
    if (near !== undefined || !this.#far) return near;
    const held = await this.#far.get(key);
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
    if (size <= farLimit) await this.#far?.set(key, held, Math.max(1, Math.ceil(ttl)));
    else await this.#far?.delete(key);
  }

  async delete(key: string): Promise<void> {
    this.#near.delete(key);
    await this.#far?.delete(key);
  }

  async close(): Promise<void> {
    await this.#far?.close();
  }
}

/** Redis through Keyv; none of its methods ever rejects, or takes longer than a command may. */
class Far {
  readonly #store: Keyv<Held>;
  readonly #disconnect: () => void;
  readonly #onError: (error: unknown) => void;
  #restUntil = 0;
  #troubled = false;
  #closed = false;

  private constructor(store: Keyv<Held>, disconnect: () => void, onError: (error: unknown) => void) {
    this.#store = store;
    this.#disconnect = disconnect;
    this.#onError = onError;
  }

  static async open(url: string, namespace: string, onError: (error: unknown) => void): Promise<Far> {
    const client = createClient({
      url,
      disableOfflineQueue: true,
      // A connection on which nothing comes back any more is given up.
      pingInterval: 2000,
      socket: {
        connectTimeout: 500,
        socketTimeout: 5000,
        reconnectStrategy: (retries) => Math.min(100 * 2 ** retries, 1000),
      },
    });
    // Keyv gives its own namespace to the store, whatever the store was made with.
    const store = new Keyv<Held>({
      store: new KeyvRedis(client, { throwOnErrors: true }),
      namespace,
      useKeyPrefix: false,
      throwOnErrors: true,
    });
    const far = new Far(store, () => client.destroy(), onError);
    // Each failure comes with the command that failed or from the connection; this one is told of both.
    store.on('error', () => undefined);
    client.on('error', (error) => far.#failed(error));
    client.on('ready', () => {
      far.#restUntil = 0;
    });
    // The start does not wait for a Redis that is down: the client goes on trying by itself.
    const connected = client.connect().catch((error: unknown) => far.#failed(error));
    await Promise.race([connected, new Promise((resolve) => setTimeout(resolve, 500).unref())]);
    return far;
  }

  async get(key: string): Promise<Held | undefined> {
    const held = await this.#attempt(() => this.#store.get<Held>(key));
    return typeof held === 'object' && typeof held.until === 'number' ? held : undefined;
  }

  async set(key: string, held: Held, ttl: number): Promise<void> {
    await this.#attempt(() => this.#store.set(key, held, ttl));
  }

  async delete(key: string): Promise<void> {
    await this.#attempt(() => this.#store.delete(key));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#disconnect();
  }

  async #attempt<T>(command: () => Promise<T>): Promise<T | undefined> {
    if (this.#closed || performance.now() < this.#restUntil) return undefined;
    try {
      const result = await inTime(command());
      this.#troubled = false;
      return result;
    } catch (error) {
      // What somebody else has put there is no trouble with Redis.
      if (!(error instanceof SyntaxError)) this.#failed(error);
      return undefined;
    }
  }

  #failed(error: unknown): void {
    if (this.#closed) return;
    this.#restUntil = performance.now() + rest;
    if (!this.#troubled) this.#onError(error);
    this.#troubled = true;
  }
}

function inTime<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`Redis has not answered in ${patience} ms`)), patience);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function weigh(value: unknown): number {
  return 200 + (typeof value === 'string' ? value.length : JSON.stringify(value).length);
}
