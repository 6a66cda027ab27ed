import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createConnection } from 'mysql2/promise';
import type { Dialect } from '../../src/database/database.ts';
import { temporaryFolder } from '../../test/support/clients/clients.ts';
import {
  createDatabase,
  serviceCommands,
  startServices,
  type Services,
} from '../../test/support/processes/services.ts';
import { describeMissing, ensureCommands } from '../packages.ts';
import { startEntrepot, type Entrepot } from './peers.ts';
import { mebibyte, type Peer } from './processes.ts';

/** One process with SQLite, or two with MariaDB and Redis. */
export type Setting = 'embedded' | 'production';

/** A data folder and a database, for one server after the other. */
export interface Place {
  data: string;
  databaseUrl: string;
  /** What tells a server of them. */
  settings: Record<string, string>;
}

/** What a part measures with: how much and how often, and servers, which are stopped when the part is over. */
export class Bench {
  readonly quick: boolean;
  readonly setting: Setting;
  readonly rounds: number;
  /** Of each round. */
  readonly seconds: number;
  /** How many packages make a large store. */
  readonly many: number;
  /** Goes when the run is over. */
  readonly folder: string;
  readonly #running: Peer[] = [];
  #services: Promise<Services> | undefined;

  private constructor(folder: string, quick: boolean, setting: Setting) {
    this.folder = folder;
    this.quick = quick;
    this.setting = setting;
    this.rounds = quick ? 1 : 3;
    this.seconds = quick ? 2 : 5;
    this.many = quick ? 5000 : 100_000;
  }

  static async open(quick: boolean, setting: Setting): Promise<Bench> {
    return new Bench((await temporaryFolder()).path, quick, setting);
  }

  /** The database of this run's setting. */
  get dialect(): Dialect {
    return this.setting === 'production' ? 'mysql' : 'sqlite';
  }

  /** An empty place, its data in a folder of that name. */
  async place(name: string, dialect = this.dialect): Promise<Place> {
    const data = join(this.folder, name);
    await mkdir(data, { recursive: true });
    if (dialect === 'sqlite') return { data, databaseUrl: `sqlite:${join(data, 'entrepot.db')}`, settings: {} };
    this.#services ??= startAll(join(this.folder, 'services'));
    const services = await this.#services;
    const { url } = await createDatabase(services.databaseUrl);
    const shared = { ENTREPOT_WORKERS: '2', ENTREPOT_REDIS_URL: services.redisUrl };
    const settings = { ENTREPOT_DATABASE_URL: url, ...(this.setting === 'production' && shared) };
    return { data, databaseUrl: url, settings };
  }

  /** This server in the run's setting, in an empty place of that name. */
  async ours(name: string, settings: Record<string, string> = {}): Promise<Entrepot> {
    return this.serve(await this.place(name), { settings });
  }

  /** This server in a place that may have been used before; `name` is for the report. */
  async serve(
    place: Place,
    { name, settings = {} }: { name?: string; settings?: Record<string, string> } = {},
  ): Promise<Entrepot> {
    return this.keep(await startEntrepot(place.data, { ...place.settings, ...settings }, name));
  }

  /**
   * Gets memory for so many bytes of files, and a quarter more, from the virtual machine's host, where the next to write
   * them would else wait for it: what was not used for seconds takes up to nine times as long, whoever's turn it is.
   */
  async touchMemory(bytes: number): Promise<void> {
    const path = join(this.folder, 'touched');
    const file = await open(path, 'w');
    const piece = Buffer.alloc(mebibyte, 1);
    for (let written = 0; written < 1.25 * bytes; written += piece.length) await file.write(piece);
    await file.close();
    await rm(path);
  }

  /** Stops `peer` when the part is over. */
  keep<T extends Peer>(peer: T): T {
    this.#running.push(peer);
    return peer;
  }

  async endPart(): Promise<void> {
    for (const peer of this.#running.splice(0)) await peer.stop();
  }

  async close(): Promise<void> {
    await this.endPart();
    await (await this.#services)?.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** As for the tests, but with room for a large store in the database's memory. */
async function startAll(folder: string): Promise<Services> {
  const commands = await ensureCommands(serviceCommands);
  if (commands.missing.length > 0) throw new Error(describeMissing(commands));
  const services = await startServices(folder, commands.paths);
  const connection = await createConnection(services.databaseUrl);
  await connection.query('SET GLOBAL innodb_buffer_pool_size = ?', [1024 * mebibyte]);
  await connection.end();
  return services;
}
