import type { Database, Transaction } from '../database/database.ts';
import type { EventType, NewEvent } from '../events/event.ts';
import type { Digest } from '../runtime/digest.ts';
import { hexOf } from '../runtime/digest.ts';
import type { BundleCounts, BundleList } from './format.ts';

type Direction = 'made' | 'imported';

/** What a bundle had, as lists show it. */
export interface BundleSummary extends BundleCounts {
  segments: number;
  bytes: number;
  /** The digest of the receipt or of the earlier bundle that it was made against; null if it was complete. */
  against: string | null;
  /** Entries that an import has written: others were here already. Absent for a bundle that was made here. */
  written?: number;
  /** The key that signed it; null without a signature. */
  key: string | null;
  /** The lists of known bad content that it has. Absent if it was made or imported by a version that knew none. */
  knownBad?: readonly { name: string; records: number }[];
}

export const bundleStates = ['complete', 'incomplete'] as const;

/** A bundle that was made or imported here. Times are in milliseconds since 1970 UTC. */
export interface BundleRecord {
  /** The digest of its list, without the algorithm. */
  id: string;
  direction: Direction;
  source: string;
  sequence: number;
  /** An import is `incomplete` until all of it is here. */
  state: (typeof bundleStates)[number];
  summary: BundleSummary;
  createdAt: number;
  changedAt: number;
}

type BundleRow = Omit<BundleRecord, 'summary'> & { summary: string };

const columns = 'id, direction, source, sequence, state, summary, created_at AS createdAt, changed_at AS changedAt';

/** The bundles that were made and imported here. */
export class Bundles {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** The highest sequence of a source; 0 without a bundle. Only complete imports count. */
  async latest(direction: Direction, source: string): Promise<number> {
    const row = await this.#database.get<{ sequence: number | null }>(
      "SELECT MAX(sequence) AS sequence FROM bundles WHERE direction = ? AND source = ? AND state = 'complete'",
      [direction, source],
    );
    return row?.sequence ?? 0;
  }

  async find(direction: Direction, digest: Digest): Promise<BundleRecord | undefined> {
    const sql = `SELECT ${columns} FROM bundles WHERE id = ? AND direction = ?`;
    const row = await this.#database.get<BundleRow>(sql, [hexOf(digest), direction]);
    return row && recordOf(row);
  }

  /** Up to `limit` bundles, the latest or the oldest first, after `after` if given. */
  async list(
    direction: Direction,
    limit: number,
    after?: readonly [changedAt: number, id: string],
    isOldest = false,
  ): Promise<BundleRecord[]> {
    const [sign, order] = isOldest ? ['>', 'ASC'] : ['<', 'DESC'];
    const [condition, values] = after
      ? [`AND changed_at ${sign}= ? AND (changed_at <> ? OR id ${sign} ?)`, [after[0], ...after]]
      : ['', []];
    const rows = await this.#database.select<BundleRow>(
      `SELECT ${columns} FROM bundles WHERE direction = ? ${condition} ORDER BY changed_at ${order}, id ${order} LIMIT ?`,
      [direction, ...values, limit],
    );
    return rows.map(recordOf);
  }

  /** Forgets the imports that are incomplete and did not change since `before`; resolves to their ids. */
  async dropUnfinished(tx: Transaction, before: number): Promise<string[]> {
    const unfinished = "direction = 'imported' AND state = 'incomplete' AND changed_at < ?";
    const rows = await tx.select<{ id: string }>(`SELECT id FROM bundles WHERE ${unfinished}`, [before]);
    if (rows.length > 0) await tx.run(`DELETE FROM bundles WHERE ${unfinished}`, [before]);
    return rows.map(({ id }) => id);
  }

  /** Writes a bundle, or its new state. One that is complete stays so. */
  async write(
    tx: Transaction,
    direction: Direction,
    digest: Digest,
    { header }: Pick<BundleList, 'header'>,
    state: BundleRecord['state'],
    summary: BundleSummary,
  ): Promise<void> {
    const row = {
      id: hexOf(digest),
      direction,
      source: header.source,
      sequence: header.sequence,
      state,
      summary: JSON.stringify(summary),
      created_at: header.created_at,
      changed_at: this.#now(),
    };
    // Of two imports of one bundle at the same time, the other one may have completed it.
    const changed = state === 'incomplete' ? ['changed_at'] : ['state', 'summary', 'changed_at'];
    const update = changed.map((column) => `${column} = new.${column}`).join(', ');
    await tx.upsert('bundles', ['id', 'direction'], [row], update);
    await dropOldest(tx, direction);
  }
}

/** An event about a bundle, a receipt or a key, which concerns no account alone. */
export function bundleEvent(type: EventType, name: string, details: NewEvent['details'] = {}): NewEvent {
  return { type, accountId: 0, subject: { kind: 'bundle', name }, details };
}

/** The most bundles of a direction that are kept, and the last one of each source besides. */
const maxBundles = 1000;

async function dropOldest(tx: Transaction, direction: Direction): Promise<void> {
  const [last] = await tx.select<{ changed_at: number }>(
    'SELECT changed_at FROM bundles WHERE direction = ? ORDER BY changed_at DESC, id DESC LIMIT 1 OFFSET ?',
    [direction, maxBundles],
  );
  if (!last) return;
  // The last one of each source shows which bundles are older. What other tools have made has no sequence.
  const latest = `SELECT source, MAX(sequence) AS sequence FROM bundles WHERE direction = ? AND state = 'complete'
    GROUP BY source HAVING MAX(sequence) > 0`;
  await tx.run(
    `DELETE FROM bundles WHERE direction = ? AND state = 'complete' AND changed_at <= ?
     AND (source, sequence) NOT IN (SELECT source, sequence FROM (${latest}) AS latest)`,
    [direction, last.changed_at, direction],
  );
}

function recordOf({ summary, ...row }: BundleRow): BundleRecord {
  return { ...row, summary: JSON.parse(summary) as BundleSummary };
}
