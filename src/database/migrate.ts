import { Umzug } from 'umzug';
import type { Database, Dialect } from './database.ts';
import { migrations } from './migrations/index.ts';

/** One statement: MySQL commits each DDL by itself, so a migration that is cut off must be a single step. */
export interface Migration {
  name: string;
  /**
   * Written for both: `{serial}` is the generated primary key, `{text}` a long text; `{clustered}` after a table keeps
   * its rows in the order of their primary key, as MySQL always does.
   */
  sql: string;
}

/** Brings the schema up to date; safe when several processes start at once, and quick when there is nothing to do. */
export async function migrate(database: Database): Promise<void> {
  if ((await applied(database)).length === migrations.length) return;
  await database.exclusively(async () => {
    await database.transaction((tx) => tx.run('CREATE TABLE IF NOT EXISTS migrations (name VARCHAR(100) PRIMARY KEY)'));
    const umzug = new Umzug({
      migrations: migrations.map((each) => ({ name: each.name, up: () => apply(database, each) })),
      storage: {
        executed: () => applied(database),
        logMigration: () => Promise.resolve(),
        unlogMigration: () => Promise.reject(new Error('migrations only go forward')),
      },
      logger: undefined,
    });
    await umzug.up();
  });
}

async function applied(database: Database): Promise<string[]> {
  try {
    return (await database.select<{ name: string }>('SELECT name FROM migrations ORDER BY name')).map(
      (row) => row.name,
    );
  } catch {
    return [];
  }
}

/** Runs and records one migration. On SQLite both or neither; MySQL may have run it when an earlier start was cut off. */
async function apply(database: Database, { name, sql }: Migration): Promise<void> {
  try {
    await database.transaction(async (tx) => {
      await tx.run(forDialect(sql, tx.dialect));
      await tx.insertNew('migrations', [{ name }]);
    });
  } catch (error) {
    if (!isThere(error)) throw error;
    await database.transaction((tx) => tx.insertNew('migrations', [{ name }]));
  }
}

/** MySQL's 1050, 1060 and 1061: the table, the column or the index exists. */
function isThere(error: unknown): boolean {
  const { parent } = error as { parent?: { errno?: number } };
  return [1050, 1060, 1061].includes(parent?.errno ?? 0);
}

function forDialect(sql: string, dialect: Dialect): string {
  const text = sql
    .replaceAll(
      '{serial}',
      dialect === 'sqlite' ? 'INTEGER PRIMARY KEY AUTOINCREMENT' : 'BIGINT AUTO_INCREMENT PRIMARY KEY',
    )
    .replaceAll('{text}', dialect === 'sqlite' ? 'TEXT' : 'MEDIUMTEXT')
    .replaceAll('{clustered}', dialect === 'sqlite' ? ' WITHOUT ROWID' : '');
  const isTable = /^\s*CREATE TABLE/.test(text);
  return dialect === 'mysql' && isTable ? `${text} DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin` : text;
}
