import { historyLines } from '../history/history.ts';
import type { DescribedEntry } from '../mirror/fetch/resource.ts';
import { nameOwner, type EntryKey } from '../mirror/store/entries.ts';
import type { Withdrawals } from '../mirror/withdrawals.ts';
import type { NeededEntry } from '../prefetch/report.ts';
import type { Database } from '../database/database.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { pause } from '../runtime/event-loop.ts';
import { sortedInTurns } from '../runtime/sorted.ts';
import type { BundleEntry } from './format.ts';
import { bundledName } from './upstream-names.ts';

/** How the protocols describe the entries of their upstreams. */
type DescribeEntry = (
  upstream: Upstream,
  key: Omit<EntryKey, 'upstream'>,
  attributes: Readonly<Record<string, string>>,
) => DescribedEntry | undefined;

/** What bundles need of the mirror. */
export interface BundleMirror {
  database: Database;
  upstreams: readonly Upstream[];
  describe: DescribeEntry;
  withdrawals: Withdrawals;
}

/** The entries of a bundle, in a fixed order, with what the history of this installation says about them; with the `hosted` ones. */
export async function collectEntries(
  { database, upstreams, describe, withdrawals }: BundleMirror,
  needed: Iterable<NeededEntry>,
  hosted: AsyncIterable<BundleEntry>,
): Promise<BundleEntry[]> {
  const byId = new Map(upstreams.map((each) => [each.id, each]));
  const entries = new Map<string, BundleEntry>();
  for (const { key, metadata } of needed) {
    await pause();
    const upstream = byId.get(key.upstream);
    const described = upstream && describe(upstream, key, metadata.attributes);
    if (!described) continue;
    const seen = described.history?.(metadata) ?? [];
    const lines = seen.length === 0 ? [] : await historyLines(database, nameOwner(key), seen);
    for (const each of [key, ...(described.aliases?.(metadata) ?? [])]) {
      const withdrawn = (await withdrawals.of(each)).find(({ reference }) => reference === each.reference);
      const entry: BundleEntry = {
        protocol: upstream.config.kind,
        upstream: bundledName(upstream, upstreams),
        kind: each.kind,
        name: each.name,
        reference: each.reference,
        digest: metadata.digest,
        size: metadata.size,
        type: metadata.type,
        etag: metadata.etag,
        modified: metadata.lastModified,
        attributes: metadata.attributes,
        validated_at: metadata.validatedAt,
        seen: each === key ? lines : lines.filter(({ reference }) => reference === each.reference),
        ...(withdrawn && { withdrawn: { missingAt: withdrawn.missingAt, withdrawnAt: withdrawn.withdrawnAt } }),
      };
      const id = placeOf(entry);
      if (each === key || !entries.has(id)) entries.set(id, entry);
    }
  }
  for await (const entry of hosted) entries.set(placeOf(entry), entry);
  const sorted = await sortedInTurns([...entries], ([one], [other]) => (one < other ? -1 : 1));
  return sorted.map(([, entry]) => entry);
}

/** The place of an entry in the order of a bundle; two entries have different ones. */
function placeOf({ protocol, account, upstream, kind, name, reference }: BundleEntry): string {
  return JSON.stringify([protocol, account, upstream, kind, name, reference]);
}
