import type { Admission, KnownAdvisory, MirroredName, ReferenceFacts, Sibling } from '../../mirror/policy/admission.ts';
import type { Sightings } from '../../mirror/store/sightings.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import { fixesAmong } from './fixes.ts';
import type { Owner } from './package-mirror.ts';
import type { WithdrawnVersions } from './withdrawn-versions.ts';

/** What decides which versions an account gets. */
export interface PackageGate {
  admission: Admission;
  sightings: Pick<Sightings, 'firstSeen' | 'firstListed' | 'republished' | 'republishedAt'>;
  accountId: number;
  /** As `datesOf` in `package-dates.ts`. */
  datesOf(
    owner: Owner,
    key: string,
    settledBefore: number,
  ): Promise<ReadonlyMap<string, number | undefined> | undefined>;
  /** As `KnownAdvisories`. */
  advisoriesOf(key: string): Promise<readonly KnownAdvisory[]>;
  /** As `siblingsOf` in `fixes.ts`. */
  siblingsOf(owner: Owner, key: string, fix: string, predecessor: string): Promise<readonly Sibling[]>;
}

/** A package as policies see it. */
export function packageName(
  gate: PackageGate,
  withdrawn: WithdrawnVersions,
  upstream: Upstream,
  key: string,
): MirroredName {
  const name = { upstream: upstream.id, name: key };
  const factsOf = async (versions: readonly string[]): Promise<ReadonlyMap<string, ReferenceFacts>> => {
    const seen = await gate.sightings.firstSeen(name, 'version', versions);
    return new Map([...seen].map(([version, firstSeenAt]) => [version, { firstSeenAt }]));
  };
  return {
    accountId: gate.accountId,
    upstream,
    kind: 'package',
    name: key,
    shown: [key],
    facts: {
      of: factsOf,
      listed: (versions) => gate.sightings.firstListed(name, versions),
      published: (settledBefore) => gate.datesOf({ upstream }, key, settledBefore),
      withdrawn: async () => {
        const times = await withdrawn.times(upstream, key);
        return times.size === 0 ? undefined : async () => times;
      },
      republished: async () => {
        const times = await gate.sightings.republished({ ...name, kind: 'nupkg' });
        return times.size === 0 ? undefined : async () => times;
      },
      advisories: () => gate.advisoriesOf(key),
      fixes: (held, versions) =>
        unlessUpstreamFails(async () => fixesAmong(await gate.advisoriesOf(key), held, versions)),
      siblings: (fix, predecessor) => unlessUpstreamFails(() => gate.siblingsOf({ upstream }, key, fix, predecessor)),
    },
  };
}
