import { claimInterval, RedisOwner } from './cache/redis-owner.ts';
import { ConfigError } from './config/load.ts';
import { environmentName } from './config/schema.ts';
import type { Core } from './core.ts';
import { clockDifference } from './database/clock-difference.ts';
import { examineEngine } from './database/engine.ts';
import type { Chore } from './jobs/chores.ts';
import { installationIdentity } from './storage/identity.ts';

/**
 * Most milliseconds between the clock of this machine and that of the database, so that two instances differ by less than
 * 4 s: the lease of an upload has at least that time left while its writer lives, and an instance whose clock is further
 * ahead would take it away.
 */
const clockBound = 2000;

/** Milliseconds between two checks of a running server. */
const checkInterval = 30_000;

/** Something that must be true of what several instances share. */
export interface Requirement {
  readonly subject: string;
  /** Resolves to the state; rejects with `ConfigError` if it is known not to work. */
  readonly check: () => Promise<RequirementState>;
}

export interface RequirementState {
  text: string;
  /** Why it may not work. */
  doubt?: string | undefined;
}

export interface Requirements {
  readonly list: readonly Requirement[];
  /** Rejects with the `ConfigError` of the first requirement that is not met, and logs doubts. */
  enforce(): Promise<void>;
  /** Repeats the checks of a running server, which only warns, once for each state. */
  readonly chores: readonly Chore[];
  close(): Promise<void>;
}

type Parts = Pick<Core, 'config' | 'cache' | 'database' | 'now' | 'log'>;

/** The requirements of this installation; SQLite without Redis has none. `bound` replaces `clockBound`. */
export async function openRequirements(parts: Parts, bound = clockBound): Promise<Requirements> {
  const { config, cache, database, log } = parts;
  const owner =
    config.redis.url === undefined ? undefined : new RedisOwner(cache, await installationIdentity(database));
  const list = [
    ...(database.dialect === 'mysql' ? [engineRequirement(parts), clockRequirement(parts, bound)] : []),
    ...(owner ? [ownerRequirement(owner)] : []),
  ];
  const reported = new Map<string, 'doubt' | 'problem'>();
  /** Logs a new state, and not another text for the same one, such as a drift that grows. */
  const report = (subject: string, state?: 'doubt' | 'problem', text?: string) => {
    if (reported.get(subject) === state) return;
    if (state === undefined) {
      reported.delete(subject);
      log.info(`${subject}: the problem is over`);
    } else {
      reported.set(subject, state);
      log.warn(`${subject}: ${text}`);
    }
  };
  const run = async ({ subject, check }: Requirement) => {
    const { doubt } = await check();
    report(subject, doubt === undefined ? undefined : 'doubt', doubt);
  };
  const watch = async () => {
    for (const each of list) {
      await run(each).catch((error: unknown) => {
        // Readiness reports a database that cannot be reached.
        if (error instanceof ConfigError) report(each.subject, 'problem', error.message);
      });
    }
  };
  const failure = 'the requirements for several instances were not checked';
  const chores: Chore[] = list.length === 0 ? [] : [{ interval: checkInterval, run: watch, failure }];
  if (owner) {
    const claim = async () => void (await owner.claim());
    chores.push({ interval: claimInterval, run: claim, failure: 'Redis was not marked' });
  }
  return {
    list,
    enforce: async () => {
      for (const each of list) await run(each);
    },
    chores,
    close: async () => owner?.release(),
  };
}

function engineRequirement({ database }: Parts): Requirement {
  return {
    subject: 'database server',
    check: async () => {
      const { name, problem, doubt, node } = (await examineEngine(database))!;
      if (problem !== undefined) throw new ConfigError(`${environmentName('database.url')}: ${problem}`);
      return { text: node === undefined ? name : `${name}, node ${node}`, doubt };
    },
  };
}

function clockRequirement({ database, now }: Parts, bound: number): Requirement {
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

function ownerRequirement(owner: RedisOwner): Requirement {
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
