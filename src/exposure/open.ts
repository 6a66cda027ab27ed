import type { Database } from '../database/database.ts';
import type { AffectedTest } from '../known-bad/entry.ts';
import type { KnownBad } from '../known-bad/known-bad.ts';
import type { RangeReader } from '../policy/compile.ts';
import type { ListedNames } from '../policy/listed-names.ts';
import { PullList } from '../usage/pull-list.ts';
import type { Pulls } from '../usage/pulls.ts';
import type { UsageRecord } from '../usage/record.ts';
import type { Exposable } from './exposable.ts';
import { Exposure } from './exposure.ts';
import { forget, NewlyKnown } from './newly-known.ts';

interface OpenParts {
  database: Database;
  usage: UsageRecord;
  pulls: Pulls;
  knownBad: KnownBad;
  listed: ListedNames;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** The same for deletions by age. */
  deletionTime: () => number;
}

interface OpenExposure {
  exposure: Exposure;
  /** Tells what is newly known, and deletes old rows; resolves to counts. */
  job(work: { signal: AbortSignal }): Promise<Record<string, number>>;
}

/** Opens what tells who pulled what. */
export function openExposure(
  { database, usage, pulls: written, knownBad, listed, now, deletionTime }: OpenParts,
  protocols: readonly Exposable[],
  readers: { readRange: RangeReader; isAffected: AffectedTest },
): OpenExposure {
  const pulls = new PullList(database);
  const newlyKnown = new NewlyKnown({ database, pulls, listed, protocols, now });
  return {
    exposure: new Exposure({ pulls, flush: () => usage.flush(), knownBad, protocols, ...readers }),
    job: async ({ signal }) => {
      const deleted = await written.deleteOld(deletionTime(), signal, forget);
      return { ...(await newlyKnown.compare(signal)), deleted };
    },
  };
}
