import type { Logger } from 'pino';
import { runForSystem } from '../runtime/caller.ts';
import type { Config } from '../config/schema.ts';
import { inBackground } from '../database/time-limits.ts';
import { DomainError } from '../runtime/errors.ts';
import { prefetch, type PrefetchParts } from '../prefetch/prefetch.ts';
import type { PrefetchItem } from '../prefetch/item.ts';
import { resultOf, type PrefetchFile, type PrefetchProgress, type PrefetchRunItem } from './prefetch-run.ts';
import type { PrefetchSettings, PrefetchState } from './prefetch-run.ts';
import type { PrefetchTable } from './prefetch-table.ts';

interface PrefetchRunsParts extends PrefetchParts {
  table: PrefetchTable;
  /** Reads files in a way that cannot take the server's time or memory. Throws `Invalid`. */
  read: (files: readonly (PrefetchFile & { kind?: string | undefined })[]) => Promise<PrefetchItem[]>;
  config: Config['prefetch'];
  log: Logger;
  now: () => number;
}

/** Milliseconds between two writes of the progress. */
const beatEvery = 1000;
/** Most readings of files at a time, in this process. */
const maxReadings = 2;

/** Prefetches that users start from files. Each runs in the process that got it, and ends with it. */
export class PrefetchRuns {
  readonly #parts: PrefetchRunsParts;
  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<void>>();
  #readings = 0;

  constructor(parts: PrefetchRunsParts) {
    this.#parts = parts;
  }

  get table(): PrefetchTable {
    return this.#parts.table;
  }

  /** The values of the settings for fields that a user leaves out. */
  get defaults(): Pick<Config['prefetch'], 'platforms' | 'frameworks' | 'referrers'> {
    return this.#parts.config;
  }

  /** Runs `work`, which receives files and keeps them in memory. Throws `TooManyRequests` for a third one at a time. */
  async receive<T>(work: () => Promise<T>): Promise<T> {
    if (this.#readings >= maxReadings) {
      throw new DomainError('TooManyRequests', 'Other files for a prefetch are being read. Try again.', {
        retryAfter: 10,
      });
    }
    this.#readings += 1;
    try {
      return await work();
    } finally {
      this.#readings -= 1;
    }
  }

  /** Starts a prefetch. Names that the account hosts are not fetched. Throws `Invalid` or `TooManyRequests`. */
  async start(accountId: number, settings: PrefetchSettings, files: readonly PrefetchFile[]): Promise<PrefetchRunItem> {
    const { table, read } = this.#parts;
    const items = await read(files.map((each) => ({ ...each, kind: settings.kind })));
    if (items.length === 0) {
      throw new DomainError('Invalid', 'The files list no package and no image from an upstream.');
    }
    const id = await table.begin(accountId, settings, files);
    const run = runForSystem('prefetch', () => inBackground(() => this.#perform(id, accountId, settings, items)));
    const tracked = run.finally(() => this.#running.delete(tracked));
    this.#running.add(tracked);
    return table.get(id);
  }

  /** Fetches what a dry run listed. Throws `NotFound` or `TooManyRequests`. */
  async fetch(accountId: number, id: string): Promise<PrefetchRunItem> {
    const { table } = this.#parts;
    const { settings } = await table.get(id);
    return this.start(accountId, { ...settings, dryRun: false }, await table.filesOf(id));
  }

  /** Ends the runs. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#running);
  }

  /** Never rejects. */
  async #perform(
    id: string,
    accountId: number,
    settings: PrefetchSettings,
    items: readonly PrefetchItem[],
  ): Promise<void> {
    const { table, config, log, now, upstreams, protocols } = this.#parts;
    const stop = new AbortController();
    const progress: PrefetchProgress = { known: 0, ended: 0, received: 0 };
    const beat = async () => {
      // While the database cannot be written the run goes on.
      if (!(await table.beat(id, progress).catch(() => true))) stop.abort();
    };
    const timer = setInterval(() => void beat(), beatEvery);
    const startedAt = performance.now();
    let state: PrefetchState;
    try {
      const report = await prefetch(
        { upstreams, protocols },
        {
          ...settings,
          accountId,
          items,
          concurrency: config.concurrency,
          rate: config.rate,
          rateLimitShare: config.rateLimitShare / 100,
          signal: this.#closing.signal,
          stop: stop.signal,
          now,
          watch: ({ known, ended, received, waiting }) => Object.assign(progress, { known, ended, received, waiting }),
        },
      );
      Object.assign(progress, { result: resultOf(report), waiting: undefined });
      // A run can end before it notices that a user has cancelled it.
      state = await this.#endedState(id, report.interrupted ? 'interrupted' : 'done');
      const seconds = (performance.now() - startedAt) / 1000;
      log.info(
        { prefetch: id, state, received: progress.received, missing: report.missing.length, seconds },
        'prefetch',
      );
    } catch (error) {
      state =
        stop.signal.aborted || this.#closing.signal.aborted ? await this.#endedState(id, 'interrupted') : 'failed';
      progress.error = error instanceof DomainError ? error.message : 'The server failed. Its log has the details.';
      if (state === 'failed') log.error({ prefetch: id, err: error }, 'a prefetch failed');
    } finally {
      clearInterval(timer);
    }
    await table
      .end(id, state, progress)
      .catch((err: unknown) => log.warn({ prefetch: id, err }, 'the end of a prefetch was not recorded'));
  }

  async #endedState(id: string, otherwise: PrefetchState): Promise<PrefetchState> {
    const isCancelled = await this.#parts.table.isCancelled(id).catch(() => false);
    return isCancelled ? 'cancelled' : otherwise;
  }
}
