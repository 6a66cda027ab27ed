import type { ExecutionContext } from 'ava';
import type { Database, Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { BlobStore } from '../../src/storage/blob-store.ts';
import { FilesystemDriver } from '../../src/storage/filesystem.ts';
import { Paths } from '../../src/storage/paths.ts';
import { openUntilEnd, temporaryDatabase } from './databases.ts';
import { folderUntilEnd } from './folder.ts';

export interface Store {
  url: string;
  data: string;
  paths: Paths;
  driver: FilesystemDriver;
  database: Database;
  blobs: BlobStore;
}

/** An empty blob store until the test ends. */
export async function openStore(
  t: Pick<ExecutionContext, 'teardown'>,
  dialect: Dialect,
  now: () => number = Date.now,
): Promise<Store> {
  const data = await folderUntilEnd(t);
  const url = await temporaryDatabase(t, dialect);
  const database = await openUntilEnd(t, url);
  await migrate(database);
  const paths = new Paths(data);
  const driver = new FilesystemDriver(paths);
  const blobs = new BlobStore(database, driver, paths, now);
  await blobs.prepare();
  return { url, data, paths, driver, database, blobs };
}
