import { typed } from '../runtime/command-name.ts';
import type { Database, Queryable, Row, Transaction, Value } from '../database/database.ts';
import { migrate } from '../database/migrate.ts';
import { migrations } from '../database/migrations/index.ts';
import { appliedMigrations, readTables, type Table } from '../database/tables.ts';
import { algorithmOf, type Digest } from '../runtime/digest.ts';
import { version } from '../runtime/package.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import { markDatabase, markStorage, pairRestored, restoringIdentity } from '../storage/upkeep/identity.ts';
import type { Paths } from '../storage/files/paths.ts';
import type { References } from '../storage/blobs/references.ts';
import { StagedFile } from '../storage/files/staged-file.ts';
import { readBackup, type Problem } from './check.ts';
import { backupInvalid, type BackupManifest, type Member } from './format.ts';
import { writePieces } from './pieces.ts';
import { leftOut, rowsOf, type NamedBlob } from './rows.ts';

interface RestoreParts {
  database: Database;
  driver: Driver;
  paths: Paths;
}

interface RestoreOptions {
  /** Whether blobs that are missing or damaged in the backup are left out; then their rows are restored. */
  withoutDamaged?: boolean | undefined;
  /** Ends the restore; a second one finishes. */
  signal?: AbortSignal | undefined;
  /** Called when all blobs are stored, before the first row is written, and after each batch of rows. */
  onStep?: (() => Promise<void>) | undefined;
}

export interface Restored {
  manifest: BackupManifest;
  /** Blobs that were missing or damaged when the backup was made. Their rows are restored. */
  missing: Problem[];
  /** With `withoutDamaged`: blobs that are missing or damaged in the backup. */
  damaged: Problem[];
}

/** Holders of a blob that a report names, of each kind. */
const maxHolders = 5;

/** Values of one statement, and bytes of one transaction. */
const maxValues = 4000;
const maxBytes = 2 ** 20;

/**
 * Restores a backup into an empty database and an empty storage: first the bytes, then the rows. While it runs, and if it
 * is interrupted, no server starts on them; a second restore finishes. Rejects, without rows, if the backup is not whole.
 */
export async function restore(
  { database, driver, paths }: RestoreParts,
  members: AsyncIterable<Member>,
  { withoutDamaged = false, signal, onStep }: RestoreOptions = {},
): Promise<Restored> {
  await markStorage(driver, await refuseContent(database));
  await using stack = new AsyncDisposableStack();
  const files = new Map<string, StagedFile>();
  stack.defer(async () => {
    for (const file of files.values()) await file.discard();
  });
  const take = (blob: NamedBlob, bytes: AsyncIterable<Uint8Array>) => storeBlob(driver, paths, blob, bytes);
  const { manifest, problems, known } = await readBackup(members, paths, files, take, { keepRows: true, signal });
  if (problems.length > 0 && !withoutDamaged) {
    const [first] = problems;
    throw backupInvalid(
      `the backup is damaged: of its blobs, ${problems.length} are missing or wrong, the first is ${first!.digest}. Nothing was restored; "${typed('verify')}" with this backup lists all. To restore the rest, add --without-damaged`,
    );
  }
  const step = async () => {
    signal?.throwIfAborted();
    await onStep?.();
  };
  await step();
  const tables = await prepareSchema(database, manifest);
  await database.exclusively(async () => {
    await claimDatabase(database, tables);
    for (const table of tables) await loadTable(database, table, files.get(table.name)!, step);
    for (const { name, rows } of manifest.tables) await checkCount(database, name, rows);
    await pairRestored(database, driver);
  });
  return { manifest, missing: known, damaged: problems };
}

/**
 * Packages and images of a restored place that need a blob. None for a backup of an older version, whose tables may lack
 * columns before the first start.
 */
export async function holdersOf(database: Database, references: References, digest: Digest): Promise<string[]> {
  if ((await appliedMigrations(database)).length !== migrations.length) return [];
  return database.transaction((tx) => references.holders(tx, digest, maxHolders));
}

/** Stores the bytes only if they match the digest. */
async function storeBlob(
  driver: Driver,
  paths: Paths,
  { digest }: NamedBlob,
  bytes: AsyncIterable<Uint8Array>,
): Promise<boolean> {
  const algorithm = algorithmOf(digest);
  const staged = await StagedFile.create(paths, [algorithm]);
  try {
    await writePieces(staged, bytes);
    if (staged.runningDigest(algorithm) !== digest) return false;
    await driver.put(digest, staged);
    return true;
  } finally {
    await staged.discard();
  }
}

/**
 * Throws unless no table has a row, except those of the schema itself. After an interrupted restore, which may continue,
 * resolves to the identity of the database.
 */
async function refuseContent(from: Queryable): Promise<string | undefined> {
  const tables = await readTables(from);
  const hasIdentity = tables.some(({ name }) => name === 'storage_identity');
  const earlier = hasIdentity ? await restoringIdentity(from) : undefined;
  if (earlier !== undefined) return earlier;
  for (const { name } of tables) {
    if (['migrations', 'schema_version', 'probes'].includes(name)) continue;
    if ((await from.get(`SELECT 1 AS one FROM ${name} LIMIT 1`)) !== undefined)
      throw backupInvalid(`the database is not empty: the table ${name} has rows. Restore into an empty place`);
  }
  return undefined;
}

/**
 * Gives the database the schema of the backup, because newer migrations would not change the restored rows. The next start
 * runs them. Resolves to the tables, which are those of the backup.
 */
async function prepareSchema(database: Database, manifest: BackupManifest): Promise<Table[]> {
  const wanted = new Set(manifest.migrations);
  const known = migrations.filter(({ name }) => wanted.has(name));
  if (known.length !== wanted.size)
    throw backupInvalid(
      `the backup was made by Entrepot ${manifest.program}, and this is ${version}. Restore with a newer version`,
    );
  const hasSchema = (await readTables(database)).some(({ name }) => name === 'migrations');
  if (hasSchema && (await appliedMigrations(database)).some((name) => !wanted.has(name)))
    throw backupInvalid(
      'the database has the tables of a newer version than the backup. Restore into a database without tables',
    );
  await migrate(database, { version, migrations: known });
  const tables = (await readTables(database)).filter(({ name }) => !(name in leftOut));
  const dumped = new Set(manifest.tables.map(({ name }) => name));
  const other = tables.find(({ name }) => !dumped.has(name));
  if (other || tables.length !== dumped.size)
    throw backupInvalid(`the backup has other tables than this database${other ? `, which has ${other.name}` : ''}`);
  return tables;
}

/** Marks the database, so that no server starts on it, and removes the rows of an interrupted restore. */
async function claimDatabase(database: Database, tables: readonly Table[]): Promise<void> {
  const isSecond = await database.transaction(async (tx) => {
    if ((await refuseContent(tx)) !== undefined) return true;
    await markDatabase(tx);
    return false;
  });
  if (!isSecond) return;
  for (const { name } of tables)
    await database.transaction((tx) =>
      tx.run(tx.dialect === 'mysql' ? `TRUNCATE TABLE ${name}` : `DELETE FROM ${name}`),
    );
}

/** Writes the rows of a table, in transactions of bounded size. Text of digits becomes an exact integer in both databases. */
async function loadTable(
  database: Database,
  { name, columns }: Table,
  file: StagedFile,
  onStep: () => Promise<void>,
): Promise<void> {
  const kinds = new Map(columns.map((column) => [column.name, column.kind]));
  let batch: Row[] = [];
  let bytes = 0;
  const flush = async () => {
    const rows = batch;
    batch = [];
    bytes = 0;
    if (rows.length === 0) return;
    // The last transaction of the restore makes all earlier ones durable.
    await database.transaction((tx) => insertAll(tx, name, rows), { fleeting: true });
    await onStep();
  };
  for await (const { header, values } of rowsOf(await file.open())) {
    if (header.columns.length !== columns.length || header.columns.some((each) => kinds.get(each.name) !== each.kind))
      throw backupInvalid(`the table ${name} has other columns in the backup`);
    batch.push(Object.fromEntries(header.columns.map((column, index) => [column.name, values[index] as Value])));
    for (const value of values) bytes += typeof value === 'number' || value === null ? 8 : value.length;
    if (batch.length >= Math.floor(maxValues / columns.length) || bytes >= maxBytes) await flush();
  }
  await flush();
}

async function insertAll(tx: Transaction, table: string, rows: readonly Row[]): Promise<void> {
  if ((await tx.insertNew(table, rows)) !== rows.length)
    throw backupInvalid(`the table ${table} has rows in the backup that are the same in this database`);
}

async function checkCount(database: Database, table: string, rows: number): Promise<void> {
  const { count } = (await database.get<{ count: number }>(`SELECT COUNT(*) AS count FROM ${table}`))!;
  if (count !== rows) throw backupInvalid(`the table ${table} has ${count} rows, and ${rows} in the backup`);
}
