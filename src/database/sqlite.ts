import { open, type FileHandle } from 'node:fs/promises';
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { inTurnShared } from '../runtime/in-turn.ts';
import { Recent } from '../runtime/recent.ts';

const busyTimeout = 'PRAGMA busy_timeout = 5000;';
/** Bytes of the file of the log that are kept when it begins anew. */
const logBytes = 48 * 2 ** 20;
/** KiB of pages that a connection keeps in memory. With SQLite's own 2,000, searches among many packages are a tenth slower. */
const cacheSize = 8000;
/** SQLite says since 3.51 how long the log is (`wal_checkpoint(NOOP)`). Before, it copies the log by itself. */
const knowsLog = versionOfSqlite() >= 3051;

/** A SQLite connection with its prepared statements. */
export class Connection {
  readonly #database: DatabaseSync;
  readonly #statements = new Recent<string, StatementSync>(500);
  #synchronous: 'FULL' | 'NORMAL' | undefined;

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

  /** Changes when another connection of any process commits (`PRAGMA data_version`). */
  get version(): string {
    return String(this.prepare('PRAGMA data_version').get()!['data_version']);
  }

  /**
   * Pages of the log, and those of them that the file of the database lacks; undefined if this version of SQLite does not say it. Throws
   * within a transaction.
   */
  get log(): { pages: number; lacking: number } | undefined {
    if (!knowsLog) return undefined;
    const { log, checkpointed } = this.prepare('PRAGMA wal_checkpoint(NOOP)').get()!;
    return { pages: Number(log), lacking: Number(log) - Number(checkpointed) };
  }

  exec(sql: string): void {
    this.#database.exec(sql);
  }

  /** The rows of a statement with `?` placeholders, kept prepared. */
  select(sql: string, values: readonly SQLInputValue[]): object[] {
    return this.prepare(sql).all(...values);
  }

  /** Runs such a statement; returns the number of changed rows, and the ID of the row that was inserted last. */
  change(sql: string, values: readonly SQLInputValue[]): { changes: number; lastId: number } {
    const { changes, lastInsertRowid } = this.prepare(sql).run(...values);
    return { changes: Number(changes), lastId: Number(lastInsertRowid) };
  }

  /**
   * How the next transaction commits: NORMAL survives a power failure only after a sync of the log. FULL waits for the disk in the event
   * loop, and also makes a new log durable in its folder.
   */
  set synchronous(value: 'FULL' | 'NORMAL') {
    if (value === this.#synchronous) return;
    this.exec(`PRAGMA synchronous = ${value}`);
    this.#synchronous = value;
  }

  /** Begins a transaction that writes. Waits for the one of another connection until `until`, by `performance.now()`. */
  begin(until: number): Promise<void> {
    return whenFree(() => {
      try {
        this.exec('PRAGMA busy_timeout = 0; BEGIN IMMEDIATE');
      } finally {
        this.exec(busyTimeout);
      }
    }, until);
  }

  close(): void {
    this.#statements.clear();
    this.#database.close();
  }
}

/**
 * The connection for transactions, of which a process runs one at a time. With a single one, SQLite keeps the pages that it has in
 * memory, and the version of the file tells of other processes only.
 */
export class Writer {
  /** Makes all commits so far durable. Calls that wait for the disk at the same time share one wait. */
  readonly sync = inTurnShared(() => this.#syncLog());
  readonly #path: string;
  #connection: Connection | undefined;
  /** Number of connections that were opened. Each has versions of its own. */
  #opened = 0;
  /** The log. SQLite keeps this file while a connection is open. */
  #log: FileHandle | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** Changes with each commit of another process. */
  get version(): string {
    const { version } = this.open();
    return `${this.#opened} ${version}`;
  }

  /** The connection, which is opened if there is none. */
  open(): Connection {
    if (!this.#connection) {
      this.#connection = new Connection(this.#path);
      this.#opened += 1;
    }
    return this.#connection;
  }

  /** Ends the transaction without its writes. SQLite has ended it already after some errors. Never throws. */
  rollback(): void {
    const connection = this.open();
    try {
      if (connection.isTransaction) connection.exec('ROLLBACK');
    } catch {
      // Another transaction cannot begin on it.
      this.#connection = undefined;
      connection.close();
    }
  }

  close(): void {
    // Not waited for: it waits for a sync, which a disk may never end. What was confirmed is on the disk.
    void this.#log?.close().catch(() => undefined);
    this.#log = undefined;
    this.#connection?.close();
    this.#connection = undefined;
  }

  async #syncLog(): Promise<void> {
    this.#log ??= await open(`${this.#path}-wal`, 'r+');
    await this.#log.datasync();
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

/** Locks the file at `path`, which nothing else uses; undefined if another process has locked it. A killed process holds no lock. */
export function lockFile(path: string): Disposable | undefined {
  const lock = new DatabaseSync(path);
  try {
    // Without a wait, because the holder may be in this process.
    lock.exec('BEGIN EXCLUSIVE');
    return { [Symbol.dispose]: () => lock.close() };
  } catch (error) {
    lock.close();
    if (isBusy(error)) return undefined;
    throw error;
  }
}

/** Such as 3051 for 3.51.2. */
function versionOfSqlite(): number {
  using database = new DatabaseSync(':memory:');
  const { version } = database.prepare('SELECT sqlite_version() AS version').get() as { version: string };
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major * 1000 + minor;
}
