import { jsonItem } from '../runtime/json-item.ts';
import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { inTime } from '../runtime/in-time.ts';
import { ConfigError } from '../config/load.ts';
import { databaseTime } from '../database/clock.ts';
import { placeholders, type Database, type Dialect, type Transaction, type Value } from '../database/database.ts';
import type { Processes } from '../database/processes.ts';
import { version } from '../runtime/package.ts';

/** Times in milliseconds. */
export interface InstanceTimes {
  /** Between two heartbeats. */
  beat: number;
  /** An instance that was not seen for this long is dead. */
  lease: number;
  /** How long another instance may take to accept a call. */
  answer: number;
}

/** Processes on SQLite share one machine and one data folder: no request depends on their state, and a write costs more. */
const defaultTimes: Readonly<Record<Dialect, InstanceTimes>> = {
  mysql: { beat: 5000, lease: 20_000, answer: 10_000 },
  sqlite: { beat: 30_000, lease: 120_000, answer: 10_000 },
};

/** Dead instances are listed for this many milliseconds. */
const keepDead = 3_600_000;
/** After this many heartbeats, rows of dead instances are removed. */
const beatsPerRemoval = 100;
const maxListed = 1000;
/** How long the removal of this process may take at its end; milliseconds. */
const maxLeave = 1000;

/** What all instances of an installation must have in common. Fingerprints, never secrets. Null: not known or not used. */
export interface Facts {
  /** Which storage it uses, for example the endpoint, bucket and prefix. */
  storage: string | null;
  /** Which secret key it has. */
  secret: string | null;
  /** Which Redis it uses; `none` without one. */
  redis: string | null;
  /** Which node of a Galera cluster it is connected to. */
  databaseNode: string | null;
}

/** What an instance says about itself. */
interface OwnFacts extends Partial<Facts> {
  /** Host name and process, for people. */
  name: string;
  /** `host:port` of its internal listener; null without one. */
  address: string | null;
}

/** A server process. Times are in milliseconds since 1970 UTC, by the clock of the database. */
export interface Instance extends Facts {
  id: string;
  name: string;
  address: string | null;
  version: string;
  /** The identity of its data folder. See `folderIdentity`. */
  folder: string;
  startedAt: number;
  seenAt: number;
  isLive: boolean;
}

const columns = `id, name, address, version, folder, storage, secret, redis, database_node AS databaseNode,
  started_at AS startedAt, seen_at AS seenAt`;
/** The row may be lost on power failure: its process has died then. */
const fleeting = { fleeting: true };

/** SQL condition: the instance was seen lately. A time in the future is from a clock that was set back since. */
function isLive(dialect: Dialect): string {
  const now = databaseTime[dialect];
  return `(seen_at > ${now} - lease AND seen_at <= ${now} + lease)`;
}

/** An instance as in `/v1/instances`. */
export function instanceItem({ isLive, ...instance }: Instance) {
  return { ...jsonItem(instance), state: isLive ? ('live' as const) : ('dead' as const) };
}

/** The server processes of one database, also the workers of one machine, and the row of this process. */
export class Instances {
  /** Of this process, new at each start. */
  readonly id = randomUUID();
  #isEntered = false;
  /** The identity of the data folder of this process. */
  readonly folder: string;
  readonly #database: Database;
  readonly times: InstanceTimes;
  readonly #log: Logger;
  #own: OwnFacts | undefined;
  #facts: Facts | undefined;
  #timer: NodeJS.Timeout | undefined;
  #beating: Promise<void> | undefined;
  #beats = 0;

  constructor(database: Database, folder: string, log: Logger, times: Partial<InstanceTimes> = {}) {
    this.#database = database;
    this.folder = folder;
    this.#log = log;
    this.times = { ...defaultTimes[database.dialect], ...times };
  }

  /** Adds this process, which serves, and renews its row until `leave`. */
  async enter(own: OwnFacts): Promise<void> {
    this.#own = own;
    await this.#database.transaction(async (tx) => {
      await this.#removeDead(tx);
      await this.#insert(tx, own);
    }, fleeting);
    this.#isEntered = true;
    this.#timer = setInterval(() => {
      this.#beating ??= this.#beat().finally(() => (this.#beating = undefined));
    }, this.times.beat).unref();
  }

  /** By their locks with SQLite, else by their heartbeats: then only this process, once it serves, is one of them. */
  get processes(): Processes {
    const id = this.#isEntered ? this.id : null;
    return this.#database.processes ?? { id, isExact: false, gone: (ids, silentFor) => this.#gone(ids, silentFor) };
  }

  /** Changes the facts of this process: `enter` and each heartbeat write the latest ones. */
  note(facts: Facts): void {
    this.#facts = facts;
  }

  /** Removes this process, if it was added. If the database does not answer in time, it is listed as dead for a while. */
  async leave(milliseconds: number): Promise<void> {
    // First, because others take over at once what a process that they do not find has left.
    this.#isEntered = false;
    clearInterval(this.#timer);
    if (!this.#own) return;
    await inTime(() => this.#delete(), Math.min(maxLeave, milliseconds / 2)).catch((error: unknown) =>
      this.#log.warn({ err: error }, 'this instance was not removed from the list of instances; it is dead there'),
    );
  }

  /** An instance that the database does not list has left. */
  async #gone(ids: readonly string[], silentFor: number): Promise<ReadonlySet<string>> {
    const asked = ids.filter((id) => id !== this.id);
    if (asked.length === 0) return new Set();
    const now = databaseTime[this.#database.dialect];
    const heard = await this.#database.select<{ id: string }>(
      `SELECT id FROM instances WHERE id IN (${placeholders(asked)})
       AND (seen_at > ${now} - lease OR seen_at > ${now} - ?)`,
      [...asked, silentFor],
    );
    const live = new Set(heard.map(({ id }) => id));
    return new Set(asked.filter((id) => !live.has(id)));
  }

  async #delete(): Promise<void> {
    await this.#beating;
    await this.#database.transaction((tx) => tx.run('DELETE FROM instances WHERE id = ?', [this.id]), fleeting);
  }

  /** All instances, the oldest first; also dead ones until they are removed. At most 1,000. */
  list(): Promise<Instance[]> {
    return this.#select('');
  }

  /** The instances that were seen lately, the oldest first. At most 1,000. */
  live(): Promise<Instance[]> {
    return this.#select(`WHERE ${isLive(this.#database.dialect)}`);
  }

  /**
   * The instances with this data folder, the one that was seen last first, also those that seem dead: after an outage of the
   * database, no row is recent until the next heartbeats.
   */
  async withFolder(folder: string): Promise<Instance[]> {
    const found = await this.#select('WHERE folder = ?', [folder]);
    return found.sort((one, other) => other.seenAt - one.seenAt);
  }

  /** For work that needs all servers stopped: rejects with `ConfigError` while one may run. */
  async refuseLive(): Promise<void> {
    const [live] = await this.live();
    if (!live) return;
    throw new ConfigError(
      `the server ${live.name} uses this database. Stop all servers first; if it was killed, wait until ${this.times.lease / 1000} s have passed`,
    );
  }

  /** Leaves out the instances that were not seen for the longest time. */
  async #select(condition: string, values: readonly Value[] = []): Promise<Instance[]> {
    const rows = await this.#database.select<Omit<Instance, 'isLive'> & { live: number }>(
      `SELECT ${columns}, ${isLive(this.#database.dialect)} AS live FROM instances ${condition}
       ORDER BY seen_at DESC LIMIT ${maxListed}`,
      values,
    );
    const instances = rows.map(({ live, ...row }) => ({ ...row, isLive: live === 1 }));
    return instances.sort((one, other) => one.startedAt - other.startedAt || (one.id < other.id ? -1 : 1));
  }

  async #beat(): Promise<void> {
    this.#beats += 1;
    try {
      await this.#database.transaction(async (tx) => {
        const sql = `UPDATE instances SET seen_at = ${databaseTime[tx.dialect]}, storage = ?, secret = ?, redis = ?,
          database_node = ? WHERE id = ?`;
        // Another instance may have removed the row of a process that was stopped for long.
        if ((await tx.run(sql, [...this.#factValues(), this.id])) === 0) await this.#insert(tx, this.#own!);
        if (this.#beats % beatsPerRemoval === 0) await this.#removeDead(tx);
      }, fleeting);
    } catch (error) {
      this.#log.warn({ err: error }, 'this instance could not write that it is live');
    }
  }

  async #insert(tx: Transaction, own: OwnFacts): Promise<void> {
    const { name, address } = own;
    const now = databaseTime[tx.dialect];
    const values: Value[] = [this.id, name, address, version, this.folder, ...this.#factValues()];
    await tx.run(
      `INSERT INTO instances (id, name, address, version, folder, storage, secret, redis, database_node,
         started_at, seen_at, lease) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ${now}, ${now}, ?)`,
      [...values, this.times.lease],
    );
  }

  async #removeDead(tx: Transaction): Promise<void> {
    const now = databaseTime[tx.dialect];
    await tx.run(`DELETE FROM instances WHERE seen_at < ${now} - lease - ?`, [keepDead]);
  }

  #factValues(): Value[] {
    const { storage = null, secret = null, redis = null, databaseNode = null } = { ...this.#own, ...this.#facts };
    return [storage, secret, redis, databaseNode];
  }
}
