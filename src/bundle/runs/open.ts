import type { Logger } from 'pino';
import type { Config } from '../../config/schema.ts';
import type { RepeatedWork } from '../../jobs/repeated-work.ts';
import type { Entries } from '../../mirror/store/entries.ts';
import { allAccounts, type Policies } from '../../policy/policies.ts';
import type { Inputs } from '../../prefetch/inputs.ts';
import { readInThread } from '../../prefetch/reader-thread.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import { Bundles } from '../bundles.ts';
import type { BundleMirror } from '../collect.ts';
import { policyIn, type BundleBad } from '../format.ts';
import type { HostedParts } from '../hosted.ts';
import { TrustedKeys } from '../trust.ts';
import { BundleRunFiles } from './run-files.ts';
import { BundleRuns } from './bundle-runs.ts';
import { BundleRunTable } from './run-table.ts';

interface Parts {
  core: Pick<BundleMirror, 'database' | 'upstreams'> & {
    accounts: HostedParts['accounts'];
    config: Config;
    blobs: BlobStore;
    entries: Entries;
    mirror: Pick<BundleMirror, 'withdrawals'>;
    policies: Policies;
    knownBad: { records: () => Promise<BundleBad[]> };
    log: Logger;
    now: () => number;
  };
  protocols: ConstructorParameters<typeof BundleRuns>[0]['protocols'];
  describe: BundleMirror['describe'];
  inputs: Inputs;
  /** The folder of the segments. */
  folder: string;
}

/** What `/v1` needs for bundles. */
export interface OpenBundles {
  runs: BundleRuns;
  bundles: Bundles;
  trust: TrustedKeys;
  now: () => number;
  /** Short work that each instance repeats. */
  chores: readonly RepeatedWork[];
}

/** The bundles that operators make and import by `/v1`. */
export function openBundleRuns({ core, protocols, describe, inputs, folder }: Parts): OpenBundles {
  const { accounts, config, database, upstreams, blobs, entries, mirror, log, now } = core;
  const trust = new TrustedKeys(database, now);
  const policy = async () => policyIn((await core.policies.get(allAccounts))?.written);
  const runs = new BundleRuns({
    accounts,
    database,
    upstreams,
    describe,
    blobs,
    entries,
    trust,
    protocols,
    policy,
    knownBad: () => core.knownBad.records(),
    config,
    log,
    now,
    withdrawals: mirror.withdrawals,
    table: new BundleRunTable(database, now),
    files: new BundleRunFiles(folder, blobs),
    read: (files) => readInThread(inputs.modules, files),
  });
  const clean = { interval: 600_000, run: () => runs.clean(), failure: 'old files of bundles were not removed' };
  return { runs, bundles: new Bundles(database, now), trust, now, chores: [clean] };
}
