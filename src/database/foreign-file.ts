import { DatabaseSync } from 'node:sqlite';
import { pause } from '../runtime/event-loop.ts';
import type { Row } from './database.ts';

/** Rows that are read at once. */
const pageRows = 500;

/**
 * The rows of a table in an SQLite file of another program, in the order of `key`, an integer column; `columns` are written into the
 * statement. Nothing is written to the file. Rejects if it has no such table or columns.
 */
export async function* rowsOfFile(
  path: string,
  table: string,
  key: string,
  columns: readonly string[],
): AsyncGenerator<Row> {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    const names = [key, ...columns].map((each) => `"${each}"`).join(', ');
    const read = database.prepare(
      `SELECT ${names} FROM "${table}" WHERE "${key}" > ? ORDER BY "${key}" LIMIT ${pageRows}`,
    );
    for (let after = -1; ;) {
      const rows = read.all(after) as Row[];
      for (const row of rows) {
        yield row;
        await pause();
      }
      if (rows.length < pageRows) return;
      after = Number(rows.at(-1)![key]);
    }
  } finally {
    database.close();
  }
}
