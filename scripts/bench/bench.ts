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

/** A data folder and a database. Several servers can use them one after another. */
export interface Place {
  data: string;
  databaseUrl: string;
  /** The settings of a server for them. */
  settings: Record<string, string>;
}

/** Parameters and servers for the parts of a benchmark. The servers of a part are stopped at its end. */
export class Bench {
  readonly quick: boolean;
  readonly setting: Setting;
  readonly rounds: number;
  /** Duration of each round. */
  readonly seconds: number;
  /** Number of packages in a large store. */
  readonly many: number;
  /** Removed at the end of the run. */
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

  /** The database for the setup of this run. */
  get dialect(): Dialect {
    return this.setting === 'production' ? 'mysql' : 'sqlite';
  }

  /** Creates an empty place, with its data in a folder of this name. */
  async place(name: string, dialect = this.dialect): Promise<Place> {
    const data = join(this.folder, name);
    await mkdir(data, { recursive: true });
    if (dialect === 'sqlite') return { data, databaseUrl: `sqlite:${join(data, 'entrepot.db')}`, settings: {} };
    const services = await this.#start();
    const { url } = await createDatabase(services.databaseUrl);
    const shared = { ENTREPOT_WORKERS: '2', ENTREPOT_REDIS_URL: services.redisUrl };
    const settings = { ENTREPOT_DATABASE_URL: url, ...(this.setting === 'production' && shared) };
    return { data, databaseUrl: url, settings };
  }

  /** Creates an empty place for several instances of one process each, with MariaDB and Redis. */
  async shared(name: string): Promise<Place> {
    const place = await this.place(name, 'mysql');
    const { redisUrl } = await this.#start();
    return { ...place, settings: { ...place.settings, ENTREPOT_REDIS_URL: redisUrl, ENTREPOT_WORKERS: '1' } };
  }

  #start(): Promise<Services> {
    this.#services ??= startAll(join(this.folder, 'services'));
    return this.#services;
  }

  /** Starts this server in the setup of this run, in an empty place of this name. */
  async ours(name: string, settings: Record<string, string> = {}): Promise<Entrepot> {
    return this.serve(await this.place(name), { settings });
  }

  /** Starts this server in a place that may have data; `name` is for the report. */
  async serve(
    place: Place,
    { name, settings = {} }: { name?: string; settings?: Record<string, string> } = {},
  ): Promise<Entrepot> {
    return this.keep(await startEntrepot(place.data, { ...place.settings, ...settings }, name));
  }

  /**
   * Writes and removes a file a quarter larger than `bytes`, so that the host of the virtual machine provides the memory
   * before a measurement. A write to memory that was unused for some seconds can take nine times as long.
   */
  async touchMemory(bytes: number): Promise<void> {
    const path = join(this.folder, 'touched');
    const file = await open(path, 'w');
    const piece = Buffer.alloc(mebibyte, 1);
    for (let written = 0; written < 1.25 * bytes; written += piece.length) await file.write(piece);
    await file.close();
    await rm(path);
  }

  /** Stops `peer` at the end of the part. */
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

/** As for the tests, but the database has enough memory for a large store. */
async function startAll(folder: string): Promise<Services> {
  const commands = await ensureCommands(serviceCommands);
  if (commands.missing.length > 0) throw new Error(describeMissing(commands));
  const services = await startServices(folder, commands.paths);
  const connection = await createConnection(services.databaseUrl);
  await connection.query('SET GLOBAL innodb_buffer_pool_size = ?', [1024 * mebibyte]);
  await connection.end();
  return services;
}
