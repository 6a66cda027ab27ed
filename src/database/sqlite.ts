import { open, type FileHandle } from 'node:fs/promises';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { inTurnShared } from '../runtime/in-turn.ts';
import { Recent } from '../runtime/recent.ts';

/** Sequelize's sqlite dialect reads these from `this` after a statement. */
interface SqliteResult {
  lastID: number;
  changes: number;
}
type Done = (this: SqliteResult, error: Error | null, rows?: unknown[]) => void;
const busyTimeout = 'PRAGMA busy_timeout = 5000;';
/** Bytes of the file of the log that are kept when it begins anew. */
const logBytes = 48 * 2 ** 20;
/** KiB of pages that a connection keeps in memory. With SQLite's own 2,000, searches among many packages are a tenth slower. */
const cacheSize = 8000;
/** SQLite says since 3.51 how long the log is (`wal_checkpoint(NOOP)`). Before, it copies the log by itself. */
const knowsLog = versionOfSqlite() >= 3051;

type Parameters = Record<string, SQLInputValue> | readonly SQLInputValue[];

/** A SQLite connection with its prepared statements. */
export class Connection {
  readonly #database: DatabaseSync;
  readonly #statements = new Recent<string, StatementSync>(500);

  constructor(filename: string) {
    this.#database = new DatabaseSync(filename);
    try {
      this.#database.exec(`${busyTimeout} PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = ${logBytes};`);
      this.#database.exec(`PRAGMA cache_size = -${cacheSize}`);
      // Else a commit copies the log in the event loop. See `Checkpoints`.
      if (knowsLog) this.#database.exec('PRAGMA wal_autocheckpoint = 0');
    } catch (error) {
      this.#database.close();
      throw error;
    }
  }

  get isTransaction(): boolean {
    return this.#database.isTransaction;
  }

  prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  /** Changes when any other connection, in any process, commits (`PRAGMA data_version`). */
  get version(): string {
    return String(this.prepare('PRAGMA data_version').get()!['data_version']);
  }

  /** Pages of the log, and those of them that the file of the database lacks. Throws within a transaction. */
  get log(): { pages: number; lacking: number } {
    if (!knowsLog) return { pages: 0, lacking: 0 };
    const { log, checkpointed } = this.prepare('PRAGMA wal_checkpoint(NOOP)').get()!;
    return { pages: Number(log), lacking: Number(log) - Number(checkpointed) };
  }

  exec(sql: string): void {
    this.#database.exec(sql);
  }

  close(): void {
    this.#statements.clear();
    this.#database.close();
  }
}

/**
 * Replaces the `sqlite3` package for Sequelize's sqlite dialect (`dialectModule`). Sequelize opens a `Database` for
 * each transaction. Connections are reused, because opening one takes longer than most transactions.
 */
export class SqliteDriver {
  readonly OPEN_READWRITE = 2;
  readonly OPEN_CREATE = 4;
  readonly Database: new (filename: string, mode: number, opened: (error: Error | null) => void) => Database;
  /**
   * How the next transaction commits: NORMAL survives a power failure only after `sync`. FULL waits for the disk in the event loop, and
   * also makes a new log durable in its folder.
   */
  synchronous: 'FULL' | 'NORMAL' = 'FULL';
  /** Makes all commits so far durable. Calls that wait for the disk at the same time share one wait. */
  readonly sync = inTurnShared(() => this.#syncLog());
  /** How long the next transaction waits for another process's transaction, by `performance.now()`. */
  beginUntil = 0;
  /** Whether the next transaction leaves `version` as it is. */
  keepsVersion = false;
  readonly #path: string;
  readonly #idle: Connection[] = [];
  /** The connection that reads the file's version. Its own commits do not change that version. */
  #versioned: Connection | undefined;
  /** Number of such connections that were opened. Each has versions of its own. */
  #opened = 0;
  /** The log. SQLite keeps this file while a connection is open. */
  #log: FileHandle | undefined;

  constructor(path: string) {
    this.#path = path;
    const take = (filename: string) => this.#take(filename);
    const release = (connection: Connection) => this.#release(connection);
    const beginUntil = () => this.beginUntil;
    this.Database = class extends Database {
      constructor(filename: string, _mode: number, opened: (error: Error | null) => void) {
        super(filename, take(filename), release, beginUntil());
        queueMicrotask(() => opened(null));
      }
    };
  }

  /** Changes with each commit of any process, except those of transactions with `keepsVersion` of this one. */
  get version(): string {
    const { version } = this.#forVersion();
    return `${this.#opened} ${version}`;
  }

  /** Closes the idle connections. */
  close(): void {
    // Not waited for: it waits for a sync, which a disk may never end. What was confirmed is on the disk.
    void this.#log?.close().catch(() => undefined);
    this.#log = undefined;
    for (const connection of this.#idle.splice(0)) connection.close();
    this.#versioned?.close();
    this.#versioned = undefined;
  }

  async #syncLog(): Promise<void> {
    this.#log ??= await open(`${this.#path}-wal`, 'r+');
    await this.#log.datasync();
  }

  #take(filename: string): Connection {
    const connection = this.keepsVersion ? this.#forVersion() : (this.#idle.pop() ?? new Connection(filename));
    connection.exec(`PRAGMA synchronous = ${this.synchronous}`);
    return connection;
  }

  #release(connection: Connection): void {
    // A connection whose transaction could not be ended cannot be reused.
    if (connection.isTransaction) {
      connection.close();
      if (connection === this.#versioned) this.#versioned = undefined;
    } else if (connection !== this.#versioned) {
      this.#idle.push(connection);
    }
  }

  #forVersion(): Connection {
    if (!this.#versioned) {
      this.#versioned = new Connection(this.#path);
      this.#opened += 1;
    }
    return this.#versioned;
  }
}

/** What is used of a connection besides Sequelize. */
export interface SqliteDatabase {
  /** The rows of a statement with `?` placeholders, kept prepared. */
  select(sql: string, values: readonly SQLInputValue[]): object[];
  /** Runs such a statement; returns the number of changed rows, and the ID of the row that was inserted last. */
  change(sql: string, values: readonly SQLInputValue[]): { changes: number; lastId: number };
}

/** The connection interface of the `sqlite3` package, implemented with Node's built-in SQLite. */
class Database implements SqliteDatabase {
  /** Sequelize sets it on the connection of a transaction. */
  uuid: string | undefined;
  readonly filename: string;
  readonly #connection: Connection;
  readonly #release: (connection: Connection) => void;
  readonly #beginUntil: number;

  constructor(filename: string, connection: Connection, release: (connection: Connection) => void, beginUntil: number) {
    this.#beginUntil = beginUntil;
    this.filename = filename;
    this.#connection = connection;
    this.#release = release;
  }

  serialize(work: () => void): void {
    work();
  }

  run(sql: string, parameters: Parameters = [], done?: Done): void {
    this.all(sql, parameters, done);
  }

  all(sql: string, parameters: Parameters = [], done?: Done): void {
    if (/^BEGIN\b/.test(sql)) {
      void this.#begin(sql, done);
      return;
    }
    const outcome: SqliteResult = { lastID: 0, changes: 0 };
    let rows: unknown[] = [];
    try {
      const statement = this.#connection.prepare(sql);
      const values = Array.isArray(parameters) ? parameters : [parameters as Record<string, SQLInputValue>];
      if (statement.columns().length > 0) {
        rows = statement.all(...(values as SQLInputValue[]));
      } else {
        const result = statement.run(...(values as SQLInputValue[]));
        outcome.lastID = Number(result.lastInsertRowid);
        outcome.changes = Number(result.changes);
      }
    } catch (error) {
      done?.call(outcome, error as Error);
      return;
    }
    done?.call(outcome, null, rows);
  }

  select(sql: string, values: readonly SQLInputValue[]): object[] {
    return this.#connection.prepare(sql).all(...values);
  }

  change(sql: string, values: readonly SQLInputValue[]): { changes: number; lastId: number } {
    const { changes, lastInsertRowid } = this.#connection.prepare(sql).run(...values);
    return { changes: Number(changes), lastId: Number(lastInsertRowid) };
  }

  exec(sql: string, done?: (error: Error | null) => void): void {
    this.#connection.exec(sql);
    done?.(null);
  }

  close(done?: (error: Error | null) => void): void {
    this.#release(this.#connection);
    done?.(null);
  }

  async #begin(sql: string, done?: Done): Promise<void> {
    const outcome: SqliteResult = { lastID: 0, changes: 0 };
    const begin = () => {
      this.#connection.exec(`PRAGMA busy_timeout = 0; ${sql}`);
      this.#connection.exec(busyTimeout);
    };
    try {
      await whenFree(begin, this.#beginUntil);
    } catch (error) {
      done?.call(outcome, error as Error);
      return;
    }
    done?.call(outcome, null, []);
  }
}

/**
 * What `work` returns, repeated while another connection holds the lock that it needs. From `until` on, by `performance.now()`, throws as
 * `work`. Waits without blocking, because the other connection may belong to this process.
 */
export async function whenFree<T>(work: () => T, until: number): Promise<T> {
  for (;;) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error) || performance.now() > until) throw error;
    }
    await sleep(1 + Math.random() * 9);
  }
}

/** Whether another connection holds the lock (SQLITE_BUSY, with or without an extended code). */
export function isBusy(error: unknown): boolean {
  return ((error as { errcode?: number }).errcode ?? 0) % 256 === 5;
}

/** Such as 3051 for 3.51.2. */
function versionOfSqlite(): number {
  using database = new DatabaseSync(':memory:');
  const { version } = database.prepare('SELECT sqlite_version() AS version').get() as { version: string };
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major * 1000 + minor;
}
