import KeyvRedis, { createClient } from '@keyv/redis';
import { ErrorReply } from '@redis/client';
import { Keyv } from 'keyv';
import { Times } from '../metrics/times.ts';

/** A value, the time when it was stored if that matters, and its time of expiry, in milliseconds since 1970. */
export interface TimedValue {
  value: unknown;
  from?: number;
  until: number;
}

/** After a failure Redis is not used for this long, so that a slow Redis does not slow every request; milliseconds. */
const pause = 1000;
/**
 * Longest time for a Redis command, in milliseconds. The client has a timeout only for commands that it has not sent.
 */
const commandTimeout = 300;

/** The part of the client that Keyv does not offer. */
interface Connection {
  evaluate(script: string, key: string, values: readonly string[]): Promise<unknown>;
  disconnect(): void;
}

/** Redis through Keyv. No method rejects, or takes longer than `commandTimeout`. */
export class RedisStore {
  readonly #store: Keyv<TimedValue>;
  readonly #connection: Connection;
  readonly #onError: (error: unknown) => void;
  /** Times of commands, also of those that failed. */
  readonly times = new Times([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3]);
  /** Number of commands and connections that failed. */
  failures = 0;
  #pausedUntil = 0;
  #failing = false;
  #refusesScripts = false;
  /** When a command or the connection last failed, by `performance.now()`. */
  failedAt: number | undefined;
  #closed = false;

  private constructor(store: Keyv<TimedValue>, connection: Connection, onError: (error: unknown) => void) {
    this.#store = store;
    this.#connection = connection;
    this.#onError = onError;
  }

  static async open(url: string, namespace: string, onError: (error: unknown) => void): Promise<RedisStore> {
    const client = createClient({
      url,
      disableOfflineQueue: true,
      // With pings, a connection without answers reaches the socket timeout and is closed.
      pingInterval: 2000,
      socket: {
        connectTimeout: 500,
        socketTimeout: 5000,
        reconnectStrategy: (retries) => Math.min(100 * 2 ** retries, 1000),
      },
    });
    // Keyv overwrites the namespace of the store with its own.
    const store = new Keyv<TimedValue>({
      store: new KeyvRedis(client, { throwOnErrors: true }),
      namespace,
      useKeyPrefix: false,
      throwOnErrors: true,
    });
    const connection: Connection = {
      evaluate: (script, key, values) => client.eval(script, { keys: [`${namespace}:${key}`], arguments: [...values] }),
      disconnect: () => client.destroy(),
    };
    const redis = new RedisStore(store, connection, onError);
    // Each failure also reaches the failed command or the client's error event, so this event is ignored.
    store.on('error', () => undefined);
    client.on('error', (error) => redis.#failed(error));
    client.on('ready', () => {
      redis.#pausedUntil = 0;
    });
    // The start does not wait for a Redis that is down: the client keeps trying to connect.
    const connected = client.connect().catch((error: unknown) => redis.#failed(error));
    await Promise.race([connected, new Promise((resolve) => setTimeout(resolve, 500).unref())]);
    return redis;
  }

  async get(key: string): Promise<TimedValue | undefined> {
    // The value may be any JSON: another program may have stored it.
    const entry = await this.#attempt((): Promise<unknown> => this.#store.get(key));
    return isTimedValue(entry) ? entry : undefined;
  }

  /** Resolves to whether Redis stored the value. */
  async set(key: string, entry: TimedValue, ttl: number): Promise<boolean> {
    return (await this.#attempt(() => this.#store.set(key, entry, ttl))) === true;
  }

  async delete(key: string): Promise<void> {
    await this.#attempt(() => this.#store.delete(key));
  }

  /** Runs a Lua script with one key, which gets the namespace as its prefix. */
  evaluate(script: string, key: string, values: readonly string[]): Promise<unknown> {
    return this.#attempt(() => this.#connection.evaluate(script, key, values).catch((error) => this.#refused(error)));
  }

  /** As `evaluate`, with the key under which `get` and `set` have their value. */
  evaluateAt(key: string, script: string, values: readonly string[]): Promise<unknown> {
    return this.evaluate(script, `:${key}`, values);
  }

  /** A Redis whose user may not run scripts works for everything else. */
  #refused(error: unknown): undefined {
    if (!(error instanceof ErrorReply)) throw error;
    if (!this.#refusesScripts) this.#onError(error);
    this.#refusesScripts = true;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#connection.disconnect();
  }

  async #attempt<T>(command: () => Promise<T>): Promise<T | undefined> {
    if (this.#closed || performance.now() < this.#pausedUntil) return undefined;
    const startedAt = performance.now();
    try {
      const result = await withTimeout(command());
      this.#failing = false;
      return result;
    } catch (error) {
      // A malformed value that another program stored is not a failure of Redis.
      if (!(error instanceof SyntaxError)) this.#failed(error);
      return undefined;
    } finally {
      this.times.since(startedAt);
    }
  }

  #failed(error: unknown): void {
    if (this.#closed) return;
    this.failures += 1;
    this.failedAt = performance.now();
    this.#pausedUntil = this.failedAt + pause;
    if (!this.#failing) this.#onError(error);
    this.#failing = true;
  }
}

function isTimedValue(entry: unknown): entry is TimedValue {
  if (typeof entry !== 'object' || entry === null || !('value' in entry) || !('until' in entry)) return false;
  return typeof entry.until === 'number';
}

function withTimeout<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`Redis has not answered in ${commandTimeout} ms`)), commandTimeout);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
