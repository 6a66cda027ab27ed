import { promisify } from 'node:util';
import {
  ConnectionAcquireTimeoutError,
  ConnectionError,
  Sequelize,
  Transaction as SequelizeTransaction,
  type Options,
} from 'sequelize';
import { currentCaller } from '../runtime/caller.ts';
import type { Queryable, Row, Transaction, Value, WriteSignal } from './database.ts';
import { CommonDatabase } from './common-database.ts';
import { databaseUnavailable, unreachable } from './failure.ts';
import { limitStatements, Renewal, runUntil, sessionSettings, type MysqlConnection } from './mysql-connection.ts';
import { MysqlWork, select } from './mysql-work.ts';
import { readEveryTable } from './probe.ts';
import type { Versions } from './row-cache.ts';
import type { Tables } from './statement-tables.ts';
import { inBackground, isInBackground, lockTimeout, lockTimeoutMessage, type TimeLimits } from './time-limits.ts';
import type { Effects } from './transaction-work.ts';

/** MySQL or MariaDB, through Sequelize. Reads have connections of their own, so that transactions which wait cannot stop them. */
export class MysqlDatabase extends CommonDatabase {
  readonly dialect = 'mysql';
  readonly #sequelize: Sequelize;
  readonly #changes: WriteSignal | undefined;
  readonly #reader: Sequelize;

  constructor(url: string, changes: WriteSignal | undefined, limits: TimeLimits) {
    super(limits);
    const renewal = new Renewal();
    this.#sequelize = openPool(url, limits, renewal, false);
    this.#reader = openPool(url, limits, renewal, true);
    this.#changes = changes;
  }

  /** Rejects when the database is unreachable. */
  connect(): Promise<void> {
    return this.#sequelize.authenticate();
  }

  override async select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    const { read, background } = this.limits;
    const startedAt = performance.now();
    const until = startedAt + (isInBackground() ? background : read);
    try {
      return await runUntil(until, () => select<T>(this.#connections, sql, values));
    } catch (error) {
      throw this.failureOf(error);
    } finally {
      this.times.read.since(startedAt);
    }
  }

  protected override attempt<T>(work: (tx: Transaction) => Promise<T>, effects: Effects, deadline: number): Promise<T> {
    const sequelize = this.#sequelize;
    const run = (transaction: SequelizeTransaction) => work(new MysqlWork(sequelize, transaction, effects));
    return runUntil(deadline, () => sequelize.transaction(run));
  }

  /** A deadlock or a lock that another transaction has held for long (1213, 1205). */
  protected override isConflict(error: unknown): boolean {
    const errno = (error as { parent?: { errno?: number } }).parent?.errno;
    return errno === 1213 || errno === 1205;
  }

  protected override failureOf(error: unknown): unknown {
    if (error instanceof ConnectionAcquireTimeoutError) {
      return databaseUnavailable('All connections to the database are busy.', error);
    }
    return error instanceof ConnectionError ? databaseUnavailable(unreachable, error) : super.failureOf(error);
  }

  /**
   * The connections for a read. A request that writes reads with those for transactions, so that many of them which wait
   * for one table cannot stop other reads. So does background work, because the server ends long statements of readers.
   */
  get #connections(): Sequelize {
    return isInBackground() || currentCaller()?.writes ? this.#sequelize : this.#reader;
  }

  override snapshot<T>(read: (from: Queryable) => Promise<T>): Promise<T> {
    const isolationLevel = SequelizeTransaction.ISOLATION_LEVELS.REPEATABLE_READ;
    const work = (transaction: SequelizeTransaction) => this.#readIn(transaction, read);
    return inBackground(() => this.#sequelize.transaction({ isolationLevel }, work)).catch((error: unknown) => {
      throw this.failureOf(error);
    });
  }

  async #readIn<T>(transaction: SequelizeTransaction, read: (from: Queryable) => Promise<T>): Promise<T> {
    const from: Queryable = {
      dialect: this.dialect,
      select: (sql, values = []) => select(this.#sequelize, sql, values, transaction),
      get: async <R extends object>(sql: string, values: readonly Value[] = []) =>
        (await select<R>(this.#sequelize, sql, values, transaction))[0],
    };
    // The state is that of the first read of a table.
    await from.get('SELECT id FROM schema_version');
    return read(from);
  }

  override checkReads(): Promise<void> {
    return readEveryTable(this.dialect, (sql) => this.select(sql));
  }

  override async close(): Promise<void> {
    await super.close();
    await this.#sequelize.close();
    await this.#reader.close();
  }

  protected override async versions(lag: number): Promise<Versions | undefined> {
    if (this.#changes) return this.#changes.versions();
    if (lag <= 0) return undefined;
    const period = Math.floor(performance.now() / lag);
    return { of: (tables) => `${period} ${this.writes.of(tables)}` };
  }

  protected override async afterWrite(tables: Tables): Promise<void> {
    await super.afterWrite(tables);
    await this.#changes?.announce(tables);
  }

  override exclusively<T>(work: () => Promise<T>): Promise<T> {
    return inBackground(() => this.#underLock(work));
  }

  #underLock<T>(work: () => Promise<T>): Promise<T> {
    return this.#sequelize.transaction(async (transaction) => {
      const name = `entrepot:${this.#sequelize.getDatabaseName()}`.slice(0, 64);
      const [row] = await select<{ acquired: number }>(
        this.#sequelize,
        'SELECT GET_LOCK(?, ?) AS acquired',
        [name, lockTimeout / 1000],
        transaction,
      );
      if (row?.acquired !== 1) throw new Error(lockTimeoutMessage);
      try {
        return await work();
      } finally {
        await select(this.#sequelize, 'SELECT RELEASE_LOCK(?) AS released', [name], transaction);
      }
    });
  }
}

/** Most connections of one instance for reads, and the same number for transactions. */
const connections = 10;

/** What the types of Sequelize lack. */
type MoreOptions = Options & { keepDefaultTimezone: boolean };
type Validating = Sequelize['connectionManager'] & { validate: (connection: object) => boolean };

/** The connections for reads or for transactions. */
function openPool(url: string, limits: TimeLimits, renewal: Renewal, isReader: boolean): Sequelize {
  const prepare = async (connection: MysqlConnection): Promise<void> => {
    const { read, transaction, background } = limits;
    renewal.made(connection);
    const limit = () => (isInBackground() ? background : isReader ? read : transaction);
    limitStatements(connection, limit, (error) => renewal.failed(connection, error));
    const send = promisify<string, unknown>(connection.query.bind(connection));
    try {
      // The pool can also make a connection when work has just run out of time, for other work that waits.
      const until = performance.now() + limits.connection;
      await runUntil(until, () => send(sessionSettings(limits, isReader)));
    } catch (error) {
      connection.destroy();
      throw new ConnectionError(error as Error);
    }
  };
  const validate = (connection: object) =>
    renewal.allows(connection) && (sequelize.connectionManager as Validating).validate(connection);
  const options: MoreOptions = {
    dialect: 'mysql',
    logging: false,
    pool: { max: connections, idle: 60_000, acquire: limits.connection, validate },
    isolationLevel: SequelizeTransaction.ISOLATION_LEVELS.READ_COMMITTED,
    // `prepare` sets the time zone, with a time limit.
    keepDefaultTimezone: true,
    hooks: { afterConnect: (connection) => prepare(connection as MysqlConnection) },
    dialectOptions: {
      charset: 'utf8mb4',
      connectTimeout: limits.connection,
      supportBigNumbers: true,
      decimalNumbers: true,
    },
    retry: { max: 1 },
  };
  const sequelize = new Sequelize(url.replace(/^mariadb:/, 'mysql:'), options);
  return sequelize;
}
