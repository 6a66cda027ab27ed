import { prefetch, type PrefetchOptions } from '../../src/prefetch/prefetch.ts';
import { inputs } from '../../src/server/installation.ts';
import type { PrefetchReport } from '../../src/prefetch/report.ts';
import type { PrefetchItem } from '../../src/prefetch/item.ts';
import type { TestServer } from './server.ts';

/** The items of a plain list. */
export function wishesOf(...lines: string[]): PrefetchItem[] {
  return wishesIn('list.txt', lines.join('\n'));
}

export function wishesIn(file: string, text: string): PrefetchItem[] {
  return inputs.read({ file, text, values: new Map() });
}

/** Options for a part of a prefetch without a server: one item at a time, without a limit of the rate. */
export function prefetchOptions(accountId: number, more: Partial<PrefetchOptions> = {}): PrefetchOptions {
  return {
    accountId,
    items: [],
    platforms: [],
    frameworks: [],
    referrers: false,
    dryRun: false,
    concurrency: 1,
    rateLimitShare: 1,
    signal: new AbortController().signal,
    now: () => 0,
    ...more,
  };
}

/** Prefetches into a test server, in the process of the test. */
export function prefetchInto(
  { installation, clock }: TestServer,
  items: readonly PrefetchItem[],
  options: Partial<PrefetchOptions> = {},
): Promise<PrefetchReport> {
  const { core, protocols } = installation;
  return prefetch(
    { upstreams: core.upstreams, protocols },
    {
      accountId: core.defaultAccount.id,
      items,
      platforms: [],
      frameworks: [],
      referrers: true,
      dryRun: false,
      concurrency: 4,
      rateLimitShare: 0.8,
      signal: new AbortController().signal,
      now: clock.time,
      patience: 1500,
      ...options,
    },
  );
}

/** `what: reason` of all missing content, in order. */
export function missingIn({ missing }: PrefetchReport): string[] {
  return missing.map(({ what, reason }) => `${what}: ${reason}`).sort();
}
