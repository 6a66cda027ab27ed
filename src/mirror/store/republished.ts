import type { Database, Transaction } from '../../database/database.ts';
import { recordFrom } from '../../events/record.ts';
import { firstFiles, type SeenReference } from '../../history/history.ts';
import { systemOrigin } from '../../runtime/caller.ts';
import type { EntryKey } from './entries.ts';

/** Without Redis, other instances see a change after this time at the latest; milliseconds. */
const lag = 5000;

/**
 * Notes that an upstream sent other files for a version than the first that were stored here, with one event for each other content.
 * Call it after the sighting was recorded.
 */
export async function noteRepublished(
  tx: Transaction,
  { id, upstream, kind, name }: EntryKey & { id: string },
  { reference, digest, files }: SeenReference,
  now: number,
): Promise<void> {
  if (!files) return;
  const first = await firstFiles(tx, { accountId: 0, upstream, name }, reference);
  if (first === undefined || first === files.digest) return;
  const known = await tx.get<{ digest: string }>('SELECT digest FROM mirror_republished WHERE id = ?', [id]);
  if (known?.digest === digest) return;
  const row = { id, upstream, kind, name, reference, digest, seen_at: now };
  await tx.upsert('mirror_republished', ['id'], [row], 'digest = new.digest, seen_at = new.seen_at');
  const subject = { kind: files.subject, name, reference };
  const event = {
    type: 'upstream.republished',
    accountId: 0,
    subject,
    details: { upstream: files.from, digest },
  } as const;
  await recordFrom(tx, event, now, systemOrigin(null));
}

/** The stored references of a name with other files than the first that were stored here, and since when that is known. */
export async function republishedOf(
  database: Database,
  { upstream, kind, name }: Omit<EntryKey, 'reference'>,
): Promise<ReadonlyMap<string, number>> {
  // One row for all names: usually there are none, and then no name needs a query of its own.
  const any = await database.getCached('SELECT 1 AS one FROM mirror_republished LIMIT 1', [], { lag });
  if (!any) return new Map();
  const rows = await database.selectCached<{ reference: string; seenAt: number }>(
    `SELECT r.reference, r.seen_at AS seenAt FROM mirror_republished r
     INNER JOIN mirror_entries e ON e.id = r.id AND e.digest = r.digest
     WHERE r.kind = ? AND r.name = ? AND r.upstream = ?`,
    [kind, name, upstream],
    { lag },
  );
  return new Map(rows.map(({ reference, seenAt }) => [reference, seenAt]));
}

/** Since when it is known that this content is not the first of a reference; undefined if it is, or if nothing is known. */
export async function republishedAt(database: Database, id: string, digest: string): Promise<number | undefined> {
  const sql = 'SELECT seen_at AS seenAt FROM mirror_republished WHERE id = ? AND digest = ?';
  return (await database.get<{ seenAt: number }>(sql, [id, digest]))?.seenAt;
}
