import { AsyncLocalStorage } from 'node:async_hooks';
import { mayBeReplaced } from './failure.ts';
import type { TimeLimits } from './time-limits.ts';

type Done = (error: Error | null, ...results: unknown[]) => void;
type Send = (...input: unknown[]) => unknown;

/** The parts of a mysql2 connection that Sequelize and this file use. */
export interface MysqlConnection {
  query: Send;
  execute: Send;
  destroy(): void;
  stream: { destroy(): void };
}

/** Milliseconds between two renewals, because a database that stays read-only would else be asked for connections by each write. */
const renewEvery = 1000;

/**
 * Renews all connections of this process after a server took no write: after a failover the old primary can go on to answer on those
 * that are open, while new ones reach the new primary. What runs on the old ones goes on to its end.
 */
export class Renewal {
  readonly #madeAt = new WeakMap<object, number>();
  #lastAt = -Infinity;

  /** Notes a new connection. */
  made(connection: object): void {
    this.#madeAt.set(connection, performance.now());
  }

  /** Whether further work may use the connection. */
  allows(connection: object): boolean {
    return (this.#madeAt.get(connection) ?? 0) >= this.#lastAt;
  }

  /** Notes the error of a statement on the connection. */
  failed(connection: object, error: unknown): void {
    const now = performance.now();
    if (mayBeReplaced(error) && this.allows(connection) && now - this.#lastAt >= renewEvery) this.#lastAt = now;
  }
}

/** When the running read or transaction must have ended, by `performance.now()`. */
const deadline = new AsyncLocalStorage<number>();

/** Runs `work`, whose statements on MySQL must be answered before `until`, by `performance.now()`. */
export function runUntil<T>(until: number, work: () => T): T {
  return deadline.run(until, work);
}

/**
 * Gives every statement of a new connection a time limit: `limit`, or the rest of the time of the running read or
 * transaction. `failed` gets the error of a statement.
 * mysql2 has a time limit that keeps the connection, which would then read the late answer as that of the next statement.
 */
export function limitStatements(
  connection: MysqlConnection,
  limit: () => number,
  failed: (error: Error) => void,
): void {
  for (const method of ['query', 'execute'] as const) {
    const send = connection[method].bind(connection);
    connection[method] = (...input) => {
      const done = input.pop() as Done;
      const until = deadline.getStore();
      const time = until === undefined ? limit() : Math.max(1, until - performance.now());
      let isOver = false;
      const settle: Done = (...results) => {
        if (isOver) return;
        isOver = true;
        clearTimeout(timer);
        if (results[0]) failed(results[0]);
        done(...results);
      };
      const timer = setTimeout(() => {
        // The pool replaces a destroyed connection. The stream is destroyed too, because a frozen server never ends it.
        connection.destroy();
        connection.stream.destroy();
        settle(Object.assign(new Error('the database has not answered in time'), { code: 'ETIMEDOUT', fatal: true }));
      }, time);
      return send(...input, settle);
    };
  }
}

/**
 * The server's own time limits for a new connection, so that it ends a statement whose client has stopped waiting.
 * MariaDB and MySQL each ignore the comment of the other. Only reads have a limit of their run time.
 */
export function sessionSettings({ read, lock }: TimeLimits, isReader: boolean): string {
  const wait = Math.max(1, Math.ceil((isReader ? Math.min(read, lock) : lock) / 1000));
  const locks = `SET time_zone = '+00:00', lock_wait_timeout = ${wait}, innodb_lock_wait_timeout = ${wait}`;
  return isReader
    ? `${locks} /*M! , max_statement_time = ${read / 1000} */ /*!50708 , max_execution_time = ${read} */`
    : locks;
}
