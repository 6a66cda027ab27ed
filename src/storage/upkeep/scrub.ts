import type { Database } from '../../database/database.ts';
import { Throttle } from '../../runtime/incoming.ts';
import type { Damage, DamageCheck } from '../blobs/damage.ts';
import { liveBlobs, type BlobRow } from '../blobs/states.ts';

interface ScrubOptions {
  signal?: AbortSignal | undefined;
  /** Called for each damaged blob, as soon as it is found. */
  report: (damage: Damage) => void;
}

interface Scrubbed {
  blobs: number;
  bytes: number;
  corrupt: number;
  missing: number;
  unreadable: number;
  /** Damaged blobs that hosted content needs, and damaged blobs that are fetched again. */
  damaged_hosted: number;
  damaged_mirrored: number;
}

const page = 200;
/** Bytes that the rate limit counts for each file besides its content, so that many small files are limited too. */
const fileCost = 64 * 1024;
/** Milliseconds between two saves of the position. */
const saveEvery = 5000;

/**
 * Reads stored blobs slowly and verifies their digests. An interrupted pass continues at its position. A corrupt file is
 * moved to the quarantine. The next request fetches mirrored content again; a push of the same content replaces hosted
 * content.
 */
export class Scrubber {
  readonly #database: Database;
  readonly #damage: DamageCheck;
  /** Bytes per second. */
  readonly #rate: number;

  constructor(database: Database, damage: DamageCheck, rate: number) {
    this.#database = database;
    this.#damage = damage;
    this.#rate = rate;
  }

  /** Continues to the end of the pass. Rejects when `signal` is aborted; the next call continues at the same position. */
  async scrub({ signal, report }: ScrubOptions): Promise<Scrubbed> {
    const done: Scrubbed = {
      blobs: 0,
      bytes: 0,
      corrupt: 0,
      missing: 0,
      unreadable: 0,
      damaged_hosted: 0,
      damaged_mirrored: 0,
    };
    const throttle = new Throttle(this.#rate, signal);
    let after = (await this.#cursor()) ?? '';
    let savedAt = performance.now();
    try {
      for await (const rows of liveBlobs(this.#database, page, after)) {
        for (const row of rows) {
          const damage = await this.#check(row, throttle, signal);
          if (damage) {
            done[damage.kind] += 1;
            if (damage.hosted.length > 0) done.damaged_hosted += 1;
            if (damage.mirrored) done.damaged_mirrored += 1;
            report(damage);
          }
          done.blobs += 1;
          done.bytes += row.size;
          after = row.digest;
          if (performance.now() - savedAt < saveEvery) continue;
          await this.#save(after);
          savedAt = performance.now();
        }
      }
    } catch (error) {
      await this.#save(after);
      throw error;
    }
    await this.#database.transaction((tx) => tx.run("DELETE FROM storage_cursors WHERE name = 'scrub'"));
    return done;
  }

  async #cursor(): Promise<string | undefined> {
    const row = await this.#database.get<{ digest: string }>("SELECT digest FROM storage_cursors WHERE name = 'scrub'");
    return row?.digest;
  }

  async #save(digest: string): Promise<void> {
    await this.#database.transaction((tx) =>
      tx.upsert('storage_cursors', ['name'], [{ name: 'scrub', digest }], 'digest = new.digest'),
    );
  }

  async #check(row: BlobRow, throttle: Throttle, signal?: AbortSignal): Promise<Damage | undefined> {
    await throttle.spend(fileCost);
    try {
      return await this.#damage.check(row, { hash: true, keepMissing: false, throttle });
    } catch (error) {
      signal?.throwIfAborted();
      return this.#damage.unopened(row, error);
    }
  }
}
