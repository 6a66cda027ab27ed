import { environmentName } from '../config/schema.ts';
import type { Facts, Instance } from './instances.ts';

/** Bounds of what several instances must have in common; milliseconds. See `server/preflight.ts`. */
export interface RequirementBounds {
  /** Most time between `now` and the clock of a MySQL database. */
  clock: number;
  /** How long a start waits for other instances to notice a fail-over of Redis or of the database. */
  patience: number;
}

/** What two instances of one database have not in common. */
interface Disagreement {
  other: Instance;
  /** Whether it may be over soon, because another instance has not yet noticed a fail-over. */
  mayEnd: boolean;
  /** Names the setting, and says what to do. */
  message: string;
}

/**
 * The fact `storage` of a folder with this inode. A copy of the folder has the same identity and another inode. With SQLite,
 * `file` is the inode of the database.
 */
export function folderFact(identity: string, inode: bigint, file?: bigint): string {
  return `folder ${identity}.${inode}${file === undefined ? '' : `.${file}`}`;
}

/** The inode of the database in the fact `storage`. */
function fileOf(storage: string | null): string | undefined {
  return /^folder [^.]+\.\d+\.(\d+)$/.exec(storage ?? '')?.[1];
}

/** Whether the fact `theirs` came with a copy of the SQLite file of the original: its server uses another database. */
export function isOfOriginal(mine: string | null, theirs: string | null): boolean {
  const [own, other] = [fileOf(mine), fileOf(theirs)];
  return own !== undefined && other !== undefined && own !== other;
}

/** What is wrong with a command whose settings name the storage `own`, where the servers use `active`. */
export function otherStorage(own: string, active: string): string {
  return `${environmentName(storageSetting(own, active))}: the servers of this database use another storage (${placeOf(active)}) than this command (${placeOf(own)}). Give the command the settings of the servers; if they are to use this storage from now on, start a server with it first`;
}

/** The fingerprint of the key for the secrets of webhooks. */
function keyOf(instance: Instance | undefined): string | undefined {
  return /\bwebhooks:(\S+)/.exec(instance?.secret ?? '')?.[1];
}

/** Whether a live instance has a key for the secrets of webhooks, and `id` has none or another one. */
export function othersHaveKey(id: string, live: readonly Instance[]): boolean {
  const own = keyOf(live.find((each) => each.id === id));
  return live.some((each) => keyOf(each) !== undefined && keyOf(each) !== own);
}

/** The settings of the secrets that instances share. */
const secretSettings = { webhooks: 'secretKeyFile', internal: 'server.internal.secretFile' };
type SecretName = keyof typeof secretSettings;

/** The fact `secret` from fingerprints, which have no spaces; null if there are none. */
export function secretFact(fingerprints: Record<SecretName, string | undefined>): string | null {
  const known = Object.entries(fingerprints).filter(([, value]) => value !== undefined);
  return known.length === 0 ? null : known.map(([name, value]) => `${name}:${value}`).join(' ');
}

/** The secret that two instances both have, and that differs. */
function differentSecret(mine: string, theirs: string): SecretName | undefined {
  const read = (fact: string) => new Map(fact.split(' ').map((each) => each.split(':', 2) as [SecretName, string]));
  const others = read(theirs);
  return [...read(mine)].find(([name, value]) => (others.get(name) ?? value) !== value)?.[0];
}

/** The first fact that differs between this instance and one of `others`. A fact that is null is not compared. */
export function disagreement(own: Facts, others: readonly Instance[]): Disagreement | undefined {
  for (const fact of ['storage', 'secret', 'redis', 'databaseNode'] as const) {
    const mine = own[fact];
    for (const other of others) {
      if (isOfOriginal(own.storage, other.storage)) continue;
      const theirs = other[fact];
      if (mine === null || theirs === null || mine === theirs) continue;
      if (fact === 'secret' && !differentSecret(mine, theirs)) continue;
      const { setting, text } = reasons[fact](mine, theirs);
      const message = `${environmentName(setting)}: ${text(`the live server ${other.name}`)}. Correct the setting of one of the two, or end the other server`;
      return { other, mayEnd: fact === 'redis' || fact === 'databaseNode', message };
    }
  }
  return undefined;
}

interface Reason {
  setting: string;
  text: (other: string) => string;
}

const reasons: Record<keyof Facts, (mine: string, theirs: string) => Reason> = {
  storage: (mine, theirs) => ({
    setting: storageSetting(mine, theirs),
    text: (other) =>
      `this server and ${other} have different storages (${placeOf(mine)}, ${placeOf(theirs)}), but all servers of one database need the same`,
  }),
  secret: (mine, theirs) => ({
    setting: secretSettings[differentSecret(mine, theirs)!],
    text: (other) => `this server and ${other} have different keys, but all servers of one database need the same`,
  }),
  redis: (mine, theirs) => ({
    setting: 'redis.url',
    text: (other) => {
      if (mine === noRedis) return `${other} uses a Redis, which all servers of one database need to share`;
      if (theirs === noRedis) return `${other} uses no Redis, but all servers of one database need to share one`;
      return `this server and ${other} use different Redis servers, but all servers of one database need the same`;
    },
  }),
  databaseNode: (mine, theirs) => ({
    setting: 'database.url',
    text: (other) =>
      `this server writes to the Galera node ${mine}, and ${other} to ${theirs}; nodes do not share locks, so all servers need one address that leads to one node`,
  }),
};

/** The fact `redis` of an instance without one. */
export const noRedis = 'none';

function storageSetting(mine: string, theirs: string): string {
  const [kind, ...place] = mine.split(' ');
  const [otherKind, ...otherPlace] = theirs.split(' ');
  if (kind !== otherKind) return 'storage.driver';
  if (kind === 'folder') return 'data';
  const names = ['endpoint', 'bucket', 'prefix'];
  return `storage.${kind}.${names.find((_, at) => place[at] !== otherPlace[at]) ?? 'bucket'}`;
}

/** Identities of folders mean nothing to a reader. */
function placeOf(fact: string): string {
  return fact.startsWith('folder') ? 'a folder' : fact;
}
