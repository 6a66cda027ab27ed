import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { typed } from '../../runtime/command-name.ts';
import type { Database, Queryable, Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { Driver } from '../drivers/driver.ts';
import { findBlobs } from '../blobs/states.ts';

// A database and a storage that belong together hold the same random identity. A deletion decides by the rows of one
// database, so that bytes are lost when another database meets the storage.

/** The row of the database. */
type IdentityRow = {
  identity: string;
  /**
   * `new` until the storage has the identity. Then `paired`; or `adopted`, if an operator confirmed that the storage has
   * content although the database has none. `restoring` until a restore has written all rows.
   */
  state: 'new' | 'paired' | 'adopted' | 'restoring';
};

/** The identity of a storage into which a restore puts bytes, until the database has its rows. */
const restoringMark = 'restoring';

/** The identity of an earlier target while a further copy to it is not complete. */
const copyingMark = (identity: string) => `copying ${identity}`;

/** The database and the storage do not belong together. `sides` may be wrong; the message says what to do. */
export class WrongPair extends Error {
  readonly sides: readonly ('database' | 'storage')[];

  constructor(sides: WrongPair['sides'], message: string) {
    super(message);
    this.sides = sides;
  }
}

/** Milliseconds that another process may take to write the identity that it has inserted; then it counts as killed. */
const maxWrite = 2000;
const pause = 20;

/** Rows whose files an installation without an identity is checked for. */
const sample = 100;

/**
 * Checks at a start that the database and the storage belong together; rejects with `WrongPair`. Writes a new identity to
 * both if neither has one, at the first start or after an upgrade. Several processes may call it at the same time.
 */
export async function checkPair(database: Database, driver: Driver): Promise<void> {
  let row = await readRow(database);
  if (!row) {
    const stored = await driver.readIdentity();
    if (stored === restoringMark) throw unfinishedRestore();
    // Another process may have written both since the first query.
    row = await readRow(database);
    if (!row && stored !== undefined) throw foreignStorage();
  }
  if (row?.state === 'restoring') throw unfinishedRestore();
  let isOwn = false;
  if (!row) {
    await checkUnmarked(database, driver);
    isOwn = await insertRow(database);
    row = (await readRow(database))!;
  }
  if (!isOwn) row = await awaitWriter(database, row);
  if (row.state === 'new') await driver.writeIdentity(row.identity);
  const stored = await driver.readIdentity();
  if (stored === undefined) {
    throw new WrongPair(
      ['storage'],
      `the storage of this database is not here: it has no identity. Mount the storage or correct the setting; to move the content here, set the earlier storage again, and run "${typed('storage copy')} --to" with the new one; if it was moved here by other means, run "${typed('adopt')}"`,
    );
  }
  if (stored === copyingMark(row.identity)) {
    throw new WrongPair(
      ['storage'],
      `a copy to this storage is not finished. Set the earlier storage again, and run "${typed('storage copy')} --to" with this one`,
    );
  }
  if (stored !== row.identity) {
    throw new WrongPair(
      ['storage', 'database'],
      `the storage and the database belong to different installations. Correct the settings; to use the two together, run "${typed('adopt')}"`,
    );
  }
  if (row.state !== 'adopted') await refuseEmptyDatabase(database, driver);
  else if (!(await hasRows(database))) return;
  if (row.state !== 'paired') await setState(database, row.identity, 'paired');
}

/**
 * Rejects with `WrongPair` if a restore is not finished, before the migrations: it needs the tables of its backup. The storage need
 * not be prepared.
 */
export async function refuseUnfinished(database: Database, driver: Driver): Promise<void> {
  // A new database has no such table. Any other failure repeats in `checkPair`.
  const row = await readRow(database).catch(() => undefined);
  const stored = row ? undefined : await driver.readIdentity().catch(() => undefined);
  if (row?.state === 'restoring' || stored === restoringMark) throw unfinishedRestore();
}

/** For a database without an installation: rejects with `WrongPair` if the storage belongs to another database. */
export async function refuseForeign(driver: Driver): Promise<void> {
  const stored = await driver.readIdentity();
  if (stored === restoringMark) throw unfinishedRestore();
  if (stored !== undefined) throw foreignStorage();
}

/** What `adopt` found. */
export interface Adopted {
  /** Complete blobs in the database, and those of them without a file. */
  blobs: number;
  missing: number;
  /** Files in the storage, their bytes, and those of them without a row in the database. */
  files: number;
  bytes: number;
  unknown: number;
}

/**
 * Confirms that the database and the storage belong together, although `checkPair` rejects them. If their identities differ,
 * both get a new one, so that neither fits its former partner. Call it only while no server runs. `report` gets the counts
 * before anything is written.
 */
export async function adopt(database: Database, driver: Driver, report: (found: Adopted) => void): Promise<void> {
  const stored = await driver.readIdentity();
  let row = await readRow(database);
  if (row?.state === 'restoring' || stored === restoringMark) throw unfinishedRestore();
  report(await compare(database, driver));
  if (!row || row.identity !== stored) {
    row = newRow();
    const rows = [{ id: 1, ...row }];
    const update = 'identity = new.identity, state = new.state';
    await database.transaction((tx) => tx.upsert('storage_identity', ['id'], rows, update));
    await driver.writeIdentity(row.identity, true);
  }
  await setState(database, row.identity, (await hasRows(database)) ? 'paired' : 'adopted');
  await setActiveStorage(database, undefined);
}

/**
 * Marks the storage before a restore puts bytes into it; `earlier` is the identity of the database if a restore into it was
 * interrupted. Rejects with `WrongPair` if the storage has other content.
 */
export async function markStorage(driver: Driver, earlier: string | undefined): Promise<void> {
  const stored = await driver.readIdentity();
  if (stored === restoringMark || (stored !== undefined && stored === earlier)) return;
  if (stored !== undefined || (await hasFiles(driver)))
    throw new WrongPair(['storage'], 'the storage is not empty. Restore into an empty place');
  await driver.writeIdentity(restoringMark);
}

/** The random identity of a database that `checkPair` has accepted. A restore and `adopt` change it. */
export async function installationIdentity(from: Queryable): Promise<string> {
  return (await readRow(from))!.identity;
}

/** The storage that the servers of this database use, as they have noted it; undefined if none has. */
export async function activeStorage(from: Queryable): Promise<string | undefined> {
  const row = await from.get<{ storage: string | null }>('SELECT storage FROM storage_identity WHERE id = 1');
  return row?.storage ?? undefined;
}

/** Notes the storage that the servers of this database use from now on; undefined: the next server to start decides. */
export async function setActiveStorage(database: Database, storage: string | undefined): Promise<void> {
  const sql = 'UPDATE storage_identity SET storage = ? WHERE id = 1';
  await database.transaction((tx) => tx.run(sql, [storage ?? null]));
}

/** Whether an installation was made in the database, which has the tables for it. */
export async function hasIdentity(from: Queryable): Promise<boolean> {
  return (await readRow(from)) !== undefined;
}

/** The identity of a database into which a restore has begun to write rows, and has not finished. */
export async function restoringIdentity(from: Queryable): Promise<string | undefined> {
  const row = await readRow(from);
  return row?.state === 'restoring' ? row.identity : undefined;
}

/** Marks the database before a restore writes rows; the same transaction has found it empty. */
export async function markDatabase(tx: Transaction): Promise<void> {
  await tx.insertNew('storage_identity', [{ id: 1, ...newRow(), state: 'restoring' }]);
}

/** Gives a restored database and its storage a new identity, so that neither fits the installation of the backup. */
export async function pairRestored(database: Database, driver: Driver): Promise<void> {
  const { identity } = (await readRow(database))!;
  await driver.writeIdentity(identity, true);
  await setState(database, identity, 'paired');
}

/**
 * Checks before a copy that `target` is empty, or belongs to this database; rejects with `WrongPair`. A target that was complete
 * once, and is not the storage that servers use, gets a mark, so that no server starts on it before the copy is complete.
 */
export async function checkTarget(database: Database, target: Driver): Promise<void> {
  const stored = await target.readIdentity();
  if (stored === restoringMark) throw unfinishedRestore();
  const row = await readRow(database);
  if (stored === undefined || (row && stored === copyingMark(row.identity))) return;
  if (stored !== row?.identity)
    throw new WrongPair(
      ['storage'],
      'the target of the copy belongs to another installation. Copy to an empty place, or correct the setting',
    );
  const [active, fact] = [await activeStorage(database), await target.fact()];
  if (active !== undefined && fact && fact.place !== active) await target.writeIdentity(copyingMark(stored), true);
}

/** Gives a complete copy the identity of the database, so that servers can use it. */
export async function pairTarget(database: Database, target: Driver): Promise<void> {
  const { identity } = (await readRow(database))!;
  await target.writeIdentity(identity, true);
}

function foreignStorage(): WrongPair {
  return new WrongPair(
    ['database'],
    `the storage belongs to another database. Restore the database from a backup or correct the setting; to use the storage with this database, run "${typed('adopt')}"`,
  );
}

function unfinishedRestore(): WrongPair {
  return new WrongPair(
    ['database', 'storage'],
    `a restore into this place is not finished. Run "${typed('restore')}" again with these settings, or delete the database and the storage`,
  );
}

/** Compares all blobs of the database with all files of the storage. */
async function compare(database: Database, driver: Driver): Promise<Adopted> {
  const rows = await database.get<{ blobs: number }>("SELECT COUNT(*) AS blobs FROM blobs WHERE state = 'live'");
  const found: Adopted = { blobs: rows!.blobs, missing: rows!.blobs, files: 0, bytes: 0, unknown: 0 };
  for await (const page of driver.list()) {
    if (page.length === 0) continue;
    const known = await findBlobs(
      database,
      page.map(({ digest }) => digest),
    );
    found.missing -= known.filter(({ state }) => state === 'live').length;
    found.files += page.length;
    found.unknown += page.length - known.length;
    for (const { size } of page) found.bytes += size;
  }
  return found;
}

/** For a database and a storage without identity. */
async function checkUnmarked(database: Database, driver: Driver): Promise<void> {
  await refuseEmptyDatabase(database, driver);
  const rows = await database.select<{ digest: Digest }>(
    `SELECT digest FROM blobs WHERE state = 'live' ORDER BY digest LIMIT ${sample}`,
  );
  if (rows.length === 0) return;
  for (const { digest } of rows) if (await driver.stat(digest)) return;
  throw new WrongPair(
    ['storage'],
    `the storage has none of the content that the database names. Mount the storage or correct the setting; if the content is lost, run "${typed('adopt')}"`,
  );
}

async function refuseEmptyDatabase(database: Database, driver: Driver): Promise<void> {
  if ((await hasRows(database)) || !(await hasFiles(driver))) return;
  // A push writes its row before its bytes, so this query sees the row of a push that another instance has just begun.
  if (await hasRows(database)) return;
  throw new WrongPair(
    ['database'],
    `the database names no content, but the storage has some. Restore the database from a backup or correct the setting; to start with this database, run "${typed('adopt')}"`,
  );
}

async function hasRows(database: Database): Promise<boolean> {
  return (await database.get('SELECT digest FROM blobs LIMIT 1')) !== undefined;
}

async function hasFiles(driver: Driver): Promise<boolean> {
  for await (const page of driver.list()) if (page.length > 0) return true;
  return false;
}

function readRow(from: Queryable): Promise<IdentityRow | undefined> {
  return from.get<IdentityRow>('SELECT identity, state FROM storage_identity WHERE id = 1');
}

function newRow(): IdentityRow {
  return { identity: randomUUID(), state: 'new' };
}

/** Inserts a new identity, unless there is one; resolves to whether it did. */
async function insertRow(database: Database): Promise<boolean> {
  const rows = [{ id: 1, ...newRow() }];
  return (await database.transaction((tx) => tx.insertNew('storage_identity', rows))) > 0;
}

/**
 * If `first` is new, waits for the process that has inserted it and now writes the identity to its storage. So a second instance with
 * another data folder does not write the identity to its own. Resolves to a row that is still `new` if that process was
 * killed.
 */
async function awaitWriter(database: Database, first: IdentityRow): Promise<IdentityRow> {
  let row = first;
  for (const deadline = performance.now() + maxWrite; row.state === 'new' && performance.now() < deadline;) {
    await sleep(pause);
    row = (await readRow(database))!;
  }
  return row;
}

async function setState(database: Database, identity: string, state: IdentityRow['state']): Promise<void> {
  const sql = 'UPDATE storage_identity SET state = ? WHERE identity = ?';
  await database.transaction((tx) => tx.run(sql, [state, identity]));
}
