import type { Logger } from 'pino';
import type { Accounts } from '../accounts/accounts.ts';
import type { Grants } from '../accounts/grants.ts';
import type { NameKind } from '../accounts/names.ts';
import type { Database } from '../database/database.ts';
import type { AffectedTest } from '../known-bad/entry.ts';
import type { KnownBad } from '../known-bad/known-bad.ts';
import type { RangeReader } from '../policy/compile.ts';
import type { ListedNames } from '../policy/listed-names.ts';
import { PullList } from '../usage/pull-list.ts';
import type { Pulls } from '../usage/pulls.ts';
import type { QuotaOwner } from '../usage/quota.ts';
import type { UsageRecord } from '../usage/record.ts';
import type { Exposable } from './exposable.ts';
import { Exposure } from './exposure.ts';
import { forget, NewlyKnown } from './newly-known.ts';
import { ObservedBills, type SharedSecrets } from './observed-bills.ts';

interface OpenParts {
  database: Database;
  usage: UsageRecord;
  pulls: Pulls;
  knownBad: KnownBad;
  listed: ListedNames;
  accounts: Accounts;
  grants: Grants;
  log: Logger;
  /** See `ObservedBills`. */
  admit: (owner: QuotaOwner, bytes: number) => Promise<void>;
  secrets: SharedSecrets;
  /** In milliseconds; 0 if nothing is recorded. */
  keepPulls: number;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** The same for deletions by age. */
  deletionTime: () => number;
}

interface OpenExposure {
  exposure: Exposure;
  bills: ObservedBills;
  /** Tells what is newly known, and deletes old rows; resolves to counts. */
  job(work: { signal: AbortSignal }): Promise<Record<string, number>>;
}

/** Opens what tells who pulled what. */
export function openExposure(
  { usage, pulls: written, knownBad, deletionTime, ...parts }: OpenParts,
  protocols: readonly Exposable[],
  readers: { readRange: RangeReader; isAffected: AffectedTest },
): OpenExposure {
  const pulls = new PullList(parts.database);
  const newlyKnown = new NewlyKnown({ ...parts, pulls, protocols });
  const { accounts, grants } = parts;
  const accountName = (id: number) => accounts.nameOf(id);
  const accountIds = async () => (await accounts.list()).map(({ id }) => id);
  const ownerOf = async (accountId: number, kind: NameKind, name: string) => {
    const { shared } = await grants.of(accountId, await grants.versionOf(accountId));
    return shared ? shared.ownerOf(accountId, kind, name) : accountId;
  };
  const flush = () => usage.flush();
  return {
    exposure: new Exposure({ pulls, flush, knownBad, protocols, accountIds, ownerOf, ...readers }),
    bills: new ObservedBills({ ...parts, pulls, protocols, accountName }),
    job: async ({ signal }) => {
      const deleted = await written.deleteOld(deletionTime(), signal, forget);
      return { ...(await newlyKnown.compare(signal)), deleted };
    },
  };
}
