import { prefetch, type PrefetchOptions } from '../../src/prefetch/prefetch.ts';
import { inputs } from '../../src/server/server.ts';
import type { Report } from '../../src/prefetch/report.ts';
import type { Requirement } from '../../src/prefetch/requirement.ts';
import type { TestServer } from './server.ts';

/** The requirements of a plain list. */
export function wishesOf(...lines: string[]): Requirement[] {
  return wishesIn('list.txt', lines.join('\n'));
}

export function wishesIn(file: string, text: string): Requirement[] {
  return inputs.read({ file, text, values: new Map() });
}

/** Prefetches into a test server, in the process of the test. */
export function prefetchInto(
  { installation, clock }: TestServer,
  requirements: readonly Requirement[],
  options: Partial<PrefetchOptions> = {},
): Promise<Report> {
  const { core, protocols } = installation;
  return prefetch(
    { upstreams: core.upstreams, protocols },
    {
      accountId: core.defaultAccount.id,
      requirements,
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
export function missingIn({ missing }: Report): string[] {
  return missing.map(({ what, reason }) => `${what}: ${reason}`).sort();
}
