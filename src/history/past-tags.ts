import type { Database } from '../database/database.ts';
import type { NameOwner } from './history.ts';

/** What a tag had at a time, and when it got that. Times are milliseconds since 1970 UTC. */
interface PastTag {
  /** Empty if it was deleted. */
  digest: string;
  seenAt: number;
}

/** What a tag had at `until`; undefined if it was not seen by then. */
export async function tagAt(
  database: Database,
  { accountId, upstream, name }: NameOwner,
  tag: string,
  until: number,
): Promise<PastTag | undefined> {
  return database.get<PastTag & Record<string, string | number>>(
    `SELECT digest, seen_at AS seenAt FROM history WHERE account_id = ? AND upstream = ? AND name = ? AND kind = 'tag'
     AND reference = ? AND seen_at <= ? ORDER BY id DESC LIMIT 1`,
    [accountId, upstream, name, tag, until],
  );
}

/** Up to `limit` tags after `last` that were seen by `until`, in byte order, each with what it had then. */
export async function tagsAt(
  database: Database,
  { accountId, upstream, name }: NameOwner,
  until: number,
  limit: number,
  last: string,
): Promise<{ reference: string; digest: string }[]> {
  return database.select<{ reference: string; digest: string }>(
    `SELECT h.reference, h.digest FROM (
       SELECT MAX(id) AS id FROM history WHERE account_id = ? AND upstream = ? AND name = ? AND kind = 'tag'
       AND reference > ? AND seen_at <= ? GROUP BY reference ORDER BY reference LIMIT ?) AS latest
     JOIN history h ON h.id = latest.id ORDER BY h.reference`,
    [accountId, upstream, name, last, until, limit],
  );
}
