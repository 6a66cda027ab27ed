import { AsyncLocalStorage } from 'node:async_hooks';
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

/** When the running read or transaction must have ended, by `performance.now()`. */
const deadline = new AsyncLocalStorage<number>();

/** Runs `work`, whose statements on MySQL must be answered before `until`, by `performance.now()`. */
export function runUntil<T>(until: number, work: () => T): T {
  return deadline.run(until, work);
}

/**
 * Gives every statement of a new connection a time limit: `limit`, or the rest of the time of the running read or
 * transaction.
 * mysql2 has a time limit that keeps the connection, which would then read the late answer as that of the next statement.
 */
export function limitStatements(connection: MysqlConnection, limit: () => number): void {
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
