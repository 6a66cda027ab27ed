import type { Database, Dialect, Transaction } from './database.ts';
import { migrations as known } from './migrations/index.ts';
import { version as ownVersion } from '../runtime/package.ts';
import { tableNames } from './tables.ts';
import { createSchemaVersion, readSchemaVersion, refuseOldProgram, writeSchemaVersion } from './schema-version.ts';

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
  /** The oldest program version that can use a database after this migration; by default as before the migration. */
  oldestProgram?: string;
}

/** A program that opens a database. Tests replace it. */
export interface Program {
  version: string;
  migrations: readonly Migration[];
}

/**
 * Runs all new migrations. Safe when several processes start at the same time, and fast when there are none. Leaves the
 * database of a newer program as it is; rejects, with both versions, if this program is too old for it.
 */
export async function migrate(
  database: Database,
  { version, migrations }: Program = { version: ownVersion, migrations: known },
): Promise<void> {
  // A new database has neither table. Any other failure repeats under the lock.
  const schema = await readSchemaVersion(database).catch(() => undefined);
  refuseOldProgram(schema, version);
  const done = new Set(await applied(database).catch(() => []));
  if (schema && migrations.every(({ name }) => done.has(name))) return;
  await database.exclusively(async () => {
    if ((await ownerOfTables(database, migrations)) === 'other')
      throw new Error(
        'it has tables that Entrepot did not make. Name an empty database, or the one of the installation',
      );
    await database.transaction(async (tx) => {
      await tx.run('CREATE TABLE IF NOT EXISTS migrations (name VARCHAR(100) PRIMARY KEY)');
      await createSchemaVersion(tx);
    });
    // A newer program may have migrated the database before this process got the lock.
    const current = await readSchemaVersion(database);
    refuseOldProgram(current, version);
    // Before the migrations, so that no old program starts on a database that is only partly migrated.
    if (!current || migrations.some(({ name }) => name === current.newest_migration)) {
      await writeSchemaVersion(database, migrations);
    }
    if (database.dialect === 'sqlite' && (await applied(database)).length === 0) {
      // All tables of a new database in one commit, which takes a fifth of the time. It has no rows that would make this long.
      await database.transaction(async (tx) => {
        for (const each of migrations) await apply(tx, each);
      });
      return;
    }
    // It has 250 modules, which are loaded only when there is something to migrate.
    const { Umzug } = await import('umzug');
    const umzug = new Umzug({
      migrations: migrations.map((each) => ({ name: each.name, up: () => applyAlone(database, each) })),
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

/** Whose tables a database has. Also `none` if a first start was interrupted before it recorded a migration. */
export async function ownerOfTables(
  database: Database,
  migrations: readonly Migration[] = known,
): Promise<'own' | 'other' | 'none'> {
  const tables = await tableNames(database);
  if (!tables.includes('migrations')) return tables.length === 0 ? 'none' : 'other';
  // Other programs have a table of this name, too, with other columns.
  const done = await database.select<{ name?: unknown }>('SELECT * FROM migrations');
  if (done.length === 0) {
    // MySQL may have made the table of the first migration, and not recorded it.
    const [, first] = /^CREATE TABLE (\w+)/.exec(migrations[0]?.sql ?? '') ?? [];
    return tables.every((name) => ['migrations', 'schema_version', first].includes(name)) ? 'none' : 'other';
  }
  return done.some(({ name }) => name === migrations[0]?.name) ? 'own' : 'other';
}

/** The names of the recorded migrations. Rejects if the table does not exist. */
async function applied(database: Database): Promise<string[]> {
  const rows = await database.select<{ name: string }>('SELECT name FROM migrations ORDER BY name');
  return rows.map(({ name }) => name);
}

/** Runs and records one migration. SQLite does both or neither. On MySQL, an interrupted start may have only run it. */
async function applyAlone(database: Database, migration: Migration): Promise<void> {
  try {
    await database.transaction((tx) => apply(tx, migration));
  } catch (error) {
    if (!existsAlready(error)) throw error;
    await database.transaction((tx) => tx.insertNew('migrations', [{ name: migration.name }]));
  }
}

async function apply(tx: Transaction, { name, sql, dialect }: Migration): Promise<void> {
  if (dialect === undefined || dialect === tx.dialect) await tx.run(forDialect(sql, tx.dialect));
  await tx.insertNew('migrations', [{ name }]);
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
