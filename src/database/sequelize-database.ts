import { setTimeout as sleep } from 'node:timers/promises';
import type { Sequelize, Transaction as SequelizeTransaction } from 'sequelize';
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
import type { Processes } from './processes.ts';
import { databaseFailure } from './failure.ts';
import { runUntil } from './mysql-connection.ts';
import { writeProbe } from './probe.ts';
import { RowCache, type Versions } from './row-cache.ts';
import { isBusy } from './sqlite.ts';
import type { Tables } from './statement-tables.ts';
import type { Effects } from './statements.ts';
import { isInBackground, type TimeLimits } from './time-limits.ts';

/** Upper bounds in seconds. */
const bounds = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];

/** What both databases do in the same way. */
export abstract class SequelizeDatabase implements Database {
  abstract readonly dialect: Dialect;
  readonly processes: Processes | undefined;
  readonly times = { read: new Times(bounds), transaction: new Times(bounds) };
  protected readonly sequelize: Sequelize;
  protected readonly limits: TimeLimits;
  /** Whether the last transaction that ended may have changed rows. */
  protected hasWritten = false;
  #commits = 0;
  readonly #running = new Set<Promise<void>>();
  readonly #cachedRows = new RowCache();

  constructor(sequelize: Sequelize, limits: TimeLimits) {
    this.sequelize = sequelize;
    this.limits = limits;
  }

  /** Rejects when the database is unreachable. */
  connect(): Promise<void> {
    return this.sequelize.authenticate();
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

  /** The statements of a transaction that has begun. */
  protected abstract workIn(transaction: SequelizeTransaction, effects: Effects): Transaction;

  /**
   * Cached rows are valid while the version of their tables stays the same; undefined: do not cache. See `WriteSignal` and
   * `CachedReadOptions`.
   */
  protected abstract versions(lag: number): Promise<Versions | undefined>;
  /** Called after each commit that wrote. Resolves when the next versions of `tables` on every instance are new ones. */
  protected async afterWrite(_tables: Tables): Promise<void> {
    this.#commits += 1;
  }

  /** Number of commits of this instance that wrote. */
  protected get commits(): number {
    return this.#commits;
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
    const done = runUntil(deadline, () => this.#attempt(work, keepsRows(options), deadline));
    const settled = done.then(ignore, ignore).then(() => void this.#running.delete(settled));
    this.#running.add(settled);
    return done;
  }

  async #attempt<T>(work: (tx: Transaction) => Promise<T>, keeps: boolean, deadline: number): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      const effects: Effects = { wrote: false, tables: new Set() };
      try {
        const result = await this.sequelize.transaction((transaction) => work(this.workIn(transaction, effects)));
        this.hasWritten = effects.wrote;
        if (effects.wrote && !keeps) await this.afterWrite(effects.tables && [...effects.tables]);
        return result;
      } catch (error) {
        if (attempt >= 10 || performance.now() > deadline || !isConflict(error)) throw databaseFailure(error);
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
    await this.sequelize.close();
  }
}

function ignore(): void {}

/** Whether all cached rows stay valid after the transaction. */
export function keepsRows({ fleeting = false, uncached = fleeting }: TransactionOptions): boolean {
  return uncached;
}

/** Deadlock and lock wait timeout (MySQL 1213, 1205), or a busy SQLite: the whole transaction can be repeated. */
function isConflict(error: unknown): boolean {
  const parent = (error as { parent?: { errno?: number } }).parent;
  return parent?.errno === 1213 || parent?.errno === 1205 || isBusy(parent ?? {});
}
