import { statSync } from 'node:fs';
import { access, constants, stat } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { ConfigError } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import { ownerOfTables } from '../database/migrate.ts';
import { tableNames } from '../database/tables.ts';
import { ifMissing } from '../runtime/errors.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import { hasIdentity, refuseForeign } from '../storage/upkeep/identity.ts';
import type { Paths } from '../storage/files/paths.ts';

// What a process needs of the place of the settings, before it opens or makes a file there. A server makes what is missing. A
// command with a wrong setting would make an empty installation. As another user, both would make files that the next server
// cannot read.

/** Set for a command, which runs without a server of its own. */
export interface CommandRules {
  /** Whether it makes an installation where there is none. */
  creates: boolean;
}

/** Checks the files of the place, and makes none. Rejects with `ConfigError`, or with `WrongPair`. */
export async function checkFiles(config: Config, driver: Driver, { creates }: CommandRules): Promise<void> {
  if (creates) return;
  const path = sqlitePath(config);
  const { data, storage } = config;
  // Else the command would make it.
  if (storage.driver === 'filesystem' && !(await stat(data).catch(ifMissing))) throw noInstallation(data);
  if (path === undefined) return;
  const found = await stat(path).catch(ifMissing);
  if (!found || found.size === 0) await refuseMissing(config, driver);
}

/** Checks that the database has an installation. Rejects with `ConfigError`, or with `WrongPair`. */
export async function checkTables(
  database: Database,
  config: Config,
  driver: Driver,
  { creates }: CommandRules,
): Promise<void> {
  if (creates) return;
  const tables = await tableNames(database);
  if (tables.includes('storage_identity') && (await hasIdentity(database))) return;
  // An installation of an old version has no identity yet.
  const isOwn = (await ownerOfTables(database)) === 'own';
  for (const name of isOwn ? tables : []) {
    if (['migrations', 'schema_version', 'probes'].includes(name)) continue;
    if (await database.get(`SELECT 1 AS one FROM ${name} LIMIT 1`)) return;
  }
  await refuseMissing(config, driver);
}

async function refuseMissing({ data, database: { url } }: Config, driver: Driver): Promise<never> {
  // Then this is the storage of an installation, and the database is the wrong one.
  await refuseForeign(driver);
  if (url === undefined || url.startsWith('sqlite:')) throw noInstallation(data);
  throw new ConfigError(
    'no installation in this database; set ENTREPOT_DATABASE_URL or ENTREPOT_CONFIG as for the server',
  );
}

function noInstallation(data: string): ConfigError {
  return new ConfigError(`no installation in ${data}; set ENTREPOT_DATA or ENTREPOT_CONFIG as for the server`);
}

/** The place belongs to another user. The message says why that matters, without the line to type as that user. */
export class OtherOwner extends ConfigError {
  /** The number of that user. */
  readonly owner: number;

  constructor(setting: string, path: string, owner: number, reason: string) {
    super(`${setting}: ${path} belongs to the user ${owner}, and this command runs as ${reason}`);
    this.owner = owner;
  }
}

/** Rejects with `OtherOwner` if the place of the settings belongs to another user. A command also makes no folder there. */
export async function refuseOtherOwner(config: Config, paths: Paths, command?: CommandRules): Promise<void> {
  const path = sqlitePath(config);
  const made = [...(path === undefined ? [] : [path]), paths.folderId, paths.data];
  await refuseOthers('ENTREPOT_DATA', made, paths.data, command?.creates ?? false);
}

/** Rejects with `OtherOwner` if the `folder` of a setting, or the folder in which it would be made, belongs to another user. */
export function refuseOthersFolder(setting: string, folder: string): Promise<void> {
  return refuseOthers(setting, [folder], folder, true);
}

/**
 * The owner of the first of `made` that exists, which the server makes, must be this user. Others than root may also use a
 * folder that is shared with them, such as a volume of Kubernetes with `fsGroup`. With `makes`, root also makes no `folder` in
 * a folder of another user.
 */
async function refuseOthers(setting: string, made: readonly string[], folder: string, makes: boolean): Promise<void> {
  const own = ownUser();
  for (const path of own === 0 && makes ? [...made, ...foldersAbove(folder)] : made) {
    const found = await stat(path).catch(ifUnreachable);
    if (!found) continue;
    if (found.uid === own || own === undefined) return;
    if (own === 0) {
      throw new OtherOwner(
        setting,
        path,
        found.uid,
        `root: it would make files that the server cannot read. If the server runs as root, too, give ${folder} to root with "chown -R".`,
      );
    }
    const mayUse = await access(path, constants.R_OK | constants.W_OK).then(
      () => true,
      () => false,
    );
    if (mayUse) return;
    throw new OtherOwner(setting, path, found.uid, `the user ${own}, who may not write there.`);
  }
}

function foldersAbove(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [] : [parent, ...foldersAbove(parent)];
}

/** The number of the user of this process; undefined if it is not known. Windows has none. */
export function ownUser(): number | undefined {
  try {
    const { uid } = userInfo();
    return uid < 0 ? undefined : uid;
  } catch {
    // An arbitrary user of a container has no entry; Linux knows the number. A process with further rights is of root there, but
    // root has an entry.
    return statSync('/proc/self', { throwIfNoEntry: false })?.uid || undefined;
  }
}

/** The file of the database; undefined for MySQL. */
export function sqlitePath({ data, database: { url } }: Pick<Config, 'data' | 'database'>): string | undefined {
  if (url === undefined) return join(data, 'entrepot.db');
  return url.startsWith('sqlite:') ? url.slice('sqlite:'.length) : undefined;
}

/** For `catch`: what another user may not see is below a folder that says whose it is. */
function ifUnreachable(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'EACCES') ifMissing(error);
}
