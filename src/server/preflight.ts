import { stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { sqlitePath } from './command-place.ts';
import { inTime } from '../runtime/in-time.ts';
import { claimInterval, RedisOwner } from '../cache/redis-owner.ts';
import { ConfigError } from '../config/load.ts';
import { environmentName } from '../config/schema.ts';
import type { Core } from './core.ts';
import { clockDifference } from '../database/clock-difference.ts';
import { examineEngine } from '../database/engine.ts';
import {
  disagreement,
  folderFact,
  isOfOriginal,
  noRedis,
  otherStorage,
  secretFact,
  type RequirementBounds,
} from '../instances/agreement.ts';
import type { Facts, Instance } from '../instances/instances.ts';
import { RelayKey } from '../instances/relay-key.ts';
import type { RepeatedWork } from '../jobs/repeated-work.ts';
import { activeStorage, installationIdentity, setActiveStorage } from '../storage/upkeep/identity.ts';
import { Paths } from '../storage/files/paths.ts';
import { keyFingerprint } from '../webhooks/secrets.ts';

/** Milliseconds between two checks of a running server. */
const checkInterval = 10_000;

/** Milliseconds between two comparisons of a start that waits. */
const comparePause = 500;

/** With SQLite, an instance without a heartbeat for this many intervals has ended. */
const beatsUntilSilence = 1.2;

const defaultBounds: RequirementBounds = {
  // Two instances then differ by less than 4 s: the lease of an upload has at least that time left while its writer lives,
  // and an instance whose clock is further ahead would take it away.
  clock: 2000,
  // The interval of the checks, and that of heartbeats, which write what they found.
  patience: checkInterval + 6000,
};

/** Something that must be true of what several instances share. */
interface SharedRequirement {
  readonly subject: string;
  /** Resolves to the state; rejects with `ConfigError` if it is known not to work. */
  readonly check: () => Promise<RequirementState>;
}

interface RequirementState {
  text: string;
  /** Why it may not work. */
  doubt?: string | undefined;
}

interface Requirements {
  readonly list: readonly SharedRequirement[];
  /**
   * Rejects with the `ConfigError` of the first requirement that this process alone does not meet, and logs doubts. Notes what
   * the instances must have in common.
   */
  enforce(): Promise<void>;
  /** Call it after `Instances.enter`: rejects with `ConfigError` if this process does not agree with one before it. */
  agree(): Promise<void>;
  /** Repeats the checks of a running server, which only warns, once for each state. */
  readonly chores: readonly RepeatedWork[];
  /** Takes at most this many milliseconds. */
  close(milliseconds: number): Promise<void>;
}

type Parts = Pick<Core, 'config' | 'cache' | 'database' | 'driver' | 'instances' | 'now' | 'log'>;

/** The requirements of this installation. With SQLite, instances need the same storage and the same key of webhooks. */
export async function openRequirements(parts: Parts, bounds = defaultBounds): Promise<Requirements> {
  const { config, cache, database, instances, log } = parts;
  const installation = await installationIdentity(database);
  const owner = config.redis.url === undefined ? undefined : new RedisOwner(cache, installation);
  let databaseNode: string | null = null;
  const isShared = database.dialect === 'mysql';
  const facts = async (): Promise<Facts> => ({
    storage: await storageFact(parts, installation),
    secret: await secretsFact(parts),
    redis: !isShared ? null : owner ? (owner.identity ?? null) : noRedis,
    databaseNode,
  });
  const engine = engineRequirement(parts, (node) => (databaseNode = node ?? null));
  const own = [
    ...(isShared ? [engine, clockRequirement(parts, bounds.clock)] : []),
    ...(owner ? [ownerRequirement(owner)] : []),
  ];
  const othersLive = async () => (await instances.live()).filter(({ id }) => id !== instances.id);
  const agreement: SharedRequirement = {
    subject: 'instances',
    check: async () => {
      const others = await othersLive();
      const found = disagreement(await facts(), others);
      if (found) throw new ConfigError(found.message);
      return { text: `agrees with all live servers (${others.length})` };
    },
  };
  const report = reporter(log);
  const run = async ({ subject, check }: SharedRequirement) => report(subject, (await check()).doubt);
  const list = [...own, agreement];
  const watch = async () => {
    for (const each of list) {
      await run(each).catch((error: unknown) => {
        // Readiness reports a database that cannot be reached.
        if (error instanceof ConfigError) report(each.subject, error.message);
      });
    }
    instances.note(await facts());
  };
  const failure = 'the requirements for several instances were not checked';
  const interval = isShared || !owner ? checkInterval : Math.min(checkInterval, claimInterval);
  const chores: RepeatedWork[] = [{ interval, run: watch, failure }];
  /**
   * Waits for an instance that was killed with other settings until its lease is over, and for one that has not yet noticed a
   * fail-over. With SQLite an instance lives on this machine, and has a long lease: without a heartbeat in time it has ended.
   */
  const agree = async () => {
    const startedAt = performance.now();
    const until = startedAt + bounds.patience;
    const silence = isShared ? Infinity : instances.times.beat * beatsUntilSilence;
    const seenAt = new Map<string, number>();
    for (; ; await sleep(comparePause)) {
      const found = disagreement(await facts(), precedingOf(instances.id, await instances.list()));
      if (!found) return;
      const { other, mayEnd, message } = found;
      if (seenAt.size === 0) log.warn(`this start waits for a live server to end or to change: ${message}`);
      const first = seenAt.get(other.id) ?? other.seenAt;
      seenAt.set(other.id, first);
      const isAlive = other.seenAt !== first;
      if (!isAlive && performance.now() - startedAt > silence) return;
      if (isAlive && (!mayEnd || performance.now() >= until)) throw new ConfigError(message);
      for (const each of own) await run(each);
    }
  };
  return {
    list,
    enforce: async () => {
      for (const each of own) await run(each);
      instances.note(await facts());
    },
    agree: async () => {
      await agree();
      await noteStorage(parts);
    },
    chores,
    close: async (milliseconds) => {
      if (!owner) return;
      // Other live servers compare themselves with the mark. It ends by itself if the database does not tell about them.
      const others = await inTime(othersLive, milliseconds / 2).catch(() => undefined);
      if (others?.length === 0) await owner.release();
    },
  };
}

/** The live instances that were added before this one: of two that start at the same time, only one is refused. */
function precedingOf(id: string, all: readonly Instance[]): Instance[] {
  const at = all.findIndex((each) => each.id === id);
  return (at === -1 ? all : all.slice(0, at)).filter(({ isLive }) => isLive);
}

/** Logs a problem once, also if its text changes, such as for a drift that grows; undefined: there is none. */
function reporter(log: Parts['log']): (subject: string, problem: string | undefined) => void {
  const reported = new Map<string, string>();
  return (subject, problem) => {
    // The setting, or the doubt.
    const state = problem?.split(':', 1)[0];
    if (reported.get(subject) === state) return;
    if (state === undefined) {
      reported.delete(subject);
      log.info(`${subject}: the problem is over`);
    } else {
      reported.set(subject, state);
      log.warn(`${subject}: ${problem}`);
    }
  };
}

/**
 * Rejects with `ConfigError` if a command has another storage than the servers: it would call their content damaged, or change
 * a place that they do not use.
 */
export async function checkStorage(parts: Parts): Promise<void> {
  const { database, driver, instances } = parts;
  const active = await activeStorage(database);
  const place = (await driver.fact())?.place ?? active;
  if (place !== undefined && active !== undefined && active !== place)
    throw new ConfigError(otherStorage(place, active));
  const own = await storageFact(parts, await installationIdentity(database));
  for (const { storage } of await instances.live())
    if (own !== null && storage !== null && storage !== own && !isOfOriginal(own, storage))
      throw new ConfigError(otherStorage(own, storage));
}

/** Notes the storage of this server, which starts. */
async function noteStorage({ database, driver, log }: Parts): Promise<void> {
  const before = await activeStorage(database);
  const place = (await driver.fact())?.place;
  if (place === undefined || before === place) return;
  if (before !== undefined) log.warn({ before, now: place }, 'the servers of this database now use another storage');
  await setActiveStorage(database, place);
}

/** The identity of the storage; null while it is not known. */
async function storageFact({ config, driver }: Parts, installation: string): Promise<string | null> {
  const { place, inode } = (await driver.fact()) ?? {};
  if (inode !== undefined) return folderFact(installation, inode, await inodeOf(sqlitePath(config)));
  return place ?? null;
}

async function inodeOf(path: string | undefined): Promise<bigint | undefined> {
  return path === undefined ? undefined : (await stat(path, { bigint: true }).catch(() => undefined))?.ino;
}

/** Without keys that are not used, or cannot be read: what needs them reports that. With SQLite nothing is relayed to others. */
async function secretsFact({ config, database }: Parts): Promise<string | null> {
  const { data, secretKeyFile, server } = config;
  const secretFile = database.dialect === 'mysql' ? server.internal.secretFile : undefined;
  const isDefault = secretKeyFile === undefined;
  const webhooks = keyFingerprint(secretKeyFile ?? new Paths(data).secretKey, isDefault);
  const internal = async () => (secretFile === undefined ? undefined : RelayKey.read(secretFile).fingerprint);
  return secretFact({
    webhooks: await webhooks.catch(() => undefined),
    internal: await internal().catch(() => undefined),
  });
}

function engineRequirement({ database }: Parts, onNode: (node: string | undefined) => void): SharedRequirement {
  return {
    subject: 'database server',
    check: async () => {
      const { name, problem, doubt, node } = (await examineEngine(database))!;
      onNode(node);
      if (problem !== undefined) throw new ConfigError(`${environmentName('database.url')}: ${problem}`);
      return { text: node === undefined ? name : `${name}, node ${node}`, doubt };
    },
  };
}

function clockRequirement({ database, now }: Parts, bound: number): SharedRequirement {
  return {
    subject: 'clock',
    check: async () => {
      const difference = await clockDifference(database, now);
      const size = Math.abs(difference);
      if (size <= bound) return { text: `agrees with the clock of the database to ${bound / 1000} s` };
      const setting = environmentName('database.url');
      const direction = difference > 0 ? 'ahead of' : 'behind';
      throw new ConfigError(
        `${setting}: the clock of this machine is ${(size / 1000).toFixed(1)} s ${direction} the clock of the database, and at most ${bound / 1000} s are allowed. Set both clocks by NTP`,
      );
    },
  };
}

function ownerRequirement(owner: RedisOwner): SharedRequirement {
  return {
    subject: 'redis owner',
    check: async () => {
      const claim = await owner.claim();
      if (claim === 'own') return { text: 'only this installation uses its keys' };
      if (claim === 'unknown')
        return { text: 'not known, because Redis does not answer or its user may not run scripts' };
      throw new ConfigError(
        `${environmentName('redis.url')}: another installation, whose database has the same address but other content, uses this Redis. Give each installation its own Redis or database number, such as redis://host:6379/1; if the other one was just ended, wait for a minute`,
      );
    },
  };
}
