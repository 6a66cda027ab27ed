import type { Logger } from 'pino';
import { placeholders, type Database, type Transaction } from '../database/database.ts';
import { recordFrom } from '../events/record.ts';
import { systemOrigin } from '../runtime/caller.ts';
import { isDomainError } from '../runtime/errors.ts';
import { storageFull } from '../storage/files/disk.ts';
import { entryId, type EntryKey } from './store/entries.ts';

/** A stored reference that its upstream does not offer. Times are in milliseconds since 1970 UTC. */
interface Withdrawal {
  reference: string;
  /** When the upstream was first seen without it. */
  missingAt: number;
  /** When that was certain; null while it was seen once. */
  withdrawnAt: number | null;
}

/** What an event says about withdrawn content. */
export interface WithdrawnSubject {
  /** The kind of the name, as in events. */
  kind: string;
  name: string;
  /** The upstream's name. */
  upstream: string;
}

type NameKey = Omit<EntryKey, 'reference'>;
/** What is said elsewhere of the references of a name. */
type Elsewhere = (name: NameKey) => readonly Withdrawal[];

/** Without Redis, other instances see a change after this time at the latest; milliseconds. */
const lag = 5000;
/** Rows of one statement or transaction. */
const batch = 200;
const columns = 'reference, missing_at AS missingAt, withdrawn_at AS withdrawnAt';

/**
 * Stored content that its upstream does not offer any more. It stays: a reference is listed and kept from eviction as soon as the
 * upstream was seen without it, and marked as withdrawn when that was seen again. Reads are from memory while nothing changes.
 */
export class Withdrawals {
  readonly #database: Database;
  readonly #log: Logger;
  readonly #now: () => number;

  constructor(database: Database, log: Logger, now: () => number) {
    this.#database = database;
    this.#log = log;
    this.#now = now;
  }

  /** These, and what is said elsewhere of references of a name. */
  with(elsewhere: Elsewhere): Withdrawals {
    return new MoreWithdrawals(elsewhere, this.#database, this.#log, this.#now);
  }

  /** The references of a name that its upstream does not offer. */
  async of({ upstream, kind, name }: NameKey): Promise<readonly Withdrawal[]> {
    // One row for all names: usually there are none, and then no name needs a query of its own.
    const any = await this.#database.getCached('SELECT 1 AS one FROM mirror_withdrawn LIMIT 1', [], { lag });
    if (!any) return [];
    const sql = `SELECT ${columns} FROM mirror_withdrawn WHERE kind = ? AND name = ? AND upstream = ?`;
    return this.#database.selectCached<Withdrawal>(sql, [kind, name, upstream], { lag });
  }

  /** When it was certain that the upstream had withdrawn a stored reference; undefined if it is not. */
  async at({ reference, ...name }: EntryKey): Promise<number | undefined> {
    return (await this.times(name)).get(reference);
  }

  /** The marked references of a name, and when each was certain to be withdrawn. */
  async times(name: NameKey): Promise<ReadonlyMap<string, number>> {
    const marked = await this.of(name);
    return new Map(marked.flatMap((each) => (each.withdrawnAt === null ? [] : [[each.reference, each.withdrawnAt]])));
  }

  /**
   * Notes that the upstream does not offer these stored references. Resolves to those that were missing `after` milliseconds
   * ago already, and are not marked yet.
   */
  async missing(name: NameKey, references: readonly string[], after: number): Promise<string[]> {
    const known = new Map((await this.of(name)).map((each) => [each.reference, each]));
    const found = references.filter((reference) => !known.has(reference));
    const now = this.#now();
    for (let start = 0; start < found.length; start += batch) {
      const rows = found.slice(start, start + batch).map((reference) => ({ ...name, reference }));
      await this.#write(name, (tx) => insertStored(tx, rows, now));
    }
    return references.filter((reference) => {
      const each = known.get(reference);
      return each && each.withdrawnAt === null && each.missingAt + after <= now;
    });
  }

  /** The upstream still has a reference that its list lacks: it counts as missing only from now on. */
  async postpone(key: EntryKey): Promise<void> {
    const sql = 'UPDATE mirror_withdrawn SET missing_at = ? WHERE id = ? AND withdrawn_at IS NULL';
    await this.#write(key, (tx) => tx.run(sql, [this.#now(), entryId(key)]));
  }

  /** Marks a missing reference as withdrawn, and records the event. */
  async mark(key: EntryKey, subject: WithdrawnSubject): Promise<void> {
    const now = this.#now();
    await this.#write(key, async (tx) => {
      const sql = 'UPDATE mirror_withdrawn SET withdrawn_at = ? WHERE id = ? AND withdrawn_at IS NULL';
      if ((await tx.run(sql, [now, entryId(key)])) > 0)
        await tell(tx, 'upstream.withdrawn', subject, key.reference, now);
    });
  }

  /**
   * Notes that the upstream offers these references. Marks are removed with an event about `subject`; without a subject, marked
   * references stay marked.
   */
  async offered(name: NameKey, isOffered: (reference: string) => boolean, subject?: WithdrawnSubject): Promise<void> {
    const back = (await this.of(name)).filter(
      ({ reference, withdrawnAt }) => isOffered(reference) && (subject || withdrawnAt === null),
    );
    const now = this.#now();
    for (let start = 0; start < back.length; start += batch) {
      await this.#write(name, async (tx) => {
        for (const { reference } of back.slice(start, start + batch)) {
          const id = entryId({ ...name, reference });
          const marked = 'DELETE FROM mirror_withdrawn WHERE id = ? AND withdrawn_at IS NOT NULL';
          if (subject && (await tx.run(marked, [id])) > 0) await tell(tx, 'upstream.restored', subject, reference, now);
          await tx.run('DELETE FROM mirror_withdrawn WHERE id = ? AND withdrawn_at IS NULL', [id]);
        }
      });
    }
  }

  /** Up to `limit` tags, versions and other references of a kind that upstreams do not offer, by ID, after `after`. */
  async page(kind: string, after: string, limit: number): Promise<(EntryKey & { id: string })[]> {
    return this.#database.select(
      'SELECT id, upstream, kind, name, reference FROM mirror_withdrawn WHERE id > ? AND kind = ? ORDER BY id LIMIT ?',
      [after, kind, limit],
    );
  }

  /** The number of marked references of each upstream that has some, by its ID. */
  async counts(): Promise<ReadonlyMap<string, number>> {
    const rows = await this.#database.select<{ upstream: string; count: number }>(
      'SELECT upstream, COUNT(*) AS count FROM mirror_withdrawn WHERE withdrawn_at IS NOT NULL GROUP BY upstream',
    );
    return new Map(rows.map(({ upstream, count }) => [upstream, count]));
  }

  /** The bytes of all that eviction leaves because upstreams do not offer it, as the last eviction above the limit found it. */
  async bytes(): Promise<number> {
    const row = await this.#database.get<{ bytes: number | string | null }>(
      `SELECT SUM(size_bytes) AS bytes FROM (SELECT digest, MAX(size_bytes) AS size_bytes FROM mirror_entries
         WHERE id IN (SELECT id FROM mirror_withdrawn UNION SELECT id FROM mirror_kept) GROUP BY digest) AS contents`,
    );
    return Number(row?.bytes ?? 0);
  }

  /** What is stored is served all the same if this cannot be written. The next answer of the upstream is noted again. */
  async #write(about: NameKey, work: (tx: Transaction) => Promise<unknown>): Promise<void> {
    try {
      await this.#database.transaction(work);
    } catch (error) {
      if (!storageFull(error) && !isDomainError(error, 'DatabaseUnavailable')) throw error;
      this.#log.warn({ ...about, err: error }, 'what an upstream does not offer any more was not recorded');
    }
  }
}

class MoreWithdrawals extends Withdrawals {
  readonly #elsewhere: Elsewhere;

  constructor(elsewhere: Elsewhere, ...parts: ConstructorParameters<typeof Withdrawals>) {
    super(...parts);
    this.#elsewhere = elsewhere;
  }

  override async of(key: NameKey): Promise<readonly Withdrawal[]> {
    const more = this.#elsewhere(key);
    const others = new Set(more.map(({ reference }) => reference));
    return [...more, ...(await super.of(key)).filter(({ reference }) => !others.has(reference))];
  }
}

/** Inserts those of the rows whose entries are still stored. */
async function insertStored(tx: Transaction, keys: readonly EntryKey[], now: number): Promise<void> {
  const ids = keys.map(entryId);
  const stored = await tx.select<{ id: string }>(
    `SELECT id FROM mirror_entries WHERE id IN (${placeholders(ids)})`,
    ids,
  );
  const there = new Set(stored.map(({ id }) => id));
  const rows = keys.flatMap(({ upstream, kind, name, reference }, at) =>
    there.has(ids[at]!) ? [{ id: ids[at]!, upstream, kind, name, reference, missing_at: now, withdrawn_at: null }] : [],
  );
  if (rows.length > 0) await tx.insertNew('mirror_withdrawn', rows);
}

/** No client causes the event, and it concerns no account alone. */
async function tell(
  tx: Transaction,
  type: 'upstream.withdrawn' | 'upstream.restored',
  { kind, name, upstream }: WithdrawnSubject,
  reference: string,
  now: number,
): Promise<void> {
  const event = { type, accountId: 0, subject: { kind, name, reference }, details: { upstream } };
  await recordFrom(tx, event, now, systemOrigin(null));
}
