import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pause } from '../runtime/event-loop.ts';
import { inTime } from '../runtime/in-time.ts';
import { Checkpoints } from './checkpoints.ts';
import { CommonDatabase } from './common-database.ts';
import type { Queryable, Row, Transaction, TransactionOptions, Value } from './database.ts';
import { databaseFailure, databaseUnavailable } from './failure.ts';
import { readEveryTable } from './probe.ts';
import { LockedProcesses } from './processes.ts';
import type { Versions } from './row-cache.ts';
import { Connection, isBusy, lockFile, whenFree, Writer } from './sqlite.ts';
import { SqliteFiles } from './sqlite-files.ts';
import { sqliteSnapshot } from './sqlite-snapshot.ts';
import { SqliteWork } from './sqlite-work.ts';
import { inBackground, lockTimeout, lockTimeoutMessage, type TimeLimits } from './time-limits.ts';
import type { Effects } from './transaction-work.ts';

/** SQLite. This class queues the write transactions of this process, and waits for those of other processes. */
export class SqliteDatabase extends CommonDatabase {
  readonly dialect = 'sqlite';
  override readonly processes: LockedProcesses;
  readonly #path: string;
  readonly #reader: Connection;
  readonly #writer: Writer;
  readonly #files: SqliteFiles;
  readonly #checkpoints: Checkpoints;
  /** The end of the last transaction. */
  #writing: Promise<unknown> = Promise.resolve();
  /** The same of all transactions, once their writes are on the disk. */
  #durable: Promise<unknown> = Promise.resolve();
  #hasSynced = false;
  /** Numbers of writes that have ended, and of those that the disk has confirmed. */
  #written = 0;
  #confirmed = 0;
  /** The version of the file, by the commits of other processes, that the disk has confirmed. */
  #confirmedVersion: string | undefined;
  /** Whether a sync failed, and the log was not copied since. */
  #isSuspect = false;

  constructor(path: string, limits: TimeLimits) {
    mkdirSync(dirname(path), { recursive: true });
    super(limits);
    this.#path = path;
    this.#writer = new Writer(path);
    this.#reader = new Connection(path);
    this.#files = new SqliteFiles(path);
    this.#checkpoints = new Checkpoints(path);
    this.processes = new LockedProcesses(`${path}.processes`, lockFile);
  }

  override async select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    // A query runs at once, so that a loop of queries would hold the event loop.
    await pause();
    const startedAt = performance.now();
    try {
      return this.#reader.prepare(sql).all(...values) as T[];
    } catch (error) {
      throw databaseFailure(error);
    } finally {
      this.times.read.since(startedAt);
    }
  }

  protected override async attempt<T>(
    work: (tx: Transaction) => Promise<T>,
    effects: Effects,
    deadline: number,
  ): Promise<T> {
    const connection = this.#writer.open();
    connection.synchronous = this.#hasSynced ? 'NORMAL' : 'FULL';
    await connection.begin(deadline);
    const tx = new SqliteWork(connection, effects);
    try {
      const result = await work(tx);
      tx.end();
      connection.exec('COMMIT');
      return result;
    } catch (error) {
      tx.end();
      this.#writer.rollback();
      throw error;
    }
  }

  protected override isConflict(error: unknown): boolean {
    return isBusy(error);
  }

  override transaction<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    const startedAt = performance.now();
    const deadline = this.deadline();
    const turn = this.#writing.then(() => this.#takeTurn(work, options, deadline));
    // The next transaction need not wait until this one is on the disk: both then wait together.
    this.#writing = turn.catch(() => undefined);
    const done = options.fleeting ? turn : this.#durableAfter(turn, deadline);
    const before = this.#durable;
    this.#durable = done.then(
      () => before,
      () => before,
    );
    return done.finally(() => this.times.transaction.since(startedAt));
  }

  /** As `turn`, once all writes until then are on the disk: it may have read what another one wrote, also of another process. */
  async #durableAfter<T>(turn: Promise<T>, deadline: number): Promise<T> {
    try {
      return await turn;
    } finally {
      await this.#sync(deadline);
    }
  }

  async #sync(deadline: number): Promise<void> {
    const upTo = this.#written;
    const sync = async () => {
      await this.#writer.sync().catch((error: unknown) => {
        this.#isSuspect = true;
        throw error;
      });
      // A write that waited for another run may stand behind one that the disk lacks.
      if (this.#isSuspect) throw new Error('an earlier write was not confirmed');
    };
    try {
      const { version } = this.#writer;
      if (upTo === this.#confirmed && version === this.#confirmedVersion) return;
      await inTime(sync, Math.max(this.limits.transaction, deadline - performance.now()));
      this.#confirmedVersion = version;
    } catch (error) {
      const message = 'The disk of the database did not confirm a write, which may have happened. Try again later.';
      throw databaseUnavailable(message, error);
    }
    this.#confirmed = Math.max(this.#confirmed, upTo);
  }

  async #takeTurn<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions, deadline: number): Promise<T> {
    if (performance.now() > deadline) throw databaseUnavailable('Too many writes wait for the database.');
    // A new connection would make a new file in place of a removed one.
    this.#files.check();
    await this.#prepareLog(deadline);
    const result = await this.begin(work, options, deadline);
    // A write into a removed file has succeeded, but it will be lost.
    this.#files.check();
    if (this.hasWritten) {
      this.#hasSynced = true;
      if (!options.fleeting) this.#written += 1;
      this.#checkpoints.begin(this.#reader);
    }
    return result;
  }

  /**
   * Makes room in the log. After a sync that failed, the disk may lack parts of the log that are still in memory, and which would not be
   * written again: then all of the log is copied into the file of the database before anything else is confirmed.
   */
  async #prepareLog(deadline: number): Promise<void> {
    try {
      const room = () => this.#checkpoints.room(this.#isSuspect);
      await inTime(room, Math.max(1, deadline - performance.now()));
      if (!this.#isSuspect) return;
      if (this.#reader.log?.lacking !== 0) throw new Error('the log of the database is not copied');
    } catch (error) {
      throw databaseUnavailable('The disk of the database has failed.', error);
    }
    this.#isSuspect = false;
  }

  override snapshot<T>(read: (from: Queryable) => Promise<T>): Promise<T> {
    this.#files.check();
    return sqliteSnapshot(this.#path, read);
  }

  override async checkReads(): Promise<void> {
    this.#files.check();
    try {
      // A new connection has no pages in memory.
      using disk = new DatabaseSync(this.#path, { readOnly: true });
      await readEveryTable(this.dialect, (sql) => Promise.resolve(disk.prepare(sql).all()));
    } catch (error) {
      throw databaseFailure(error);
    }
  }

  /**
   * Asks each time whether another process has written, to whatever table. An answer that a timer got is none for a request of the same
   * turn of the event loop: its client may know of a later write of that process.
   */
  protected override async versions(): Promise<Versions> {
    try {
      const { version } = this.#writer;
      return { of: (tables) => `${version} ${this.writes.of(tables)}` };
    } catch (error) {
      throw databaseFailure(error);
    }
  }

  /** The lock is on a separate file, because a SQLite lock belongs to one connection and a migration uses several. */
  override async exclusively<T>(work: () => Promise<T>): Promise<T> {
    const lock = new DatabaseSync(`${this.#path}.lock`);
    try {
      await whenFree(() => lock.exec('BEGIN EXCLUSIVE'), performance.now() + lockTimeout).catch((error: unknown) => {
        throw isBusy(error) ? new Error(lockTimeoutMessage) : error;
      });
      return await inBackground(work);
    } finally {
      lock.close();
    }
  }

  override async close(): Promise<void> {
    await this.#writing;
    await this.#durable;
    await super.close();
    await this.#checkpoints.end();
    this.#writer.close();
    this.#reader.close();
    this.processes[Symbol.dispose]();
  }
}
