import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { openDatabase, type Database, type Dialect } from '../../src/database/database.ts';
import { timeLimits } from '../../src/database/time-limits.ts';
import { createDatabase } from './processes/services.ts';
import { folderUntilEnd } from './folder.ts';
import { copySchema } from './schema-copy.ts';

type Test = Pick<ExecutionContext, 'teardown'>;

/** Many tests at the same time share two processors, so that all work with a database can take longer than in production. */
export const patientLimits = { ...timeLimits, connection: 60_000, read: 60_000, transaction: 120_000, lock: 60_000 };

/** Both databases, for suites that run on both. */
export const dialects: readonly Dialect[] = ['sqlite', 'mysql'];

/** The URL of a new, empty database, which is removed when the test ends. */
export async function emptyDatabase(t: Test, dialect: Dialect): Promise<string> {
  if (dialect === 'mysql') {
    const database = await createDatabase();
    t.teardown(() => database.drop());
    return database.url;
  }
  const folder = await folderUntilEnd(t);
  return `sqlite:${join(folder, 'entrepot.db')}`;
}

/** The URL of a new database with all tables and no content, which is removed when the test ends. */
export async function temporaryDatabase(t: Test, dialect: Dialect): Promise<string> {
  const url = await emptyDatabase(t, dialect);
  await copySchema(url);
  return url;
}

/** Opens `url`, and closes it when the test ends. */
export async function openUntilEnd(t: Test, url: string): Promise<Database> {
  const database = await openDatabase(url, undefined, patientLimits);
  t.teardown(() => database.close());
  return database;
}

/** `real`, with some methods replaced. */
export function changedDatabase(real: Database, changes: Partial<Database>): Database {
  return {
    dialect: real.dialect,
    times: real.times,
    processes: real.processes,
    select: (sql, values) => real.select(sql, values),
    get: (sql, values) => real.get(sql, values),
    getCached: (sql, values, options) => real.getCached(sql, values, options),
    selectCached: (sql, values, options) => real.selectCached(sql, values, options),
    stateOf: (tables) => real.stateOf(tables),
    transaction: (work, options) => real.transaction(work, options),
    snapshot: (read) => real.snapshot(read),
    exclusively: (work) => real.exclusively(work),
    checkReads: () => real.checkReads(),
    checkWrites: () => real.checkWrites(),
    close: () => real.close(),
    ...changes,
  };
}

function killed(): Promise<never> {
  return Promise.reject(new Error('killed'));
}

/** A database that fails after so many transactions, as for a process that is killed then: before one, or after its commit. */
export function dyingDatabase(real: Database, transactions: number, afterCommit: boolean): Database {
  let left = transactions;
  return changedDatabase(real, {
    transaction: async (work, options) => {
      left -= 1;
      if (left < 0 || (left === 0 && !afterCommit)) return killed();
      const result = await real.transaction(work, options);
      return left === 0 ? killed() : result;
    },
    select: (sql, values) => (left <= 0 ? killed() : real.select(sql, values)),
    get: (sql, values) => (left <= 0 ? killed() : real.get(sql, values)),
  });
}
