import { placeholders, type Database, type Value } from '../../database/database.ts';
import type { ListTotal } from '../../runtime/ranked.ts';
import { inTime } from '../../runtime/in-time.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { EntryKinds } from './entry-kinds.ts';

/** What is stored of an upstream. */
export interface CachedTotals {
  entries: number;
  /** Each content of a kind counted once. */
  bytes: number;
  /** Documents that are too old to be served while the upstream fails. */
  expired: number;
  /** Bytes of content that no client has used for 90 days. */
  unusedBytes: number;
  /** Entries and bytes by kind. */
  byKind: ReadonlyMap<string, ListTotal>;
  /** When the upstream last sent or confirmed one of them; 0 without one. */
  confirmedAt: number;
  /** When they were counted; milliseconds since 1970 UTC. */
  asOf: number;
}

interface TotalsRow {
  upstream: string;
  kind: string;
  entries: number;
  bytes: number;
  expired: number | null;
  confirmed: number;
  unused: number;
}

const unusedAfter = 90 * 86_400_000;

/** Entries that one query adds up. */
const page = 2000;
/** Counts are repeated at most once in this time, and in twenty times the time that they took; milliseconds. */
const minPause = 60_000;
const pauseFactor = 20;
/** How long a reader waits for the first count; milliseconds. */
const patience = 1000;

/** Counts the entries of all upstreams: page by page, with pauses for requests, and not for each reader. */
export class MirrorTotals {
  readonly #database: Database;
  readonly #upstreams: readonly Upstream[];
  readonly #kinds: (upstream: Upstream) => EntryKinds;
  readonly #now: () => number;
  readonly #ending = new AbortController();
  #last: ReadonlyMap<Upstream, CachedTotals> | undefined;
  #running: Promise<void> | undefined;
  #next = 0;

  constructor(parts: {
    database: Database;
    upstreams: readonly Upstream[];
    kinds: (upstream: Upstream) => EntryKinds;
    now: () => number;
  }) {
    this.#database = parts.database;
    this.#upstreams = parts.upstreams;
    this.#kinds = parts.kinds;
    this.#now = parts.now;
  }

  /** The last count. Undefined if the first one takes longer than a second, or fails. */
  async read(): Promise<ReadonlyMap<Upstream, CachedTotals> | undefined> {
    if (!this.#running && performance.now() >= this.#next) this.#running = this.#count();
    if (!this.#last && this.#running) {
      const running = this.#running;
      await inTime(() => running, patience, { late: () => undefined, ref: false });
    }
    return this.#last;
  }

  /** Ends a count that runs. */
  async close(): Promise<void> {
    this.#ending.abort();
    await this.#running;
  }

  async #count(): Promise<void> {
    const startedAt = performance.now();
    try {
      this.#last = await this.#measure();
    } catch {
      // The readers get the count before, or none.
    } finally {
      const took = performance.now() - startedAt;
      this.#next = performance.now() + Math.max(minPause, took * pauseFactor);
      this.#running = undefined;
    }
  }

  async #measure(): Promise<Map<Upstream, CachedTotals>> {
    const asOf = this.#now();
    const totals = new Map(
      this.#upstreams.map((each) => [
        each,
        {
          entries: 0,
          bytes: 0,
          expired: 0,
          confirmedAt: 0,
          unusedBytes: 0,
          asOf,
          byKind: new Map<string, ListTotal>(),
        },
      ]),
    );
    const expired = this.#expired(asOf);
    const pace = new Pace(this.#ending.signal);
    for (let after = ''; ;) {
      const last = await this.#database.get<{ digest: string }>(
        `SELECT digest FROM mirror_entries WHERE digest > ? ORDER BY digest LIMIT 1 OFFSET ${page - 1}`,
        [after],
      );
      const rows = await this.#database.select<TotalsRow>(
        `SELECT upstream, kind, SUM(entries) AS entries, SUM(bytes) AS bytes, SUM(expired) AS expired,
           MAX(confirmed) AS confirmed, SUM(CASE WHEN used < ? THEN bytes ELSE 0 END) AS unused FROM (
           SELECT upstream, kind, digest, COUNT(*) AS entries, MAX(size_bytes) AS bytes,
             SUM(CASE WHEN ${expired.sql} THEN 1 ELSE 0 END) AS expired,
             MAX(validated_at) AS confirmed, MAX(used_at) AS used
           FROM mirror_entries WHERE digest > ?${last ? ' AND digest <= ?' : ''} GROUP BY digest, upstream, kind
         ) AS contents GROUP BY upstream, kind`,
        [asOf - unusedAfter, ...expired.values, after, ...(last ? [last.digest] : [])],
      );
      for (const row of rows) {
        const upstream = this.#upstreams.find((each) => each.id === row.upstream && row.kind in this.#kinds(each));
        const total = upstream && totals.get(upstream)!;
        if (!total) continue;
        total.entries += row.entries;
        total.bytes += row.bytes;
        total.expired += row.expired ?? 0;
        total.unusedBytes += row.unused;
        total.confirmedAt = Math.max(total.confirmedAt, row.confirmed);
        const { count = 0, bytes = 0 } = total.byKind.get(row.kind) ?? {};
        total.byKind.set(row.kind, { count: count + row.entries, bytes: bytes + row.bytes });
      }
      if (!last) return totals;
      after = last.digest;
      await pace.step();
    }
  }

  /** The condition for documents that are too old to be served while their upstream fails. */
  #expired(now: number): { sql: string; values: Value[] } {
    const parts: string[] = [];
    const values: Value[] = [];
    for (const upstream of this.#upstreams) {
      const { freshFor, staleFor } = upstream.config;
      const kinds = this.#kinds(upstream);
      const those = Object.keys(kinds).filter((each) => kinds[each] !== 'immutable');
      const named = those.filter((each) => kinds[each] === 'by digest');
      const isDigest = `(kind IN (${placeholders(named)}) AND reference LIKE '%:%')`;
      const permanent = named.length > 0 ? ` AND NOT ${isDigest}` : '';
      parts.push(`(upstream = ? AND validated_at < ? AND kind IN (${placeholders(those)})${permanent})`);
      values.push(upstream.id, now - freshFor - staleFor, ...those, ...named);
    }
    return { sql: parts.join(' OR ') || '1 = 0', values };
  }
}
