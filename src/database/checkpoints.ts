import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { programFile } from '../runtime/program-file.ts';
import { threadEnvironment } from '../runtime/thread-environment.ts';
import type { Connection } from './sqlite.ts';

/** Pages of 4 KiB that the file of the database lacks, from which on they are copied. */
const manyPages = 4000;
/** Pages of the log from which on writes wait for that. SQLite begins the log anew at a write when the file has all of it. */
const mostPages = 3 * manyPages;

/** Copies the log of a SQLite database into its file, in a thread, because that waits for the disk. */
export class Checkpoints {
  readonly #path: string;
  #running: Promise<void> | undefined;
  #pages = 0;
  #limit = mostPages;
  /** Pages that the last run has left, such as for a long read; undefined until they are counted. */
  #left: number | undefined = 0;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Begins to copy the log if it is long. Call it after a write, with a connection that has no transaction. Never throws: the write has
   * happened, and the next one asks again.
   */
  begin(connection: Connection): void {
    let log: Connection['log'];
    try {
      log = connection.log;
    } catch {
      return;
    }
    if (!log) return;
    const { pages, lacking } = log;
    if (pages < this.#pages) {
      this.#limit = mostPages;
      this.#left = 0;
    }
    this.#pages = pages;
    if (this.#running) return;
    this.#left ??= lacking;
    if (lacking - this.#left >= manyPages) void this.#start();
  }

  /** Waits until the log has room, or with `isForced` until it was copied. Call it before a write, while there is no other one. */
  async room(isForced: boolean): Promise<void> {
    if (this.#pages < this.#limit && !isForced) return;
    await this.#running;
    await this.#start();
    // While a long read keeps the log, it grows.
    this.#limit = this.#pages + mostPages;
  }

  /** Resolves when no thread runs. */
  async end(): Promise<void> {
    await this.#running;
  }

  #start(): Promise<void> {
    this.#running ??= this.#copy().finally(() => {
      this.#running = undefined;
      this.#left = undefined;
    });
    return this.#running;
  }

  /** If this fails, such as by the disk, a later write tries again. */
  async #copy(): Promise<void> {
    const options = { workerData: this.#path, env: threadEnvironment() };
    try {
      await once(new Worker(programFile('database/checkpoint-thread.ts'), options), 'exit');
    } catch {}
  }
}
