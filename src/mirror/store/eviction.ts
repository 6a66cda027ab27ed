import { placeholders, type Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import { BackgroundTask } from '../../runtime/background-task.ts';
import { entryId, type Entries, type EntryKey } from './entries.ts';

interface EvictionOptions {
  /** The limit for the bytes of all content together, without that of `offline`. */
  maxSize: number;
  /** Upstreams that are set to offline. Their entries could not be fetched again, so they stay and are not counted. */
  offline: readonly string[];
  /** All upstreams of the settings: what they have withdrawn stays, and is counted. */
  upstreams: readonly string[];
  /** Passes the keys of the entries that withdrawn content needs besides its own. */
  contentsOfWithdrawn: (use: (keys: readonly EntryKey[]) => Promise<void>) => Promise<void>;
  dryRun: boolean;
  signal: AbortSignal;
  say: (line: string) => void;
}

interface EvictionRow {
  id: string;
  upstream: string;
  kind: string;
  name: string;
  reference: string;
  size_bytes: number;
  used_at: number;
  /** Whether no entry used later has the same content. */
  last: number;
}

const page = 200;

/**
 * Drops the least recently used entries until the content of all entries is within `maxSize`, each content counted once.
 * Resolves to what was dropped, and the bytes that are left. Only rows are dropped. The collector removes the bytes, unless something else refers to them.
 */
export async function evict(
  database: Database,
  entries: Entries,
  { maxSize, offline, upstreams, contentsOfWithdrawn, dryRun, signal, say }: EvictionOptions,
): Promise<{ entries: number; bytes: number; left: number }> {
  let total = await sizeOfAll(database, offline, signal);
  const evicted = { entries: 0, bytes: 0 };
  const pace = new Pace(signal);
  let after = { used_at: 0, id: '' };
  if (total > maxSize) await new BackgroundTask(signal).run(() => writeKept(database, contentsOfWithdrawn));
  const stays = (table: string) =>
    `(${offlineIn(table, offline)} OR (${withdrawnIn(table, upstreams)})
      OR EXISTS (SELECT 1 FROM mirror_counted_on c WHERE c.digest = ${table}.digest))`;
  const staying = [...offline, ...upstreams];
  while (total > maxSize) {
    const rows: EvictionRow[] = await database.select<EvictionRow>(
      `SELECT e.id, e.upstream, e.kind, e.name, e.reference, e.size_bytes, e.used_at,
         CASE WHEN EXISTS (SELECT 1 FROM mirror_entries o WHERE o.digest = e.digest
           AND (${stays('o')} OR o.used_at > e.used_at OR (o.used_at = e.used_at AND o.id > e.id))) THEN 0 ELSE 1 END AS last
       FROM mirror_entries e WHERE e.used_at >= ? AND (e.used_at > ? OR e.id > ?) AND NOT ${stays('e')}
       ORDER BY e.used_at, e.id LIMIT ${page}`,
      [...staying, after.used_at, after.used_at, after.id, ...staying],
    );
    if (rows.length === 0) break;
    const candidates: EvictionRow[] = [];
    for (const row of rows) {
      if (total <= maxSize) break;
      candidates.push(row);
      if (row.last === 1) total -= row.size_bytes;
    }
    const dropped = dryRun ? new Set(candidates.map(({ id }) => id)) : await entries.drop(candidates, upstreams);
    for (const { id, upstream, kind, name, reference, size_bytes, last } of candidates) {
      if (!dropped.has(id)) continue;
      say(`${upstream} ${kind} ${name}${reference === '' ? '' : ` ${reference}`}`);
      evicted.entries += 1;
      if (last === 1) evicted.bytes += size_bytes;
    }
    after = rows.at(-1)!;
    await pace.step();
  }
  return { ...evicted, left: total };
}

async function sizeOfAll(database: Database, offline: readonly string[], signal: AbortSignal): Promise<number> {
  const pace = new Pace(signal);
  const step = 2000;
  let total = 0;
  for (let after = ''; ;) {
    const part = await database.get<{ contents: number; last: Digest | null; bytes: number | null }>(
      `SELECT COUNT(*) AS contents, MAX(digest) AS last, SUM(size_bytes) AS bytes FROM (
         SELECT digest, MAX(size_bytes) AS size_bytes FROM mirror_entries e WHERE digest > ?
         AND NOT EXISTS (SELECT 1 FROM mirror_entries o WHERE o.digest = e.digest AND ${offlineIn('o', offline)})
         GROUP BY digest ORDER BY digest LIMIT ?) AS page`,
      [after, ...offline, step],
    );
    total += part?.bytes ?? 0;
    if (!part?.last || part.contents < step) return total;
    after = part.last;
    await pace.step();
  }
}

function offlineIn(table: string, offline: readonly string[]): string {
  return offline.length === 0 ? '1 = 0' : `${table}.upstream IN (${placeholders(offline)})`;
}

function withdrawnIn(table: string, upstreams: readonly string[]): string {
  if (upstreams.length === 0) return '1 = 0';
  return `${table}.upstream IN (${placeholders(upstreams)})
    AND (EXISTS (SELECT 1 FROM mirror_withdrawn w WHERE w.id = ${table}.id)
      OR EXISTS (SELECT 1 FROM mirror_kept k WHERE k.id = ${table}.id))`;
}

/** Writes the ids of what withdrawn content needs anew. Content may have come, or come back, since the last eviction. */
async function writeKept(
  database: Database,
  contentsOfWithdrawn: EvictionOptions['contentsOfWithdrawn'],
): Promise<void> {
  await database.transaction((tx) => tx.run('DELETE FROM mirror_kept'), { fleeting: true });
  await contentsOfWithdrawn(async (keys) => {
    for (let start = 0; start < keys.length; start += page) {
      const rows = keys.slice(start, start + page).map((key) => ({ id: entryId(key) }));
      await database.transaction((tx) => tx.insertNew('mirror_kept', rows), { fleeting: true });
    }
  });
}
