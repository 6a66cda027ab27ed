import { setTimeout as sleep } from 'node:timers/promises';
import { placeholders, type Database, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DeletionWatch, findBlobs, newGeneration, takeOver, type BlobRow, type DeletionTimes } from './states.ts';

/** A row of `blobs` whose bytes can be put now. */
export interface ReservedBlob extends BlobRow {
  state: 'pending' | 'live';
  /** Whether this call has inserted the row, or taken it over. */
  isNew: boolean;
}

/** The bytes were removed or quarantined after they were put: they must be put again. */
export class ReservationLost extends Error {
  constructor(digest: Digest) {
    super(`${digest} was removed while it was being stored`);
  }
}

/** Milliseconds between two checks of a row that is `deleting`. */
const firstPause = 5;
const maxPause = 200;
/** Smaller blobs are put without a wait. */
const minAwaited = 2 ** 20;
/** A put takes about this long in milliseconds, with 100 MB a second. */
const putTime = (size: number): number => Math.min(30_000, 500 + size / 100_000);

/** Writes the rows of blobs before their bytes are put. */
export class BlobReservations {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #times: DeletionTimes;
  readonly #watch: DeletionWatch;

  constructor(database: Database, now: () => number, times: DeletionTimes) {
    this.#database = database;
    this.#now = now;
    this.#times = times;
    this.#watch = new DeletionWatch(times);
  }

  /**
   * Inserts a `pending` row for each of `sizes` that has none, so that bytes of an interrupted put have a row. Waits while
   * a row is `deleting`. With `awaitPuts`, also waits for the put of a large blob that another commit, maybe of another instance,
   * has announced, but not much longer than a put takes, because that process may have been killed.
   */
  async announce(sizes: ReadonlyMap<Digest, number>, awaitPuts = false): Promise<ReservedBlob[]> {
    const announced: ReservedBlob[] = [];
    if (sizes.size === 0) return announced;
    const startedAt = this.#times.watch();
    let rest = [...sizes.keys()];
    for (let pause = firstPause; ; pause = Math.min(maxPause, pause * 2)) {
      const found = await findBlobs(this.#database, rest);
      // Once for each turn, so that a row which is not awaited any more is written again before its put.
      const waited = this.#times.watch() - startedAt;
      const isAwaited = ({ state, size }: BlobRow): boolean =>
        awaitPuts && state === 'pending' && size >= minAwaited && waited < putTime(size);
      const givenUp = await this.#watch.givenUp(this.#database, found);
      const settled = found.filter((row) => (row.state !== 'pending' || isAwaited(row)) && !givenUp.includes(row));
      const known = new Set(settled.map(({ digest }) => digest));
      const wanted = rest.filter((digest) => !known.has(digest)).sort();
      const written = wanted.length > 0 ? await this.#write(wanted, givenUp, sizes) : [];
      rest = [];
      for (const row of [...settled.map((each) => ({ ...each, isNew: false })), ...written]) {
        const { digest, size, state, isNew } = row;
        if (state === 'deleting' || (!isNew && isAwaited(row))) {
          rest.push(digest);
          continue;
        }
        if (size !== sizes.get(digest))
          throw new Error(`${digest} is recorded with ${size} bytes and came with ${sizes.get(digest)}`);
        announced.push({ ...row, state });
      }
      // The collector locks rows in the same order.
      if (rest.length === 0) return announced.sort((a, b) => (a.digest < b.digest ? -1 : 1));
      await sleep(pause);
    }
  }

  /** Needs no sync: after a power failure, bytes without a row may remain. No request can read them. */
  async #write(
    digests: readonly Digest[],
    givenUp: readonly BlobRow[],
    sizes: ReadonlyMap<Digest, number>,
  ): Promise<(BlobRow & { isNew: boolean })[]> {
    const generation = newGeneration();
    const rows = await this.#database.transaction(
      async (tx) => {
        for (const { digest } of await takeOver(tx, givenUp, generation)) {
          // A file without a row may have had another size.
          const values = [sizes.get(digest)!, digest];
          await tx.run("UPDATE blobs SET state = 'pending', size = ? WHERE digest = ?", values);
        }
        const stored_at = this.#now();
        const made: BlobRow[] = [];
        const known: Digest[] = [];
        for (const digest of digests) {
          const row = { digest, size: sizes.get(digest)!, state: 'pending', generation } as const;
          if ((await tx.insertNew('blobs', [{ ...row, stored_at }])) > 0) made.push(row);
          else known.push(digest);
        }
        if (known.length === 0) return made;
        // The grace starts again for rows that were pending before.
        const sql = `UPDATE blobs SET stored_at = ? WHERE state = 'pending' AND digest IN (${placeholders(known)})`;
        await tx.run(sql, [stored_at, ...known]);
        return [...made, ...(await findBlobs(tx, known))];
      },
      { fleeting: true },
    );
    return rows.map((row) => ({ ...row, isNew: row.state === 'pending' && row.generation === generation }));
  }
}

/**
 * Makes rows live whose bytes are stored. Their locks keep the collector from them until the transaction ends. Throws
 * `Overtaken`.
 */
export async function makeLive(tx: Transaction, rows: readonly ReservedBlob[], now: number): Promise<void> {
  for (const { digest, generation } of rows) {
    const sql = `UPDATE blobs SET state = 'live', stored_at = ?
      WHERE digest = ? AND generation = ? AND state <> 'deleting'`;
    if ((await tx.run(sql, [now, digest, generation])) === 0) throw new ReservationLost(digest);
  }
}
