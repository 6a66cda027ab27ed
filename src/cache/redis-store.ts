import KeyvRedis, { createClient } from '@keyv/redis';
import { ErrorReply } from '@redis/client';
import { Keyv } from 'keyv';
import { Times } from '../metrics/times.ts';
import { inTime } from '../runtime/in-time.ts';
import { primaryOf, sentinelPlace, type Address, type SentinelPlace } from './sentinel.ts';

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

/** Milliseconds between two questions to a Sentinel where the primary is. */
const followInterval = 1000;
/** Shortest time limit of a connection, in milliseconds. A start waits for a connection that long. */
const leastConnectTime = 500;

type Client = ReturnType<typeof createClient>;
type ClientOptions = NonNullable<Parameters<typeof createClient>[0]>;

interface Connection {
  client: Client;
  store: Keyv<TimedValue>;
  options: ClientOptions;
}

/** Redis through Keyv. No method rejects, or takes longer than its time limit. */
export class RedisStore {
  readonly #namespace: string;
  readonly #onError: (error: unknown) => void;
  readonly #timeout: number;
  /** Times of commands, also of those that failed. */
  readonly times = new Times([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3]);
  /** Number of commands and connections that failed. */
  failures = 0;
  /** Undefined until a Sentinel has named the primary. */
  #connection: Connection | undefined;
  /** When the connection was replaced because its Redis takes no writes, by `performance.now()`. */
  #replacedAt = -Infinity;
  #primary: Address | undefined;
  #follower: NodeJS.Timeout | undefined;
  #pausedUntil = 0;
  #failing = false;
  #refusesScripts = false;
  /** When a command or the connection last failed, by `performance.now()`. */
  failedAt: number | undefined;
  #closed = false;

  private constructor(namespace: string, onError: (error: unknown) => void, timeout: number) {
    this.#namespace = namespace;
    this.#onError = onError;
    this.#timeout = timeout;
  }

  /**
   * `url` is `redis://…`, `rediss://…` or that of a `SentinelPlace`, whose primary is followed. `timeout` is the time limit of a
   * command, milliseconds.
   */
  static async open(
    url: string,
    namespace: string,
    onError: (error: unknown) => void,
    timeout = commandTimeout,
  ): Promise<RedisStore> {
    const redis = new RedisStore(namespace, onError, timeout);
    const place = sentinelPlace(url);
    const connected = place ? redis.#follow(place) : redis.#connect({ url });
    // The start does not wait for a Redis that is down: the client keeps trying to connect.
    await atMost(redis.#connectTime, connected);
    return redis;
  }

  get #connectTime(): number {
    return Math.max(leastConnectTime, this.#timeout);
  }

  /** Connects to the primary, and again after each fail-over. */
  async #follow(place: SentinelPlace): Promise<void> {
    try {
      const { host, port } = await primaryOf(place);
      if (!this.#closed && (host !== this.#primary?.host || port !== this.#primary.port)) {
        this.#primary = { host, port };
        const { username, password, database } = place;
        const options = { ...(password !== undefined && { username, password }), database, socket: { host, port } };
        await atMost(this.#connectTime, this.#connect(options));
      }
    } catch (error) {
      // While a connection works, it does not matter that no Sentinel answers.
      if (!this.#connection?.client.isReady) this.#failed(error);
    }
    if (!this.#closed) this.#follower = setTimeout(() => void this.#follow(place), followInterval).unref();
  }

  /** Replaces the connection; resolves when it is ready. */
  async #connect(options: ClientOptions): Promise<void> {
    const client = createClient({
      ...options,
      disableOfflineQueue: true,
      // With pings, a connection without answers reaches the socket timeout and is closed.
      pingInterval: 2000,
      socket: {
        ...options.socket,
        connectTimeout: this.#connectTime,
        socketTimeout: 5000,
        reconnectStrategy: (retries) => Math.min(100 * 2 ** retries, 1000),
      },
    });
    // Keyv overwrites the namespace of the store with its own.
    const store = new Keyv<TimedValue>({
      store: new KeyvRedis(client, { throwOnErrors: true }),
      namespace: this.#namespace,
      useKeyPrefix: false,
      throwOnErrors: true,
    });
    // Each failure also reaches the failed command or the client's error event, so this event is ignored.
    store.on('error', () => undefined);
    const isCurrent = () => this.#connection?.client === client;
    client.on('error', (error) => isCurrent() && this.#failed(error));
    client.on('ready', () => {
      if (isCurrent()) this.#pausedUntil = 0;
    });
    const former = this.#connection;
    this.#connection = { client, store, options };
    if (former?.client.isOpen) former.client.destroy();
    await client.connect().catch((error: unknown) => this.#failed(error));
  }

  async get(key: string): Promise<TimedValue | undefined> {
    // The value may be any JSON: another program may have stored it.
    const entry = await this.#attempt(({ store }): Promise<unknown> => store.get(key));
    return isTimedValue(entry) ? entry : undefined;
  }

  /** Resolves to whether Redis stored the value. */
  async set(key: string, entry: TimedValue, ttl: number): Promise<boolean> {
    return (await this.#attempt(({ store }) => store.set(key, entry, ttl))) === true;
  }

  async delete(key: string): Promise<void> {
    await this.#attempt(({ store }) => store.delete(key));
  }

  /** Runs a Lua script with one key, which gets the namespace as its prefix. */
  evaluate(script: string, key: string, values: readonly string[]): Promise<unknown> {
    const keys = [`${this.#namespace}:${key}`];
    return this.#attempt(({ client }) =>
      client.eval(script, { keys, arguments: [...values] }).catch((error) => this.#refused(error)),
    );
  }

  /** As `evaluate`, with the key under which `get` and `set` have their value. */
  evaluateAt(key: string, script: string, values: readonly string[]): Promise<unknown> {
    return this.evaluate(script, `:${key}`, values);
  }

  /** A Redis whose user may not run scripts works for everything else. */
  #refused(error: unknown): undefined {
    if (!(error instanceof ErrorReply) || isReadOnly(error)) throw error;
    if (!this.#refusesScripts) this.#onError(error);
    this.#refusesScripts = true;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#follower);
    this.#connection?.client.destroy();
  }

  async #attempt<T>(command: (connection: Connection) => Promise<T>): Promise<T | undefined> {
    const connection = this.#connection;
    if (this.#closed || !connection || performance.now() < this.#pausedUntil) return undefined;
    const startedAt = performance.now();
    try {
      const result = await inTime(() => command(connection), this.#timeout);
      this.#failing = false;
      return result;
    } catch (error) {
      // A malformed value that another program stored is not a failure of Redis.
      if (!(error instanceof SyntaxError)) this.#failed(error);
      if (isReadOnly(error)) this.#replace(connection);
      return undefined;
    } finally {
      this.times.since(startedAt);
    }
  }

  /** After a fail-over the old primary can go on to answer on a connection, while a new one reaches the new primary. */
  #replace({ client, options }: Connection): void {
    const now = performance.now();
    if (this.#closed || this.#connection?.client !== client || now - this.#replacedAt < pause) return;
    this.#replacedAt = now;
    void this.#connect(options);
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

/** Whether Redis says that it is the replica of another one. An older Redis says so within the error of a script. */
function isReadOnly(error: unknown): boolean {
  return error instanceof ErrorReply && /\bREADONLY\b/.test(error.message);
}

function isTimedValue(entry: unknown): entry is TimedValue {
  if (typeof entry !== 'object' || entry === null || !('value' in entry) || !('until' in entry)) return false;
  return typeof entry.until === 'number';
}

/** Resolves when `work` does, or when it may take no longer. */
async function atMost(milliseconds: number, work: Promise<unknown>): Promise<void> {
  await inTime(() => work, milliseconds, { late: () => undefined, ref: false });
}
