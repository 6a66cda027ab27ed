import { AsyncLocalStorage } from 'node:async_hooks';

/** The longest times of database work, in milliseconds. */
export interface TimeLimits {
  /** One read outside a transaction. */
  read: number;
  /** A transaction, with its wait for its turn and all its repetitions. */
  transaction: number;
  /** The wait for a free connection, or for a new one. */
  connection: number;
  /** The wait for a lock of another MySQL transaction, or of LOCK TABLES. MySQL counts in whole seconds. */
  lock: number;
  /** One statement of background work, or one transaction of it. */
  background: number;
}

export const timeLimits: TimeLimits = {
  read: 8000,
  transaction: 30_000,
  connection: 5000,
  lock: 10_000,
  background: 600_000,
};

/** How long `Database.exclusively` waits for the lock, in milliseconds. */
export const lockTimeout = 60_000;
export const lockTimeoutMessage = 'another instance has held the migration lock of this database for a minute';

const background = new AsyncLocalStorage<true>();

/** Runs `work` with the time limit of background work: migrations, jobs and commands, for which no client waits. */
export function inBackground<T>(work: () => T): T {
  return background.run(true, work);
}

/** Whether the running code was started by `inBackground`. */
export function isInBackground(): boolean {
  return background.getStore() === true;
}
