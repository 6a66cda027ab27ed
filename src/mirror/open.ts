import type { Database } from '../database/database.ts';
import type { UpstreamFigures } from '../metrics/upstreams.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { ListedKinds } from './store/entry-kinds.ts';
import type { Mirror } from './mirror.ts';
import { MirrorOverview } from './overview.ts';
import { MirrorTotals } from './store/totals.ts';

interface OpenOverviewParts {
  database: Database;
  mirror: Mirror;
  upstreams: readonly Upstream[];
  now: () => number;
}

/** Opens the overview of the mirror; `stack` closes it. `protocols` says which entries each kind of upstream has. */
export function openOverview(
  parts: OpenOverviewParts,
  protocols: readonly { kind: string; entries: ListedKinds; probe: (upstream: Upstream) => URL }[],
  figures: () => Promise<UpstreamFigures[]>,
  stack: AsyncDisposableStack,
): MirrorOverview {
  const kinds = new Map(protocols.map(({ kind, entries }) => [kind, entries]));
  const totals = new MirrorTotals({ ...parts, kinds: ({ config }) => kinds.get(config.kind)!.kinds });
  stack.defer(() => totals.close());
  const probe = (upstream: Upstream) => protocols.find(({ kind }) => kind === upstream.config.kind)!.probe(upstream);
  return new MirrorOverview({ ...parts, totals, kinds, figures, probe });
}
