import type { Dialect, Transaction } from './database.ts';

const tables = {
  sqlite: "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
  mysql:
    "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'",
};

/** Reads a page of every table with `read`. Rejects when a table cannot be read, for example because it is damaged. */
export async function readEveryTable(dialect: Dialect, read: (sql: string) => Promise<object[]>): Promise<void> {
  const names = (await read(tables[dialect])) as { name: string }[];
  // Without this, SQLite may read a page of an index and none of the table.
  const rows = dialect === 'sqlite' ? 'NOT INDEXED' : '';
  const firsts = names.map(({ name }) => `SELECT * FROM (SELECT 1 FROM ${name} ${rows} LIMIT 1) AS first_${name}`);
  await read(firsts.join(' UNION ALL '));
}

/** Writes the row of this table, whose only purpose is that write. */
export function writeProbe(tx: Transaction): Promise<void> {
  return tx.upsert('probes', ['id'], [{ id: 1, written_at: Date.now() }], 'written_at = new.written_at');
}
