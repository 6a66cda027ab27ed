import type { Database, Transaction } from '../database/database.ts';

/** What a reference of a history is: a mirrored package version, a manifest by its digest, or a tag. */
export type ReferenceKind = 'version' | 'manifest' | 'tag';

/** Whose name it is: of an account, or of an upstream and so of all accounts. */
export interface NameOwner {
  /** 0 for mirrored content. */
  accountId: number;
  /** The upstream's id; empty for hosted content. */
  upstream: string;
  /** The package's key, or the repository as its owner names it. */
  name: string;
}

/** A name of an upstream, with the name under which the upstream is shown. */
export interface MirroredOwner extends NameOwner {
  upstreamName: string;
}

/** A reference and the content that it has. */
export interface Sighting {
  kind: ReferenceKind;
  reference: string;
  /** Empty if the reference was deleted. */
  digest: string;
}

/** A line of a history. */
export interface HistoryEntry extends Sighting {
  id: number;
  upstream: string;
  /** Milliseconds since 1970 UTC. */
  seenAt: number;
}

/**
 * Appends what was not recorded yet: a reference seen for the first time here, or with another digest than before. Nothing
 * is ever changed or removed. Of two instances that record the same at once, both may append it.
 */
export async function record(
  tx: Transaction,
  { accountId, upstream, name }: NameOwner,
  sightings: readonly Sighting[],
  now: number,
): Promise<void> {
  for (const { kind, reference, digest } of sightings) {
    const key = [accountId, upstream, name, kind, reference];
    const last = await tx.get<{ digest: string }>(
      `SELECT digest FROM history WHERE account_id = ? AND upstream = ? AND name = ? AND kind = ? AND reference = ?
       ORDER BY id DESC LIMIT 1`,
      key,
    );
    if (last?.digest === digest || (!last && digest === '')) continue;
    await tx.insertNew('history', [{ account_id: accountId, upstream, name, kind, reference, digest, seen_at: now }]);
  }
}

/** Up to `limit` entries of these names, the latest first, before the entry with the id `before`. */
export async function readHistory(
  database: Database,
  owners: readonly NameOwner[],
  limit: number,
  before = Number.MAX_SAFE_INTEGER,
): Promise<HistoryEntry[]> {
  if (owners.length === 0) return [];
  const names = owners.map(() => '(account_id = ? AND upstream = ? AND name = ?)').join(' OR ');
  const rows = await database.select<Omit<HistoryEntry, 'seenAt'> & { seen_at: number }>(
    `SELECT id, upstream, kind, reference, digest, seen_at FROM history WHERE (${names}) AND id < ?
     ORDER BY id DESC LIMIT ?`,
    [...owners.flatMap(({ accountId, upstream, name }) => [accountId, upstream, name]), before, limit],
  );
  return rows.map(({ seen_at: seenAt, ...row }) => ({ ...row, seenAt }));
}
