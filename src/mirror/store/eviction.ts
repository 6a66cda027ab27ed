import { placeholders, type Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import type { Entries } from './entries.ts';

interface EvictionOptions {
  /** The limit for the bytes of all entries together, without those of `offline`. */
  maxSize: number;
  /** Upstreams that are set to offline. Their entries could not be fetched again, so they stay and are not counted. */
  offline: readonly string[];
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
 * Only rows are dropped. The collector removes the bytes, unless something else refers to them.
 */
export async function evict(
  database: Database,
  entries: Entries,
  { maxSize, offline, dryRun, signal, say }: EvictionOptions,
): Promise<{ entries: number; bytes: number }> {
  let total = await sizeOfAll(database, offline, signal);
  const evicted = { entries: 0, bytes: 0 };
  const pace = new Pace(signal);
  let after = { used_at: 0, id: '' };
  while (total > maxSize) {
    const rows: EvictionRow[] = await database.select<EvictionRow>(
      `SELECT e.id, e.upstream, e.kind, e.name, e.reference, e.size_bytes, e.used_at,
         CASE WHEN EXISTS (SELECT 1 FROM mirror_entries o WHERE o.digest = e.digest
           AND (${offlineIn('o', offline)} OR o.used_at > e.used_at OR (o.used_at = e.used_at AND o.id > e.id))) THEN 0 ELSE 1 END AS last
       FROM mirror_entries e WHERE e.used_at >= ? AND (e.used_at > ? OR e.id > ?) AND NOT (${offlineIn('e', offline)})
       ORDER BY e.used_at, e.id LIMIT ${page}`,
      [...offline, after.used_at, after.used_at, after.id, ...offline],
    );
    if (rows.length === 0) break;
    const candidates: EvictionRow[] = [];
    for (const row of rows) {
      if (total <= maxSize) break;
      candidates.push(row);
      if (row.last === 1) total -= row.size_bytes;
    }
    const dropped = dryRun ? new Set(candidates.map(({ id }) => id)) : await entries.drop(candidates);
    for (const { id, upstream, kind, name, reference, size_bytes, last } of candidates) {
      if (!dropped.has(id)) continue;
      say(`${upstream} ${kind} ${name}${reference === '' ? '' : ` ${reference}`}`);
      evicted.entries += 1;
      if (last === 1) evicted.bytes += size_bytes;
    }
    after = rows.at(-1)!;
    await pace.step();
  }
  return evicted;
}

async function sizeOfAll(database: Database, offline: readonly string[], signal: AbortSignal): Promise<number> {
  const pace = new Pace(signal);
  const step = 2000;
  let total = 0;
  for (let after = ''; ;) {
    const part = await database.get<{ contents: number; last: Digest | null; bytes: number | null }>(
      `SELECT COUNT(*) AS contents, MAX(digest) AS last, SUM(size_bytes) AS bytes FROM (
         SELECT digest, MAX(size_bytes) AS size_bytes FROM mirror_entries e
         WHERE digest > ? AND NOT (${offlineIn('e', offline)})
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
