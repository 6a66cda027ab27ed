import type { Queryable } from './database.ts';

/** How the values of a column are written outside of a database. */
export type ColumnKind = 'number' | 'text' | 'bytes';

export interface Column {
  name: string;
  kind: ColumnKind;
}

/** A table as it is in the schema now. */
export interface Table {
  name: string;
  columns: readonly Column[];
  /** The columns of the primary key, in its order. */
  key: readonly string[];
}

interface ColumnRow {
  table_name: string;
  column_name: string;
  type: string;
  /** Position in the primary key, from 1; 0 for other columns. */
  position: number;
}

/** All columns of all tables. */
const columns = {
  sqlite: `SELECT t.name AS table_name, c.name AS column_name, c.type AS type, c.pk AS position
    FROM sqlite_schema t JOIN pragma_table_info(t.name) c
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid`,
  // The column data_type is a long text, for which MariaDB would write a temporary file.
  mysql: `SELECT table_name AS table_name, column_name AS column_name, 0 AS position,
      CASE WHEN numeric_precision IS NOT NULL THEN 'int' WHEN character_set_name IS NOT NULL THEN 'text'
        WHEN character_octet_length IS NOT NULL THEN 'blob' ELSE 'other' END AS type
    FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position`,
};

const mysqlKeys = `SELECT table_name AS table_name, column_name AS column_name, ordinal_position AS position
  FROM information_schema.key_column_usage WHERE table_schema = DATABASE() AND constraint_name = 'PRIMARY'`;

/** All tables of the schema, by name. Throws if a column has a type that is not known here, or a table has no primary key. */
export async function readTables(from: Queryable): Promise<Table[]> {
  const keys = new Map<string, number>();
  if (from.dialect === 'mysql')
    for (const { table_name, column_name, position } of await from.select<ColumnRow>(mysqlKeys))
      keys.set(`${table_name}.${column_name}`, position);
  const found = (await from.select<ColumnRow>(columns[from.dialect])).map((row) => ({
    ...row,
    position: keys.get(`${row.table_name}.${row.column_name}`) ?? row.position,
  }));
  // Databases sort names in different ways.
  const sorted = [...Map.groupBy(found, (row) => row.table_name)].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([name, rows]) => {
    const inKey = rows.filter(({ position }) => position > 0).toSorted((a, b) => a.position - b.position);
    if (inKey.length === 0) throw new Error(`the table ${name} has no primary key`);
    return {
      name,
      columns: rows.map(({ column_name, type }) => ({ name: column_name, kind: kindOf(name, type) })),
      key: inKey.map(({ column_name }) => column_name),
    };
  });
}

/** The names of all tables, without order. */
export async function tableNames(from: Queryable): Promise<string[]> {
  const names = {
    sqlite: "SELECT name AS name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    mysql: `SELECT table_name AS name FROM information_schema.tables
      WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'`,
  };
  return (await from.select<{ name: string }>(names[from.dialect])).map(({ name }) => name);
}

/** The names of the migrations that this database has, without order; none in a database without tables. */
export async function appliedMigrations(from: Queryable): Promise<string[]> {
  return (await from.select<{ name: string }>('SELECT name FROM migrations')).map(({ name }) => name);
}

function kindOf(table: string, type: string): ColumnKind {
  if (/^(?:big|small|tiny|medium)?int(?:eger)?\b|^(?:double|float|real|decimal)\b/i.test(type)) return 'number';
  if (/char\b|text\b/i.test(type)) return 'text';
  if (/blob\b|binary\b/i.test(type)) return 'bytes';
  throw new Error(`the table ${table} has a column of type ${type}, which cannot be backed up`);
}

/**
 * A condition on the rows after the one with these values of the key. MySQL uses an index for `a > ? OR (a = ? AND b > ?)`,
 * SQLite for `(a, b) > (?, ?)`.
 */
export function afterKey(
  { dialect }: Queryable,
  key: readonly string[],
  values: readonly (string | number)[],
): { sql: string; values: (string | number)[] } {
  if (dialect === 'sqlite')
    return { sql: `(${key.join(', ')}) > (${key.map(() => '?').join(', ')})`, values: [...values] };
  const bound: (string | number)[] = [];
  const cases = key.map((column, index) => {
    const before = key.slice(0, index).map((each) => `${each} = ?`);
    bound.push(...values.slice(0, index + 1));
    return `(${[...before, `${column} > ?`].join(' AND ')})`;
  });
  return { sql: `(${cases.join(' OR ')})`, values: bound };
}

/** A place in a list in the order of the IDs: after the row with the ID `after`, the latest first, or the oldest. */
export interface IdPlace {
  after?: number | undefined;
  isOldest?: boolean;
}

/** The condition, with its value, and the order of the rows that follow a place. */
export function afterId({ after, isOldest = false }: IdPlace): { sql: string; value: number; order: string } {
  if (isOldest) return { sql: 'id > ?', value: after ?? 0, order: 'id' };
  return { sql: 'id < ?', value: after ?? Number.MAX_SAFE_INTEGER, order: 'id DESC' };
}
