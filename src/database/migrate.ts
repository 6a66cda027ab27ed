import { Umzug } from 'umzug';
import type { Database, Dialect } from './database.ts';
import { migrations } from './migrations/index.ts';

/** One statement. MySQL commits each DDL statement separately, so an interrupted migration must be a single step. */
export interface Migration {
  name: string;
  /**
   * For both databases: `{serial}` is the generated primary key, `{text}` a long text. `{clustered}` after a table
   * stores its rows in the order of the primary key, as MySQL always does. `{ascii}` after a type: one byte a character.
   */
  sql: string;
  /** The only database that it changes; the other one only records it. */
  dialect?: Dialect;
}

/** Runs all new migrations. Safe when several processes start at the same time, and fast when there are none. */
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

/** Runs and records one migration. SQLite does both or neither. On MySQL, an interrupted start may have only run it. */
async function apply(database: Database, { name, sql, dialect }: Migration): Promise<void> {
  try {
    await database.transaction(async (tx) => {
      if (dialect === undefined || dialect === tx.dialect) await tx.run(forDialect(sql, tx.dialect));
      await tx.insertNew('migrations', [{ name }]);
    });
  } catch (error) {
    if (!existsAlready(error)) throw error;
    await database.transaction((tx) => tx.insertNew('migrations', [{ name }]));
  }
}

/** MySQL errors 1050, 1060 and 1061: the table, column or index already exists. */
function existsAlready(error: unknown): boolean {
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
    .replaceAll('{ascii}', dialect === 'sqlite' ? '' : ' CHARACTER SET ascii COLLATE ascii_bin')
    .replaceAll('{clustered}', dialect === 'sqlite' ? ' WITHOUT ROWID' : '');
  const isTable = /^\s*CREATE TABLE/.test(text);
  return dialect === 'mysql' && isTable ? `${text} DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin` : text;
}
