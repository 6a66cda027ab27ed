import type { Database } from '../../database/database.ts';
import type { Mirror } from '../../mirror/mirror.ts';
import { storedOnly, type MirrorReader } from '../../mirror/stored-only.ts';
import type { StoredNames } from '../../mirror/policy/stored-names.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import { withVersions } from '../format/merge.ts';
import { claimedAmong } from '../hosted/claims.ts';
import type { FeedViews } from './feed-view.ts';
import type { PackageGate } from './package-gate.ts';

/** Packages of which something is stored. `views` read only what is stored, and those of `asking` ask upstreams. */
export function storedLists(database: Database, views: FeedViews, asking: FeedViews): StoredNames {
  return {
    kind: 'package',
    entryKind: 'flat',
    contentKind: 'nupkg',
    hasVersions: true,
    upstreams: async (accountId) => (await views.of(accountId)).mirror.origin.all,
    shownName: (_upstream, name) => name,
    find: async (accountId, upstream, { name: key }) => {
      const { mirror } = await views.of(accountId);
      if (!mirror.origin.isMerged(key) && (await claimedAmong(database, accountId, [key])).size > 0) return undefined;
      const owner = await unlessUpstreamFails(() => mirror.owner(key));
      if (owner?.upstream !== upstream) return undefined;
      return {
        name: mirror.nameOf(upstream, key),
        asking: (await asking.of(accountId)).mirror.nameOf(upstream, key),
        references: async () => {
          const offered = await unlessUpstreamFails(() => mirror.allVersions(owner, key));
          return offered && withVersions(offered.value, await mirror.withdrawn.keys(upstream, key), String);
        },
      };
    },
  };
}

/** The parts for a view of what is stored: it asks no upstream, records nothing, and does without advisories that are not stored. */
export function partsOfStored(mirror: Mirror, gate: PackageGate): { mirror: MirrorReader; gate: PackageGate } {
  const { sightings } = gate;
  const stored: PackageGate = {
    ...gate,
    sightings: {
      firstSeen: (...asked) => sightings.firstSeen(...asked),
      republished: (name) => sightings.republished(name),
      republishedAt: (...asked) => sightings.republishedAt(...asked),
      firstListed: (name, versions) => sightings.firstSeen(name, 'listed', versions),
    },
    advisoriesOf: async (key) => (await unlessUpstreamFails(() => gate.advisoriesOf(key))) ?? [],
  };
  return { mirror: storedOnly(mirror), gate: stored };
}
