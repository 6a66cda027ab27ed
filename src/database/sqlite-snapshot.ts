import { DatabaseSync, type SQLOutputValue } from 'node:sqlite';
import type { Queryable, Value } from './database.ts';
import { databaseFailure } from './failure.ts';

/**
 * Runs `read` on one state of the SQLite database at `path`. Writers do not wait; the log of the database cannot shrink
 * until `read` has ended.
 */
export async function sqliteSnapshot<T>(path: string, read: (from: Queryable) => Promise<T>): Promise<T> {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    const select = async <R extends object>(sql: string, values: readonly Value[] = []): Promise<R[]> => {
      try {
        const statement = database.prepare(sql);
        // Without this, an integer beyond 2^53 would be an error.
        statement.setReadBigInts(true);
        return statement.all(...values).map((row) => withNumbers(row)) as R[];
      } catch (error) {
        throw databaseFailure(error);
      }
    };
    database.exec('PRAGMA busy_timeout = 5000; BEGIN');
    // The state is that of the first read.
    await select('SELECT COUNT(*) AS count FROM sqlite_schema');
    return await read({
      dialect: 'sqlite',
      select,
      get: async <R extends object>(sql: string, values: readonly Value[] = []) => (await select<R>(sql, values))[0],
    });
  } finally {
    database.close();
  }
}

/** The row with numbers where they are exact, and with text where they are not, as MySQL returns it. */
function withNumbers(row: Record<string, SQLOutputValue>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => {
      if (typeof value !== 'bigint') return [name, value];
      const number = Number(value);
      return [name, Number.isSafeInteger(number) ? number : String(value)];
    }),
  );
}
