import type { ExecutionContext } from 'ava';
import type { Database, Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import type { Digest } from '../../src/runtime/digest.ts';
import { mirrorReferences } from '../../src/mirror/store/references.ts';
import { packageReferences, packageRowBytes } from '../../src/nuget/hosted/references.ts';
import { imageReferences, imageRowBytes } from '../../src/oci/hosted/references.ts';
import { BlobStore } from '../../src/storage/blobs/blob-store.ts';
import type { Driver } from '../../src/storage/drivers/driver.ts';
import { FilesystemDriver } from '../../src/storage/drivers/filesystem.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import { References } from '../../src/storage/blobs/references.ts';
import { deletionTimes, type DeletionTimes } from '../../src/storage/blobs/states.ts';
import type { Measures } from '../../src/usage/stored.ts';
import { openUntilEnd, temporaryDatabase } from './databases.ts';
import { folderUntilEnd } from './folder.ts';

export interface Store<D extends Driver = FilesystemDriver> {
  url: string;
  data: string;
  paths: Paths;
  driver: D;
  database: Database;
  blobs: BlobStore;
}

/** For tests that kill collectors: another collector soon takes over the work. */
export const quickTimes: DeletionTimes = { ...deletionTimes, beginWithin: 200, takeOverAfter: 2000 };

export interface StoreOptions {
  now?: (() => number) | undefined;
  times?: DeletionTimes | undefined;
}

/** What refers to blobs in a whole server. */
export const references = new References([packageReferences, imageReferences, mirrorReferences([], new Map())]);
export const measures: Measures = { references, rows: [packageRowBytes, imageRowBytes] };

/** An empty blob store until the test ends. */
export function openStore(
  t: Pick<ExecutionContext, 'teardown'>,
  dialect: Dialect,
  now: () => number = Date.now,
  times?: DeletionTimes,
): Promise<Store> {
  return openStoreOn(t, dialect, (paths) => new FilesystemDriver(paths), { now, times });
}

/** An empty blob store on any driver. */
export async function openStoreOn<D extends Driver>(
  t: Pick<ExecutionContext, 'teardown'>,
  dialect: Dialect,
  open: (paths: Paths) => D,
  options: StoreOptions = {},
): Promise<Store<D>> {
  const url = await temporaryDatabase(t, dialect);
  const data = await folderUntilEnd(t);
  const paths = new Paths(data);
  const driver = open(paths);
  t.teardown(() => driver.close());
  return openInstance(t, { url, data, paths, driver }, options);
}

/** Another instance on the same database and storage. */
export async function openInstance<D extends Driver>(
  t: Pick<ExecutionContext, 'teardown'>,
  shared: Pick<Store<D>, 'url' | 'data' | 'paths' | 'driver'>,
  { now = Date.now, times }: StoreOptions = {},
): Promise<Store<D>> {
  const { url, data, paths, driver } = shared;
  const database = await openUntilEnd(t, url);
  await migrate(database);
  const blobs = new BlobStore(database, driver, paths, now, { times });
  await blobs.prepare();
  return { url, data, paths, driver, database, blobs };
}

/** The size of a blob according to its row; undefined if it is not stored. */
export async function storedSize(
  { database }: Pick<Store<Driver>, 'database'>,
  digest: Digest,
): Promise<number | undefined> {
  const sql = "SELECT size FROM blobs WHERE digest = ? AND state = 'live'";
  return (await database.get<{ size: number }>(sql, [digest]))?.size;
}
