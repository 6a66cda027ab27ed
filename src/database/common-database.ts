import { setTimeout as sleep } from 'node:timers/promises';
import { Times } from '../metrics/times.ts';
import type {
  CachedReadOptions,
  Database,
  Dialect,
  Queryable,
  Row,
  Transaction,
  TransactionOptions,
  Value,
} from './database.ts';
import { databaseFailure } from './failure.ts';
import type { Processes } from './processes.ts';
import { writeProbe } from './probe.ts';
import { RowCache, type Versions } from './row-cache.ts';
import type { Tables } from './statement-tables.ts';
import { isInBackground, type TimeLimits } from './time-limits.ts';
import type { Effects } from './transaction-work.ts';
import { WriteCounts } from './write-counts.ts';

/** Upper bounds in seconds. */
const bounds = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];

/** What both databases do in the same way. */
export abstract class CommonDatabase implements Database {
  abstract readonly dialect: Dialect;
  readonly processes: Processes | undefined;
  readonly times = { read: new Times(bounds), transaction: new Times(bounds) };
  protected readonly limits: TimeLimits;
  /** Whether the last transaction that ended may have changed rows. */
  protected hasWritten = false;
  /** Commits of this process that wrote rows which cached reads may use. */
  protected readonly writes = new WriteCounts();
  readonly #running = new Set<Promise<void>>();
  readonly #cachedRows = new RowCache();

  constructor(limits: TimeLimits) {
    this.limits = limits;
  }

  abstract select<T extends object = Row>(sql: string, values?: readonly Value[]): Promise<T[]>;

  async get<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T | undefined> {
    return (await this.select<T>(sql, values))[0];
  }

  async getCached<T extends object = Row>(
    sql: string,
    values?: readonly Value[],
    options?: CachedReadOptions,
  ): Promise<T | undefined> {
    return (await this.selectCached<T>(sql, values, options))[0];
  }

  async selectCached<T extends object = Row>(
    sql: string,
    values: readonly Value[] = [],
    { lag = 0 }: CachedReadOptions = {},
  ): Promise<readonly T[]> {
    const versions = await this.versions(lag);
    if (versions === undefined) return this.select<T>(sql, values);
    return this.#cachedRows.get(versions, sql, values, () => this.select(sql, values)) as Promise<readonly T[]>;
  }

  async stateOf(tables: readonly string[]): Promise<string | undefined> {
    return (await this.versions(0))?.of(tables);
  }

  /** Runs `work` once, in one transaction. Notes in `effects` what it does. */
  protected abstract attempt<T>(work: (tx: Transaction) => Promise<T>, effects: Effects, deadline: number): Promise<T>;
  /** Whether the whole transaction can be repeated after this error. */
  protected abstract isConflict(error: unknown): boolean;

  /**
   * Cached rows are valid while the version of their tables stays the same; undefined: do not cache. See `WriteSignal` and
   * `CachedReadOptions`.
   */
  protected abstract versions(lag: number): Promise<Versions | undefined>;
  /** Called after each commit that wrote. Resolves when the next versions of `tables` on every instance are new ones. */
  protected async afterWrite(tables: Tables): Promise<void> {
    this.writes.add(tables);
  }

  /** What the caller gets for an error of a read or a transaction. */
  protected failureOf(error: unknown): unknown {
    return databaseFailure(error);
  }

  transaction<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    const startedAt = performance.now();
    return this.begin(work, options, this.deadline()).finally(() => this.times.transaction.since(startedAt));
  }

  /** When a transaction that begins now must have ended, by `performance.now()`. */
  protected deadline(): number {
    return performance.now() + (isInBackground() ? this.limits.background : this.limits.transaction);
  }

  protected begin<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions, deadline: number): Promise<T> {
    const done = this.#repeated(work, options, deadline);
    const settled = done.then(ignore, ignore).then(() => void this.#running.delete(settled));
    this.#running.add(settled);
    return done;
  }

  async #repeated<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions, deadline: number): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      const effects: Effects = { wrote: false, tables: new Set() };
      try {
        const result = await this.attempt(work, effects, deadline);
        this.hasWritten = effects.wrote;
        if (effects.wrote && !keepsRows(options)) await this.afterWrite(effects.tables && [...effects.tables]);
        return result;
      } catch (error) {
        if (attempt >= 10 || performance.now() > deadline || !this.isConflict(error)) throw this.failureOf(error);
        await sleep(Math.random() * 20 * attempt);
      }
    }
  }

  abstract snapshot<T>(read: (from: Queryable) => Promise<T>): Promise<T>;

  abstract exclusively<T>(work: () => Promise<T>): Promise<T>;

  abstract checkReads(): Promise<void>;

  checkWrites(): Promise<void> {
    return this.transaction(writeProbe, { fleeting: true });
  }

  async close(): Promise<void> {
    await Promise.all(this.#running);
  }
}

function ignore(): void {}

/** Whether all cached rows stay valid after the transaction. */
function keepsRows({ fleeting = false, uncached = fleeting }: TransactionOptions): boolean {
  return uncached;
}
