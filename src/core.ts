import { join } from 'node:path';
import type { Logger } from 'pino';
import { Accounts, type Account } from './accounts/accounts.ts';
import { Tokens } from './accounts/tokens.ts';
import { Cache } from './cache/cache.ts';
import { ConfigError } from './config/load.ts';
import type { Config } from './config/schema.ts';
import { openDatabase, type Database, type WriteSignal } from './database/database.ts';
import { migrate } from './database/migrate.ts';
import { digestOf } from './digest.ts';
import { countFetched } from './http/request-context.ts';
import { Entries } from './mirror/entries.ts';
import { Mirror } from './mirror/mirror.ts';
import { BlobStore } from './storage/blob-store.ts';
import { localDisk, type Disk } from './storage/disk.ts';
import type { Driver } from './storage/driver.ts';
import { FilesystemDriver } from './storage/filesystem.ts';
import { Paths } from './storage/paths.ts';
import { createDatabaseFiles, privateFolder, tightenDatabaseFiles } from './storage/permissions.ts';
import { Room } from './storage/room.ts';
import type { ProxyEnvironment } from './upstream/addresses.ts';
import { openUpstreams } from './upstream/configured.ts';
import type { Upstream } from './upstream/upstream.ts';
import type { SubjectKind } from './usage/counters.ts';
import { UsageRecord, type AddDownloads } from './usage/record.ts';

/** Dependencies from outside the program. Tests replace them. */
export interface Surroundings {
  log: Logger;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** Outgoing proxies. */
  proxy: ProxyEnvironment;
  /** Stores committed bytes; by default in the data folder. */
  driver?: Driver | undefined;
  /** Where files are staged; by default the local disk. */
  disk?: Disk | undefined;
}

/** How the protocols count downloads in their own tables. */
export type Downloads = Partial<Record<SubjectKind, AddDownloads>>;

/** The parts that all protocols share. */
export interface Core {
  readonly config: Config;
  readonly log: Logger;
  /** Milliseconds since 1970 UTC. */
  readonly now: () => number;
  readonly cache: Cache;
  readonly database: Database;
  readonly driver: Driver;
  readonly blobs: BlobStore;
  readonly accounts: Accounts;
  readonly defaultAccount: Account;
  readonly tokens: Tokens;
  readonly usage: UsageRecord;
  readonly entries: Entries;
  readonly mirror: Mirror;
  readonly upstreams: readonly Upstream[];
}

/**
 * Opens the database and the storage, migrates, and creates the account `default`. `stack` closes everything that was
 * opened, also when this fails in the middle. `downloads` count downloads in the tables of protocols.
 */
export async function openCore(
  config: Config,
  surroundings: Surroundings,
  downloads: Downloads,
  stack: AsyncDisposableStack,
): Promise<Core> {
  const { now, log, proxy } = surroundings;
  const paths = new Paths(config.data);
  const driver = surroundings.driver ?? new FilesystemDriver(paths);
  const onRedis = (error: unknown) => log.warn({ err: error }, 'Redis is unreachable');
  const cache = stack.adopt(await Cache.open(config.redis.url, now, onRedis, namespaceOf(config)), (each) =>
    each.close(),
  );
  const folder = 'the data folder is not writable';
  await privateFolder(config.data, log).catch(named('ENTREPOT_DATA', folder));
  const database = stack.adopt(await openNamed(config, cache.changes, log), (each) => each.close());
  await migrate(database);
  const { disk = localDisk } = surroundings;
  const room = new Room(config.data, config.storage.reserve, (path) => disk.free(path), logRoom(log));
  const blobs = new BlobStore(database, driver, paths, now, undefined, { disk, room });
  await blobs.prepare().catch(named('ENTREPOT_DATA', folder));
  const accounts = new Accounts(database, now);
  const { account: defaultAccount } = await accounts.ensureDefault();
  const tokens = stack.adopt(new Tokens(database, now), (each) => each.flush());
  // The mirror is closed before this, because its fetches count their bytes when they end.
  const usage = stack.adopt(new UsageRecord(database, now, downloads), (each) => each.close());
  const entries = stack.adopt(new Entries(database, cache, now), (each) => each.flushUses());
  const { unreadRest, keepPartial } = config.mirror;
  const { accountFetches } = config.limits;
  const mirror = stack.adopt(
    new Mirror({ blobs, entries, room, unreadRest, keepPartial, accountFetches, log, now }),
    (each) => each.close(),
  );
  const upstreams = openUpstreams(config, { cache, log, now, proxy, meter: countFetched });
  for (const upstream of upstreams) {
    const unknown = await unknownAccounts(accounts, upstream);
    if (unknown.length > 0) {
      log.warn({ upstream: upstream.id, accounts: unknown }, 'an upstream names accounts that do not exist');
    }
  }
  // Closed before the mirror, whose fetches end when their upstreams are closed.
  stack.defer(() => {
    for (const upstream of upstreams) upstream.close();
  });
  return {
    config,
    log,
    now,
    cache,
    database,
    driver,
    blobs,
    accounts,
    defaultAccount,
    tokens,
    usage,
    entries,
    mirror,
    upstreams,
  };
}

function logRoom(log: Logger): (isFull: boolean) => void {
  return (isFull) => {
    if (isFull) log.warn('the disk has less free space than the setting storage.reserve: uploads are refused with 507');
    else log.info('the disk has free space again: uploads are accepted');
  };
}

/** The accounts that an upstream is limited to and that do not exist. */
export async function unknownAccounts(accounts: Accounts, { config }: Upstream): Promise<string[]> {
  const unknown: string[] = [];
  for (const name of config.accounts ?? []) if (!(await accounts.named(name))) unknown.push(name);
  return unknown;
}

/** Separates installations that use the same Redis. The instances of one installation share a database. */
function namespaceOf({ data, database: { url } }: Config): string {
  return `entrepot-${digestOf(url ?? data).slice('sha256:'.length, 'sha256:'.length + 12)}`;
}

function openNamed(
  { data, database: { url } }: Config,
  changes: WriteSignal | undefined,
  log: Logger,
): Promise<Database> {
  const key = url === undefined ? 'ENTREPOT_DATA' : 'ENTREPOT_DATABASE_URL';
  const opening = openPrivate(url ?? `sqlite:${join(data, 'entrepot.db')}`, changes, log);
  return opening.catch(named(key, 'the database cannot be opened'));
}

/** Opens the database. Other users of the machine may not read the file of SQLite. */
async function openPrivate(url: string, changes: WriteSignal | undefined, log: Logger): Promise<Database> {
  if (!url.startsWith('sqlite:')) return openDatabase(url, changes);
  const path = url.slice('sqlite:'.length);
  await createDatabaseFiles(path);
  const database = await openDatabase(url, changes);
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
