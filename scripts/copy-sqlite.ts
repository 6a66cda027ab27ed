import { constants, existsSync } from 'node:fs';
import { copyFile, link, mkdir, open, readdir } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { loadConfig } from '../src/config/load.ts';
import type { Config } from '../src/config/schema.ts';
import type { Digest } from '../src/runtime/digest.ts';
import { FilesystemDriver } from '../src/storage/drivers/filesystem.ts';
import { Paths } from '../src/storage/files/paths.ts';

// Copies a SQLite installation while its server runs: node scripts/copy-sqlite.ts FOLDER
//
// The database is copied first, at one instant, then every file that this copy names. So the copy has all content that was
// acknowledged before the copy began. Blob files never change, so the copy shares them as hard links where it can.

/** Copies of the database. Another one is made when content was deleted after the last one, before its file was copied. */
const mostAttempts = 5;
const page = 500;

interface Blob {
  digest: Digest;
  size: number;
}

interface Copied {
  blobs: number;
  bytes: number;
}

/**
 * Copies the installation with these settings to the empty folder `target`. Rejects if the copy is not complete.
 * `onDatabase` is called after each copy of the database, before its files are copied.
 */
export async function copyInstallation(
  { data, database }: Pick<Config, 'data' | 'database'>,
  target: string,
  onDatabase: () => Promise<void> = () => Promise.resolve(),
): Promise<Copied> {
  const url = database.url ?? `sqlite:${join(data, 'entrepot.db')}`;
  if (!url.startsWith('sqlite:'))
    throw new Error('ENTREPOT_DATABASE_URL: this script copies SQLite only; dump MySQL first');
  const source = resolve(url.slice('sqlite:'.length));
  if (!existsSync(source)) throw new Error(`${source}: there is no database; set ENTREPOT_DATA as for the server`);
  await mkdir(target, { recursive: true, mode: 0o700 });
  if ((await readdir(target)).length > 0) throw new Error(`${target}: the folder must be empty`);
  const [from, to] = [new Paths(data), new Paths(target)];
  await mkdir(to.blobs);
  const copy = join(target, 'entrepot.db');
  for (let attempt = 1; ; attempt += 1) {
    await copyDatabase(source, copy);
    await onDatabase();
    const { missing, ...copied } = await copyBlobs(copy, new FilesystemDriver(from), new FilesystemDriver(to));
    if (missing.length > 0 && attempt < mostAttempts) continue;
    if (existsSync(from.identity)) await copyOne(from.identity, to.identity);
    for (const each of await readdir(target, { recursive: true, withFileTypes: true })) {
      if (each.isDirectory()) await sync(join(each.parentPath, each.name));
    }
    await sync(target);
    if (missing.length === 0) return copied;
    const names = missing.slice(0, 10).join(', ');
    throw new Error(`the copy is complete, but ${missing.length} files are missing in ${data} itself: ${names}`);
  }
}

/** In one step, because each write of the server would start a copy in several steps again. */
async function copyDatabase(source: string, copy: string): Promise<void> {
  const database = new DatabaseSync(source, { readOnly: true });
  try {
    await backup(database, copy, { rate: 2 ** 31 - 1 });
  } finally {
    database.close();
  }
  const result = new DatabaseSync(copy);
  try {
    const { quick_check: state } = result.prepare('PRAGMA quick_check').get() as { quick_check: string };
    if (state !== 'ok') throw new Error(`${source}: the database is damaged: ${state}`);
  } finally {
    result.close();
  }
  await sync(copy);
}

/** Copies the files of all complete blobs that the copied database names. */
async function copyBlobs(
  database: string,
  from: FilesystemDriver,
  to: FilesystemDriver,
): Promise<Copied & { missing: Digest[] }> {
  const copied = { blobs: 0, bytes: 0, missing: [] as Digest[] };
  const rows = new DatabaseSync(database, { readOnly: true });
  try {
    const sql = `SELECT digest, size FROM blobs WHERE state = 'live' AND digest > ? ORDER BY digest LIMIT ${page}`;
    const select = rows.prepare(sql);
    for (let after = ''; ;) {
      const blobs = select.all(after) as unknown as Blob[];
      for (const { digest, size } of blobs) {
        const path = to.pathOf(digest);
        // A damaged file is copied as it is: only "entrepot scrub" can say which files are damaged.
        if (!existsSync(path)) await copyOne(from.pathOf(digest), path).catch(ignoreMissing);
        if (!existsSync(path)) copied.missing.push(digest);
        copied.blobs += 1;
        copied.bytes += size;
        after = digest;
      }
      if (blobs.length < page) return copied;
    }
  } finally {
    rows.close();
  }
}

/** As a hard link; on another disk as a copy. */
async function copyOne(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  try {
    await link(from, to);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code === 'ENOENT') throw error;
    await copyFile(from, to, constants.COPYFILE_FICLONE);
    await sync(to);
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

async function sync(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function main([folder, ...rest]: readonly string[]): Promise<void> {
  try {
    if (folder === undefined || rest.length > 0) throw new Error('usage: node scripts/copy-sqlite.ts FOLDER');
    const { blobs, bytes } = await copyInstallation(loadConfig(process.env), resolve(folder));
    console.log(`${folder}: the database, ${blobs} blobs, ${bytes} bytes`);
  } catch (error) {
    console.error(`copy-sqlite: ${(error as Error).message}`);
    process.exitCode = 1;
  }
}

if (import.meta.main) await main(process.argv.slice(2));
