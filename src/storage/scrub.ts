import type { Database, Transaction } from '../database/database.ts';
import { algorithmOf, startHash, type Digest } from '../digest.ts';
import { isDomainError } from '../errors.ts';
import { Throttle } from '../incoming.ts';
import type { Content } from './content.ts';
import type { Driver } from './driver.ts';
import type { References } from './references.ts';
import { lockBlobs, newGeneration, rowColumns, type BlobRow } from './states.ts';

/** A blob whose bytes are missing or do not match its digest. */
export interface Damage {
  digest: Digest;
  size: number;
  kind: 'corrupt' | 'missing';
  /** Some of the hosted packages and images that need it. Hosted content cannot be fetched again. */
  hosted: string[];
  /** Whether a mirror entry was deleted, so that the next request fetches the content again. */
  mirrored: boolean;
}

export interface ScrubOptions {
  signal?: AbortSignal | undefined;
  /** Called for each damaged blob, as soon as it is found. */
  report: (damage: Damage) => void;
}

export interface Scrubbed {
  blobs: number;
  bytes: number;
  corrupt: number;
  missing: number;
  /** Damaged blobs that hosted content needs, and damaged blobs that are fetched again. */
  damaged_hosted: number;
  damaged_mirrored: number;
}

const page = 200;
const piece = 256 * 1024;
/** Bytes that the rate limit counts for each file besides its content, so that many small files are limited too. */
const fileCost = 64 * 1024;
/** Milliseconds between two saves of the position. */
const saveEvery = 5000;
const holdersShown = 5;

/**
 * Reads stored blobs slowly and verifies their digests. An interrupted pass continues at its position. A corrupt file is
 * moved to the quarantine. The next request fetches mirrored content again; a push of the same content replaces hosted
 * content.
 */
export class Scrubber {
  readonly #database: Database;
  readonly #driver: Driver;
  readonly #references: References;
  /** Bytes per second. */
  readonly #rate: number;

  constructor(database: Database, driver: Driver, references: References, rate: number) {
    this.#database = database;
    this.#driver = driver;
    this.#references = references;
    this.#rate = rate;
  }

  /** Continues to the end of the pass. Rejects when `signal` is aborted; the next call continues at the same position. */
  async scrub({ signal, report }: ScrubOptions): Promise<Scrubbed> {
    const done: Scrubbed = { blobs: 0, bytes: 0, corrupt: 0, missing: 0, damaged_hosted: 0, damaged_mirrored: 0 };
    const throttle = new Throttle(this.#rate, signal);
    let after = (await this.#cursor()) ?? '';
    let savedAt = performance.now();
    try {
      for (;;) {
        const rows = await this.#database.select<BlobRow>(
          `SELECT ${rowColumns} FROM blobs WHERE digest > ? AND state = 'live' ORDER BY digest LIMIT ?`,
          [after, page],
        );
        for (const row of rows) {
          const damage = await this.#check(row, throttle);
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
        if (rows.length < page) break;
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

  async #check({ digest, size }: BlobRow, throttle: Throttle): Promise<Damage | undefined> {
    const stored = await this.#driver.stat(digest);
    await throttle.spend(fileCost);
    if (!stored) return this.#missing(digest);
    if (stored.size === size) {
      const isSound = await this.#isWhole(digest, size, throttle);
      if (isSound) return undefined;
      if (isSound === undefined) return this.#missing(digest);
    }
    return this.#setAside(digest, stored.version);
  }

  /** Whether the bytes match the digest; undefined when they are missing. */
  async #isWhole(digest: Digest, size: number, throttle: Throttle): Promise<boolean | undefined> {
    let content: Content;
    try {
      content = await this.#driver.open(digest, size);
    } catch (error) {
      if (isDomainError(error, 'BlobUnknown')) return undefined;
      throw error;
    }
    try {
      return await isWhole(content, digest, size, throttle);
    } finally {
      content.close();
    }
  }

  /** Quarantines the bytes that were read, unless other bytes have replaced them. */
  async #setAside(digest: Digest, version: string): Promise<Damage | undefined> {
    const replaced = new Error('other bytes have replaced the corrupt ones');
    try {
      return await this.#database.transaction(async (tx) => {
        const [row] = await lockBlobs(tx, [digest]);
        if (row?.state !== 'live') return undefined;
        const damage = await this.#damageOf(tx, row, 'corrupt');
        // This comes last, because a repeated transaction must not move the bytes twice.
        if (!(await this.#driver.setAside(digest, version))) throw replaced;
        return damage;
      });
    } catch (error) {
      if (error === replaced) return undefined;
      throw error;
    }
  }

  async #missing(digest: Digest): Promise<Damage | undefined> {
    return this.#database.transaction(async (tx) => {
      const [row] = await lockBlobs(tx, [digest]);
      if (row?.state !== 'live' || (await this.#driver.stat(digest))) return undefined;
      return this.#damageOf(tx, row, 'missing');
    });
  }

  /**
   * Finds the content that needs the blob. Deletes the mirror entries, and the row of a blob that is not hosted, so that no
   * request finds it. A concurrent push that has just put or seen the bytes notices, and puts them again.
   */
  async #damageOf(tx: Transaction, { digest, size }: BlobRow, kind: Damage['kind']): Promise<Damage> {
    const { isHosted, isMirrored } = this.#references;
    const state = await tx.get<{ hosted: number; mirrored: number }>(
      `SELECT CASE WHEN ${isHosted} THEN 1 ELSE 0 END AS hosted, CASE WHEN ${isMirrored} THEN 1 ELSE 0 END AS mirrored
       FROM blobs WHERE digest = ?`,
      [digest],
    );
    const isNeeded = state?.hosted === 1;
    const hosted = isNeeded ? await this.#references.holders(tx, digest, holdersShown) : [];
    if (isNeeded && hosted.length === 0) hosted.push('a row without an owner');
    await this.#references.forget(tx, digest);
    if (isNeeded) await tx.run('UPDATE blobs SET generation = ? WHERE digest = ?', [newGeneration(), digest]);
    else await tx.run('DELETE FROM blobs WHERE digest = ?', [digest]);
    return { digest, size, kind, hosted, mirrored: state?.mirrored === 1 };
  }
}

async function isWhole(content: Content, digest: Digest, size: number, throttle: Throttle): Promise<boolean> {
  const algorithm = algorithmOf(digest);
  const hash = startHash(algorithm);
  const buffer = Buffer.allocUnsafe(Math.min(piece, Math.max(1, size)));
  try {
    for (let position = 0; position < size;) {
      const read = await content.read(buffer, position);
      if (read === 0) return false;
      hash.update(buffer.subarray(0, read));
      position += read;
      await throttle.spend(read);
    }
  } catch (error) {
    // The disk cannot read the file.
    if ((error as NodeJS.ErrnoException).code === 'EIO') return false;
    throw error;
  }
  return `${algorithm}:${hash.digest('hex')}` === digest;
}
