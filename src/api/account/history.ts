import { z } from 'zod';
import { credentialMissing } from '../../accounts/allow.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import type { Database } from '../../database/database.ts';
import { readHistory, type HistoryEntry, type MirroredOwner, type NameOwner } from '../../history/history.ts';
import { pageQuery, readPage, type PageQuery } from '../framework/paging.ts';
import type { historySchema } from '../framework/history-schema.ts';
import { timeOf } from '../framework/schemas.ts';

/** The query of the history of an image. */
export const imageHistoryQuery = pageQuery.extend({
  kind: z
    .enum(['tag', 'manifest'], 'expected tag or manifest')
    .optional()
    .meta({ description: 'Only what tags pointed to, or only manifests' }),
});

/**
 * One page of the history of these names, the latest entry first, for an operation of `/v1`. Throws `Unauthorized` for a
 * reader who may read only mirrored content: a history shows which names are hosted.
 */
export async function historyPage(
  database: Database,
  principal: Principal,
  query: PageQuery & { kind?: 'tag' | 'manifest' | undefined },
  owners: readonly (NameOwner | MirroredOwner)[],
): Promise<z.input<typeof historySchema>> {
  if (!readsHosted(principal)) throw credentialMissing();
  const mirrored = owners.filter((each) => 'upstreamName' in each);
  const names = new Map(mirrored.map(({ upstream, upstreamName }) => [upstream, upstreamName]));
  const { entries, next_cursor } = await readPage<HistoryEntry, [number]>(query, {
    name: `history${query.kind ? ` of ${query.kind}` : ''}`,
    key: z.tuple([z.int()]),
    keyOf: ({ id }) => [id],
    read: (limit, before) => readHistory(database, owners, { limit, before: before?.[0], kind: query.kind }),
  });
  const shown = new Set(entries.filter(({ upstream }) => upstream === ''));
  for (const owner of mirrored)
    for (const each of await owner.listed(entries.filter(({ upstream }) => upstream === owner.upstream)))
      shown.add(each);
  const visible = entries.filter((each) => shown.has(each));
  const items = visible.map(({ kind, reference, digest, upstream, seenAt }) => ({
    kind,
    reference,
    digest: digest || null,
    origin: upstream === '' ? ('hosted' as const) : ('mirrored' as const),
    upstream: names.get(upstream) ?? null,
    seen_at: timeOf(seenAt),
  }));
  return { items, next_cursor };
}
