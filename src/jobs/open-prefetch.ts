import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { Inputs } from '../prefetch/inputs.ts';
import type { PrefetchParts } from '../prefetch/prefetch.ts';
import { readInThread } from '../prefetch/reader-thread.ts';
import { PrefetchRuns } from './prefetch-runs.ts';
import { PrefetchTable } from './prefetch-table.ts';

interface Parts extends PrefetchParts {
  database: Database;
  config: Config;
  inputs: Inputs;
  log: Logger;
  now: () => number;
}

/** The prefetches that users start from files, for `/v1`. */
export function openPrefetches({ database, config, inputs, log, now, upstreams, protocols }: Parts) {
  const runs = new PrefetchRuns({
    upstreams,
    protocols,
    table: new PrefetchTable(database, now),
    read: (files) => readInThread(inputs.modules, files),
    config: config.prefetch,
    log,
    now,
  });
  return { runs, kinds: inputs.kinds, idle: config.limits.uploadIdle };
}
