import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';

/** What Sequelize's sqlite dialect reads from `this` after a statement. */
interface SqliteResult {
  lastID: number;
  changes: number;
}
type Done = (this: SqliteResult, error: Error | null, rows?: unknown[]) => void;
const busyTimeout = 'PRAGMA busy_timeout = 5000;';

type Parameters = Record<string, SQLInputValue> | readonly SQLInputValue[];

/** How long a transaction waits for another process's, in milliseconds. */
const patience = 30_000;

/** A connection to SQLite and its prepared statements. */
export class Connection {
  readonly #database: DatabaseSync;
  readonly #statements = new LRUCache<string, StatementSync>({ max: 500 });

  constructor(filename: string) {
    this.#database = new DatabaseSync(filename);
    this.#database.exec(`${busyTimeout} PRAGMA journal_mode = WAL;`);
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

  /** Another one when any other connection, in any process, has committed since (`PRAGMA data_version`). */
  get version(): string {
    return String(this.prepare('PRAGMA data_version').get()!['data_version']);
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
 * What Sequelize's sqlite dialect takes for the `sqlite3` package (`dialectModule`). It opens a `Database` for each
 * transaction; their connections are used again, because to open one takes longer than most transactions.
 */
export class Driver {
  readonly OPEN_READWRITE = 2;
  readonly OPEN_CREATE = 4;
  readonly Database: new (filename: string, mode: number, opened: (error: Error | null) => void) => Database;
  /** How the next transaction commits: with FULL it survives a power cut, with NORMAL only once a later one does. */
  synchronous: 'FULL' | 'NORMAL' = 'FULL';
  readonly #idle: Connection[] = [];

  constructor() {
    const take = (filename: string) => this.#take(filename);
    const giveBack = (connection: Connection) => this.#idle.push(connection);
    this.Database = class extends Database {
      constructor(filename: string, _mode: number, opened: (error: Error | null) => void) {
        super(filename, take(filename), giveBack);
        queueMicrotask(() => opened(null));
      }
    };
  }

  /** Closes the connections that nobody uses. */
  close(): void {
    for (const connection of this.#idle.splice(0)) connection.close();
  }

  #take(filename: string): Connection {
    const connection = this.#idle.pop() ?? new Connection(filename);
    connection.exec(`PRAGMA synchronous = ${this.synchronous}`);
    return connection;
  }
}

/** The face of the `sqlite3` package's connection, over Node's own SQLite. */
class Database {
  /** Set by Sequelize on a transaction's connection. */
  uuid: string | undefined;
  readonly filename: string;
  readonly #connection: Connection;
  readonly #giveBack: (connection: Connection) => void;

  constructor(filename: string, connection: Connection, giveBack: (connection: Connection) => void) {
    this.filename = filename;
    this.#connection = connection;
    this.#giveBack = giveBack;
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

  exec(sql: string, done?: (error: Error | null) => void): void {
    this.#connection.exec(sql);
    done?.(null);
  }

  close(done?: (error: Error | null) => void): void {
    // One whose transaction could not be ended is of no use to the next.
    if (this.#connection.isTransaction) this.#connection.close();
    else this.#giveBack(this.#connection);
    done?.(null);
  }

  /** Waits without blocking: the transaction it waits for may be this very process's, through another connection. */
  async #begin(sql: string, done?: Done): Promise<void> {
    const outcome: SqliteResult = { lastID: 0, changes: 0 };
    const deadline = performance.now() + patience;
    for (;;) {
      try {
        this.#connection.exec(`PRAGMA busy_timeout = 0; ${sql}`);
        this.#connection.exec(busyTimeout);
        done?.call(outcome, null, []);
        return;
      } catch (error) {
        if (!isBusy(error) || performance.now() > deadline) {
          done?.call(outcome, error as Error);
          return;
        }
      }
      await sleep(1 + Math.random() * 9);
    }
  }
}

/** Whether another connection holds the lock (SQLITE_BUSY, with or without an extended code). */
export function isBusy(error: unknown): boolean {
  return ((error as { errcode?: number }).errcode ?? 0) % 256 === 5;
}
