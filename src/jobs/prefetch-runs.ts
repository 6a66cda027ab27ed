import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import { prefetch, type PrefetchParts } from '../prefetch/prefetch.ts';
import type { PrefetchItem } from '../prefetch/item.ts';
import { BackgroundRuns, type RunSignals } from './background-runs.ts';
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

/** Most readings of files at a time, in this process. */
const maxReadings = 2;

/** Prefetches that users start from files. Each runs in the process that got it, and ends with it. */
export class PrefetchRuns {
  readonly #parts: PrefetchRunsParts;
  readonly #background: BackgroundRuns;
  #readings = 0;

  constructor(parts: PrefetchRunsParts) {
    this.#parts = parts;
    this.#background = new BackgroundRuns('prefetch', parts.table.rows, parts.log);
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
    const progress: PrefetchProgress = { known: 0, ended: 0, received: 0 };
    const facts: Record<string, unknown> = {};
    this.#background.start(id, progress, {
      run: (signals) => this.#perform({ id, accountId, settings, items, progress, facts }, signals),
      facts,
    });
    return table.get(id);
  }

  /** Fetches what a dry run listed. Throws `NotFound` or `TooManyRequests`. */
  async fetch(accountId: number, id: string): Promise<PrefetchRunItem> {
    const { table } = this.#parts;
    const { settings } = await table.get(id);
    return this.start(accountId, { ...settings, dryRun: false }, await table.filesOf(id));
  }

  /** Ends the runs. */
  close(): Promise<void> {
    return this.#background.close();
  }

  async #perform(
    { id, accountId, settings, items, progress, facts }: Performed,
    { stop, closing }: RunSignals,
  ): Promise<PrefetchState> {
    const { table, config, now, upstreams, protocols } = this.#parts;
    const startedAt = performance.now();
    const report = await prefetch(
      { upstreams, protocols },
      {
        ...settings,
        accountId,
        items,
        concurrency: config.concurrency,
        rate: config.rate,
        rateLimitShare: config.rateLimitShare / 100,
        signal: closing,
        stop,
        now,
        watch: ({ known, ended, received, waiting }) => Object.assign(progress, { known, ended, received, waiting }),
      },
    );
    Object.assign(progress, { result: resultOf(report), waiting: undefined });
    const seconds = (performance.now() - startedAt) / 1000;
    Object.assign(facts, { received: progress.received, missing: report.missing.length, seconds });
    if (report.interrupted) return 'interrupted';
    // A run can end before it notices that a user has cancelled it.
    return (await table.rows.isCancelled(id).catch(() => false)) ? 'cancelled' : 'done';
  }
}

interface Performed {
  id: string;
  accountId: number;
  settings: PrefetchSettings;
  items: readonly PrefetchItem[];
  progress: PrefetchProgress;
  /** What the log says of its end. */
  facts: Record<string, unknown>;
}
