import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { Cache } from '../cache/cache.ts';
import { namespaceOf } from '../cache/namespace.ts';
import { runForSystem } from '../runtime/caller.ts';
import { Closing, type ClosingTimes } from '../runtime/closing.ts';
import { ifMissing } from '../runtime/errors.ts';
import { checkFiles, checkTables, refuseOtherOwner, type CommandRules } from './command-place.ts';
import { ConfigError } from '../config/load.ts';
import { environmentName, type Config } from '../config/schema.ts';
import { openDatabase, type Database, type WriteSignal } from '../database/database.ts';
import { migrate } from '../database/migrate.ts';
import type { TimeLimits } from '../database/time-limits.ts';
import { recordOutside } from '../events/record.ts';
import { Instances } from '../instances/instances.ts';
import { BlobStore } from '../storage/blobs/blob-store.ts';
import { localDisk, type Disk } from '../storage/files/disk.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import { adopt, refuseUnfinished, WrongPair, type Adopted } from '../storage/upkeep/identity.ts';
import { openDriver, openDataFolder } from '../storage/drivers/open.ts';
import { Paths } from '../storage/files/paths.ts';
import { createDatabaseFiles, privateFolder, tightenDatabaseFiles } from '../storage/files/permissions.ts';
import { StorageSettingError } from '../storage/drivers/s3/failures.ts';

// Opens the database and the storage of the settings, for the core and for commands that need nothing above them.

/** Dependencies from outside the program. Tests replace them. */
export interface DataSurroundings {
  log: Logger;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** Stores committed bytes; by default in the data folder. */
  driver?: Driver | undefined;
  databaseLimits?: TimeLimits | undefined;
  closingTimes?: ClosingTimes | undefined;
  /** Where files are staged; by default the local disk. */
  disk?: Disk | undefined;
  /** The time limit of a command of Redis, milliseconds. */
  redisTimeout?: number | undefined;
  /** Only of a command. */
  command?: CommandRules | undefined;
}

const notWritable = 'the data folder is not writable';

/** The parts that have the data, without anything above them. */
interface DataParts {
  closing: Closing;
  paths: Paths;
  cache: Cache;
  database: Database;
  driver: Driver;
}

/** Whether a server has used the data folder of the settings. */
export async function isDataFolder({ data }: Config): Promise<boolean> {
  return (await stat(new Paths(data).folderId).catch(ifMissing)) !== undefined;
}

/** Opens the database and the storage, and migrates. */
export async function openData(
  config: Config,
  surroundings: DataSurroundings,
  stack: AsyncDisposableStack,
): Promise<DataParts> {
  const parts = await openUnmigrated(config, surroundings, stack);
  await refuseUnfinished(parts.database, parts.driver).catch(nameSides(config, parts.driver));
  await migrate(parts.database).catch(named(databaseKey(config), 'the database cannot be used'));
  return parts;
}

/** Opens the database and the storage as they are. */
async function openUnmigrated(
  config: Config,
  surroundings: DataSurroundings,
  stack: AsyncDisposableStack,
): Promise<DataParts> {
  const { now, log, command } = surroundings;
  const paths = new Paths(config.data);
  const closing = new Closing(log, surroundings.closingTimes);
  await refuseOtherOwner(config, paths, command);
  const driver = surroundings.driver ?? (await openStorage(config, surroundings, paths));
  stack.defer(closing.part('the storage', () => driver.close()));
  if (command) await checkFiles(config, driver, command).catch(nameSides(config, driver));
  const onRedis = (error: unknown) => log.warn({ err: error }, 'Redis is unreachable');
  const namespace = namespaceOf(config.database.url, config.data);
  const cache = await Cache.open(config.redis.url, now, onRedis, namespace, surroundings.redisTimeout);
  stack.defer(closing.part('the cache', () => cache.close()));
  await privateFolder(config.data, log).catch(named('ENTREPOT_DATA', notWritable));
  const database = await openNamed(config, cache.changes, surroundings);
  stack.defer(closing.part('the database', () => database.close()));
  if (command) await checkTables(database, config, driver, command).catch(nameSides(config, driver));
  return { closing, paths, cache, database, driver };
}

async function openStorage({ storage }: Config, { disk = localDisk }: DataSurroundings, paths: Paths): Promise<Driver> {
  const hasRoom = async (bytes: number) => (await disk.free(paths.data)) - bytes > storage.reserve;
  return openDriver(storage, paths, hasRoom).catch(nameStorage);
}

/** For `catch`: names the setting of a storage that cannot be used. */
export function nameStorage(error: unknown): never {
  if (error instanceof StorageSettingError)
    throw new ConfigError(`${environmentName(error.setting)}: ${error.message}`, { cause: error });
  return named('ENTREPOT_DATA', notWritable)(error);
}

/**
 * Confirms that the database and the storage of the settings belong together, also if they do not look so. `report` gets
 * what they hold before anything is written.
 */
export async function adoptStorage(
  config: Config,
  surroundings: DataSurroundings,
  report: (found: Adopted) => void,
): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const { database, driver, paths } = await openData(config, surroundings, stack);
  await new Instances(database, '', surroundings.log).refuseLive();
  const blobs = new BlobStore(database, driver, paths, surroundings.now);
  await blobs.prepare().catch(nameStorage);
  await adopt(database, driver, report);
  const subject = { kind: 'storage', name: config.storage.driver } as const;
  const event = { type: 'storage.adopted', accountId: 0, subject } as const;
  await runForSystem('command', () => recordOutside(database, event, surroundings.now()));
}

/** A storage in a folder, for a backup or a copy. */
interface FolderStorage {
  paths: Paths;
  driver: Driver;
}

/** The storage in `folder`, which need not exist yet. `driver.close` must be called at the end. */
export function folderStorage(folder: string): FolderStorage {
  const paths = new Paths(folder);
  return { paths, driver: openDataFolder(paths) };
}

/** The database and the storage of the settings, for a restore: without migrations, and with any content. */
interface RestoreTarget extends AsyncDisposable {
  database: Database;
  driver: Driver;
  paths: Paths;
}

export async function openRestoreTarget(config: Config, surroundings: DataSurroundings): Promise<RestoreTarget> {
  await using stack = new AsyncDisposableStack();
  const { database, driver, paths } = await openUnmigrated(config, surroundings, stack);
  await new BlobStore(database, driver, paths, surroundings.now).prepare().catch(nameStorage);
  const rest = stack.move();
  return { database, driver, paths, [Symbol.asyncDispose]: () => rest.disposeAsync() };
}

/** The setting that says where the database is. */
function databaseKey({ database: { url } }: Config): string {
  return url === undefined ? 'ENTREPOT_DATA' : 'ENTREPOT_DATABASE_URL';
}

/** For `catch`: names the settings of the sides that may be wrong. */
export function nameSides(config: Config, driver: Driver): (error: unknown) => never {
  const { kind, name, setting } = driver.describe();
  const keys = { database: databaseKey(config), storage: environmentName(setting) };
  return (error) => {
    if ((error as NodeJS.ErrnoException).syscall) return named('ENTREPOT_DATA', 'the storage cannot be read')(error);
    if (!(error instanceof WrongPair)) throw error;
    const settings = [...new Set(error.sides.map((side) => keys[side]))].join(', ');
    throw new ConfigError(`${settings}: ${error.message} (${kind}: ${name})`, { cause: error });
  };
}

function openNamed(
  config: Config,
  changes: WriteSignal | undefined,
  surroundings: DataSurroundings,
): Promise<Database> {
  const { data, database } = config;
  const opening = openPrivate(database.url ?? `sqlite:${join(data, 'entrepot.db')}`, changes, surroundings);
  return opening.catch(named(databaseKey(config), 'the database cannot be opened'));
}

/** Opens the database. Other users of the machine may not read the file of SQLite. */
async function openPrivate(
  url: string,
  changes: WriteSignal | undefined,
  { log, databaseLimits }: DataSurroundings,
): Promise<Database> {
  if (!url.startsWith('sqlite:')) return openDatabase(url, changes, databaseLimits);
  const path = url.slice('sqlite:'.length);
  await createDatabaseFiles(path);
  const database = await openDatabase(url, changes, databaseLimits);
  // Only now is it known that these are the files of a database.
  await tightenDatabaseFiles(path, log);
  return database;
}

/** For `catch`: turns a failure into one line that names the setting to check. */
export function named(key: string, failure: string): (error: unknown) => never {
  return (error) => {
    throw new ConfigError(`${key}: ${failure}: ${(error as Error).message.split('\n', 1)[0]}`, { cause: error });
  };
}
