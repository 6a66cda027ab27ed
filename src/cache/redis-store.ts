import KeyvRedis, { createClient } from '@keyv/redis';
import { Keyv } from 'keyv';

/** A value and when its time is over, milliseconds since 1970. */
export interface TimedValue {
  value: unknown;
  until: number;
}

/** A Redis that failed is left alone for so long, so that a slow one does not slow every request; milliseconds. */
const rest = 1000;
/** What a command of Redis' may take; its client times only those that it has not sent yet. Milliseconds. */
const patience = 300;

/** Redis through Keyv; none of its methods ever rejects, or takes longer than a command may. */
export class RedisStore {
  readonly #store: Keyv<TimedValue>;
  readonly #disconnect: () => void;
  readonly #onError: (error: unknown) => void;
  #restUntil = 0;
  #troubled = false;
  #closed = false;

  private constructor(store: Keyv<TimedValue>, disconnect: () => void, onError: (error: unknown) => void) {
    this.#store = store;
    this.#disconnect = disconnect;
    this.#onError = onError;
  }

  static async open(url: string, namespace: string, onError: (error: unknown) => void): Promise<RedisStore> {
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
    const store = new Keyv<TimedValue>({
      store: new KeyvRedis(client, { throwOnErrors: true }),
      namespace,
      useKeyPrefix: false,
      throwOnErrors: true,
    });
    const redis = new RedisStore(store, () => client.destroy(), onError);
    // Each failure comes with the command that failed or from the connection; this one is told of both.
    store.on('error', () => undefined);
    client.on('error', (error) => redis.#failed(error));
    client.on('ready', () => {
      redis.#restUntil = 0;
    });
    // The start does not wait for a Redis that is down: the client goes on trying by itself.
    const connected = client.connect().catch((error: unknown) => redis.#failed(error));
    await Promise.race([connected, new Promise((resolve) => setTimeout(resolve, 500).unref())]);
    return redis;
  }

  async get(key: string): Promise<TimedValue | undefined> {
    const held = await this.#attempt(() => this.#store.get<TimedValue>(key));
    return typeof held === 'object' && typeof held.until === 'number' ? held : undefined;
  }

  /** Resolves to whether it is there. */
  async set(key: string, held: TimedValue, ttl: number): Promise<boolean> {
    return (await this.#attempt(() => this.#store.set(key, held, ttl))) === true;
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
