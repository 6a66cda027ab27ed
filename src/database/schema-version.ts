import type { Database, Queryable, Transaction } from './database.ts';
import type { Migration } from './migrate.ts';

/** The one row of `schema_version`: who can use this database. */
interface SchemaVersion {
  /** The last migration of the newest program that has migrated the database. */
  newest_migration: string;
  /** The oldest program version that can use the database. */
  oldest_program: string;
}

/** The oldest version that can use a database whose migrations name none. */
const firstVersion = '0.1.0';

export async function createSchemaVersion(tx: Transaction): Promise<void> {
  await tx.run(
    `CREATE TABLE IF NOT EXISTS schema_version (
      id INTEGER PRIMARY KEY,
      newest_migration VARCHAR(100) NOT NULL,
      oldest_program VARCHAR(100) NOT NULL
    )`,
  );
}

/** Undefined while no program has written it. Rejects if the table does not exist. */
export async function readSchemaVersion(from: Queryable): Promise<SchemaVersion | undefined> {
  return from.get<SchemaVersion>('SELECT newest_migration, oldest_program FROM schema_version WHERE id = 1');
}

/** Records that a program with these migrations has migrated the database, or begins to. */
export async function writeSchemaVersion(database: Database, migrations: readonly Migration[]): Promise<void> {
  const row = { id: 1, newest_migration: migrations.at(-1)!.name, oldest_program: oldestProgram(migrations) };
  const update = 'newest_migration = new.newest_migration, oldest_program = new.oldest_program';
  await database.transaction((tx) => tx.upsert('schema_version', ['id'], [row], update));
}

/** Throws if the program `version` is too old for the database. */
export function refuseOldProgram(schema: SchemaVersion | undefined, version: string): void {
  if (!schema || !precedes(version, schema.oldest_program)) return;
  throw new Error(
    `it needs Entrepot ${schema.oldest_program} or later, and this is Entrepot ${version}. Start the newer version, or restore a backup from before the newer version first started`,
  );
}

function oldestProgram(migrations: readonly Migration[]): string {
  let oldest = firstVersion;
  for (const each of migrations)
    if (each.oldestProgram && precedes(oldest, each.oldestProgram)) oldest = each.oldestProgram;
  return oldest;
}

/** Whether version `a` is older than `b`. A prerelease is older than its release; its labels are not compared (SemVer 2.0.0, 11). */
function precedes(a: string, b: string): boolean {
  const [left, right] = [partsOf(a), partsOf(b)];
  for (const [index, part] of left.entries()) if (part !== right[index]) return part < right[index]!;
  return false;
}

function partsOf(version: string): number[] {
  const [, major, minor, patch, prerelease] = /^(\d+)\.(\d+)\.(\d+)(-)?/.exec(version) ?? [];
  return [Number(major), Number(minor), Number(patch), prerelease ? 0 : 1];
}
