import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisStore } from './redis-store.ts';

const key = 'written';
const day = 86_400_000;
/** How long a version is valid when a write cannot be announced; milliseconds. */
const lifetime = 200;

/**
 * Renews the versions of tables in the value at the key, which is JSON as Keyv writes it around the text
 * `all;table:version;table:version`. `all` stands for every table that has no version of its own: an instance of an older
 * version replaces the whole text by one version. Without a text that it knows, the script does the same.
 */
const renewTables = `
local text = redis.call('GET', KEYS[1]) or ''
local all, rest = string.match(text, '^{"value":{"value":"([%w-]+)([%w_:;-]*)"')
local parts = { all or ARGV[1] }
if all then
  local renewed = {}
  for index = 4, #ARGV do
    renewed[ARGV[index]] = true
    parts[#parts + 1] = ARGV[index] .. ':' .. ARGV[1]
  end
  for name, version in string.gmatch(rest, ';([%w_]+):([%w-]+)') do
    if not renewed[name] then parts[#parts + 1] = name .. ':' .. version end
  end
end
local value = '{"value":{"value":"' .. table.concat(parts, ';') .. '","until":' .. ARGV[2] .. '},"expires":' .. ARGV[2] .. '}'
redis.call('SET', KEYS[1], value, 'PX', ARGV[3])
return 1`;

/** The versions of all tables at one time. */
export class TableVersions {
  readonly #all: string;
  readonly #tables: ReadonlyMap<string, string>;
  readonly #whole: string;
  readonly #known = new Map<readonly string[], string>();

  /** `text` as in Redis. Versions with different `period`s are different. */
  constructor(text: string, period: number) {
    const [all, ...tables] = text.split(';');
    this.#all = `${period} ${all}`;
    this.#tables = new Map(tables.map((each) => each.split(':', 2) as [string, string]));
    this.#whole = `${period} ${text}`;
  }

  /** Changes after each write to one of `tables`, or to any table if they are undefined. */
  of(tables: readonly string[] | undefined): string {
    if (!tables) return this.#whole;
    let version = this.#known.get(tables);
    if (version === undefined) {
      version = [this.#all, ...tables.map((each) => this.#tables.get(each) ?? '')].join(' ');
      this.#known.set(tables, version);
    }
    return version;
  }
}

/**
 * A `WriteSignal` over Redis: a value that changes after each write by any instance, with a version of each table. Losing
 * it, or Redis, costs only speed.
 */
export class RedisWriteSignal {
  readonly #redis: RedisStore;
  #pending: Promise<TableVersions | undefined> | undefined;
  #reading: Promise<unknown> = Promise.resolve();
  #last: { text: string; period: number; versions: TableVersions } | undefined;

  constructor(redis: RedisStore) {
    this.#redis = redis;
  }

  /**
   * They change after every announced write of any instance, and also every `lifetime`. Undefined while they are unknown.
   * All callers in one turn of the event loop, and those that come while a read of Redis runs, share one read, which starts
   * after the last of them.
   */
  versions(): Promise<TableVersions | undefined> {
    this.#pending ??= this.#next();
    return this.#pending;
  }

  /**
   * Announces a write to `tables`, or to any table if they are undefined. Resolves when all instances get a new version of
   * these, or when every old one has expired.
   */
  async announce(tables: readonly string[] | undefined): Promise<void> {
    if (tables && (await this.#renewTables(tables))) return;
    if (await this.#renew()) return;
    // A timer counts from the start of its turn of the event loop, which may be much earlier.
    for (const end = performance.now() + lifetime; performance.now() <= end;) await sleep(lifetime / 10);
  }

  async #next(): Promise<TableVersions | undefined> {
    await this.#reading;
    await new Promise((resolve) => setImmediate(resolve));
    this.#pending = undefined;
    const read = this.#read();
    this.#reading = read;
    return read;
  }

  async #read(): Promise<TableVersions | undefined> {
    const period = Math.floor(performance.now() / lifetime);
    const entry = await this.#redis.get(key);
    if (!entry) {
      await this.#renew();
      return undefined;
    }
    const text = String(entry.value);
    if (this.#last?.text !== text || this.#last.period !== period)
      this.#last = { text, period, versions: new TableVersions(text, period) };
    return this.#last.versions;
  }

  async #renewTables(tables: readonly string[]): Promise<boolean> {
    const values = [newVersion(), String(Date.now() + day), String(day), ...tables];
    return (await this.#redis.evaluateAt(key, renewTables, values)) === 1;
  }

  #renew(): Promise<boolean> {
    return this.#redis.set(key, { value: newVersion(), until: Date.now() + day }, day);
  }
}

function newVersion(): string {
  return randomBytes(9).toString('hex');
}
