import { createConnection, type Connection } from 'mysql2/promise';
import { DatabaseSync } from 'node:sqlite';

/** SQL for the columns of a clone, by name; `n` stands for its number. Other columns are those of the cloned row. */
export type Changes = Record<string, string>;

/** Clones rows inside the database, which is much faster than inserting them from here. */
export interface Cloner {
  /** Inserts clones, numbered from `first` to `last`, of each row of `table` with `where`. */
  clone(table: string, where: string, first: number, last: number, changes: Changes): Promise<void>;
  read(sql: string): Promise<Record<string, unknown>[]>;
  run(sql: string): Promise<void>;
  /** SQL for 64 hexadecimal digits that increase with `n`. */
  hex(number: string): string;
  close(): Promise<void>;
}

/** Clones in one statement, so that the transaction stays small. */
const atOnce = 100_000;

export async function openCloner(url: string): Promise<Cloner> {
  const database = url.startsWith('sqlite:') ? sqlite(url.slice('sqlite:'.length)) : await mysql(url);
  const columns = new Map<string, string[]>();
  return {
    ...database,
    clone: async (table, where, first, last, changes) => {
      let names = columns.get(table);
      if (!names)
        columns.set(table, (names = Object.keys((await database.read(`SELECT * FROM ${table} LIMIT 1`))[0]!)));
      const copied = names.filter((name) => name !== 'id' || 'id' in changes);
      const values = copied.map((name) => changes[name]?.replace(/\bn\b/g, 'numbers.n') ?? `made.${name}`);
      // A statement that reads the table into which it inserts would first write all its rows into a temporary table.
      await database.run(`CREATE TEMPORARY TABLE made AS SELECT * FROM ${table} WHERE ${where}`);
      for (let start = first; start <= last; start += atOnce) {
        const end = Math.min(last, start + atOnce - 1);
        await database.run(
          `INSERT INTO ${table} (${copied.join(', ')}) SELECT ${values.join(', ')}
           FROM ${database.numbers(start, end)} AS numbers ${database.join} made`,
        );
      }
      await database.run('DROP TABLE made');
    },
  };
}

async function mysql(url: string) {
  const connection: Connection = await createConnection(url);
  await connection.query('SET unique_checks = 0, foreign_key_checks = 0, sql_log_bin = 0');
  return {
    read: async (sql: string) => (await connection.query(sql))[0] as Record<string, unknown>[],
    run: async (sql: string) => void (await connection.query(sql)),
    numbers: (start: number, end: number) => `(SELECT seq AS n FROM seq_${start}_to_${end})`,
    // In the order of the numbers.
    join: 'STRAIGHT_JOIN',
    hex: (number: string) => `CONCAT(LPAD(LOWER(HEX(${number})), 16, '0'), REPEAT('0', 48))`,
    close: () => connection.end(),
  };
}

function sqlite(path: string) {
  const connection = new DatabaseSync(path);
  connection.exec('PRAGMA busy_timeout = 60000; PRAGMA synchronous = OFF; PRAGMA cache_size = -500000');
  return {
    read: async (sql: string) => connection.prepare(sql).all() as Record<string, unknown>[],
    run: async (sql: string) => connection.exec(sql),
    numbers: (start: number, end: number) =>
      `(WITH RECURSIVE seq (n) AS (SELECT ${start} UNION ALL SELECT n + 1 FROM seq WHERE n < ${end}) SELECT n FROM seq)`,
    join: 'CROSS JOIN',
    hex: (number: string) => `(printf('%016x', ${number}) || '${'0'.repeat(48)}')`,
    close: async () => connection.close(),
  };
}
