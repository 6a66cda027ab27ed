import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';

/** What Sequelize's sqlite dialect reads from `this` after a statement. */
interface Outcome {
  lastID: number;
  changes: number;
}
type Done = (this: Outcome, error: Error | null, rows?: unknown[]) => void;
const busyTimeout = 'PRAGMA busy_timeout = 5000;';

type Parameters = Record<string, SQLInputValue> | readonly SQLInputValue[];

/** How long a transaction waits for another process's, in milliseconds. */
const patience = 30_000;

/**
 * The face of the `sqlite3` package that Sequelize's sqlite dialect expects (`dialectModule`), over Node's own SQLite.
 * Sequelize opens one for reads outside transactions and one for each transaction.
 */
export class Database {
  /** Set by Sequelize on a transaction's connection. */
  uuid: string | undefined;
  readonly filename: string;
  readonly #connection: DatabaseSync;
  readonly #statements = new LRUCache<string, StatementSync>({ max: 500 });

  constructor(filename: string, _mode = 0, opened: (error: Error | null) => void = () => undefined) {
    this.filename = filename;
    this.#connection = new DatabaseSync(filename);
    // FULL: what was answered with success is there after the power was cut, too.
    this.#connection.exec(`${busyTimeout} PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;`);
    queueMicrotask(() => opened(null));
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
    const outcome: Outcome = { lastID: 0, changes: 0 };
    let rows: unknown[] = [];
    try {
      const statement = this.#prepare(sql);
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

  /** The rows of a query with `?` placeholders. */
  rows(sql: string, values: readonly SQLInputValue[]): unknown[] {
    return this.#prepare(sql).all(...values);
  }

  exec(sql: string, done?: (error: Error | null) => void): void {
    this.#connection.exec(sql);
    done?.(null);
  }

  close(done?: (error: Error | null) => void): void {
    this.#statements.clear();
    this.#connection.close();
    done?.(null);
  }

  /** Waits without blocking: the transaction it waits for may be this very process's, through another connection. */
  async #begin(sql: string, done?: Done): Promise<void> {
    const outcome: Outcome = { lastID: 0, changes: 0 };
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

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.#connection.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

/** Whether another connection holds the lock (SQLITE_BUSY, with or without an extended code). */
export function isBusy(error: unknown): boolean {
  return ((error as { errcode?: number }).errcode ?? 0) % 256 === 5;
}

export const OPEN_READWRITE = 2;
export const OPEN_CREATE = 4;
