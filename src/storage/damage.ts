import type { Logger } from 'pino';
import type { Database, Transaction } from '../database/database.ts';
import { algorithmOf, startHash, type Digest } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import type { Throttle } from '../incoming.ts';
import type { Content } from './content.ts';
import type { Driver } from './driver.ts';
import type { References } from './references.ts';
import { deletionTimes, findBlobs, lockBlobs, newGeneration, type BlobRow, type DeletionTimes } from './states.ts';

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

export interface CheckOptions {
  /** Whether to read the bytes and compute their digest. */
  hash: boolean;
  /** Whether mirror entries and rows stay if the bytes are missing: a disk that is not mounted has lost nothing. */
  keepMissing: boolean;
  throttle?: Throttle;
}

const piece = 256 * 1024;
const holdersShown = 5;

/** `ContentDamaged`, for a live blob whose bytes are missing or wrong. */
export function contentDamaged(digest: Digest, cause?: unknown): DomainError {
  return new DomainError(
    'ContentDamaged',
    `The stored bytes of ${digest} are missing or damaged. Push this content again to repair it.`,
    { detail: { digest }, cause },
  );
}

/** Logs a damage with the action that repairs it. */
export function logDamage(log: Logger, { digest, kind, hosted, mirrored }: Damage): void {
  if (hosted.length > 0) log.error({ digest, kind, hosted }, 'hosted content is damaged; push it again');
  else if (mirrored) log.warn({ digest, kind }, 'mirrored content is damaged; the next request fetches it again');
}

/** For `BlobStore`: examines with `check` and logs the damage. A failed examination is logged, and counts as damage. */
export function examineWith(check: DamageCheck, log: Logger): (row: BlobRow, hash: boolean) => Promise<boolean> {
  return async (row, hash) => {
    try {
      const damage = await check.check(row, { hash, keepMissing: true });
      if (damage) logDamage(log, damage);
      return damage !== undefined;
    } catch (error) {
      log.error({ digest: row.digest, err: error }, 'damaged content could not be moved to the quarantine');
      return true;
    }
  };
}

/** Compares stored bytes with their rows. Moves wrong bytes to the quarantine, so that no request reads them. */
export class DamageCheck {
  readonly #database: Database;
  readonly #driver: Driver;
  readonly #references: References;
  readonly #times: DeletionTimes;

  constructor(database: Database, driver: Driver, references: References, times = deletionTimes) {
    this.#database = database;
    this.#driver = driver;
    this.#references = references;
    this.#times = times;
  }

  /**
   * Checks that the bytes are there and have the size of the row, and if that is right and `hash` is set, the digest.
   * Quarantines wrong bytes. Undefined if there is no damage, or if the blob was removed or replaced meanwhile.
   */
  async check({ digest, size }: BlobRow, { hash, keepMissing, throttle }: CheckOptions): Promise<Damage | undefined> {
    const stored = await this.#driver.stat(digest);
    if (!stored) return this.#missing(digest, keepMissing);
    if (stored.size === size) {
      const isSound = hash ? await this.#isWhole(digest, size, throttle) : true;
      if (isSound) return undefined;
      if (isSound === undefined) return this.#missing(digest, keepMissing);
    }
    return this.#setAside(digest, stored.version);
  }

  /** Whether the bytes match the digest; undefined when they are missing. */
  async #isWhole(digest: Digest, size: number, throttle: Throttle | undefined): Promise<boolean | undefined> {
    let content: Content;
    try {
      content = await this.#driver.open(digest, size, true);
    } catch (error) {
      if (isDomainError(error, 'BlobUnknown')) return undefined;
      if (isDomainError(error, 'ContentDamaged')) return false;
      throw error;
    }
    try {
      return await isWhole(content, digest, size, throttle);
    } finally {
      content.close();
    }
  }

  /** Quarantines the bytes that were read, unless other bytes have replaced them. */
  #setAside(digest: Digest, version: string): Promise<Damage | undefined> {
    return this.#forgetIf('corrupt', digest, (mark) => this.#driver.setAside(digest, version, mark));
  }

  async #missing(digest: Digest, keep: boolean): Promise<Damage | undefined> {
    const isGone = async () => (await this.#driver.stat(digest)) === undefined;
    if (!keep) return this.#forgetIf('missing', digest, async (mark) => (await mark()) && (await isGone()));
    const [before] = await findBlobs(this.#database, [digest]);
    if (before?.state !== 'live' || !(await isGone())) return undefined;
    return this.#database.transaction(async (tx) => {
      const [row] = await findBlobs(tx, [digest]);
      // Else a collector has removed the bytes since.
      const isSame = row?.state === 'live' && row.generation === before.generation;
      return isSame ? this.#damageOf(tx, row, 'missing') : undefined;
    });
  }

  /**
   * Forgets a live blob if `isLost`, which calls `mark` before it takes the bytes away or looks for them. From then on, a
   * commit that has seen or put the bytes before puts them again, and a new one waits. A mark that is left by a killed
   * process is taken over as a deletion is.
   */
  async #forgetIf(
    kind: Damage['kind'],
    digest: Digest,
    isLost: (mark: () => Promise<boolean>) => Promise<boolean>,
  ): Promise<Damage | undefined> {
    const mark = -newGeneration();
    let before: BlobRow | undefined;
    let isForgotten = false;
    try {
      isForgotten = await isLost(async () => (before = await this.#mark(digest, mark)) !== undefined);
    } finally {
      // The mark of another check, which may have moved the bytes, stays.
      const after = before && before.generation < 0 ? before.generation : newGeneration();
      if (before && !isForgotten) await this.#unmark(digest, mark, after);
    }
    if (isForgotten) return this.#forget(kind, digest);
    return undefined;
  }

  /** Resolves to the row as it was; undefined if the blob is not live. */
  #mark(digest: Digest, mark: number): Promise<BlobRow | undefined> {
    return this.#database.transaction(async (tx) => {
      const [row] = await lockBlobs(tx, [digest]);
      if (row?.state !== 'live') return undefined;
      const sql = 'UPDATE blobs SET generation = ?, deleted_by = ?, deleted_generation = ? WHERE digest = ?';
      await tx.run(sql, [mark, this.#times.processes?.().id ?? null, mark, digest]);
      return row;
    });
  }

  async #unmark(digest: Digest, mark: number, generation: number): Promise<void> {
    const sql = 'UPDATE blobs SET generation = ? WHERE digest = ? AND generation = ?';
    await this.#database.transaction((tx) => tx.run(sql, [generation, digest, mark]));
  }

  /**
   * Deletes the mirror entries of a marked blob, and its row if it is not hosted, so that no request finds it. Undefined if
   * the mark was taken over meanwhile.
   */
  #forget(kind: Damage['kind'], digest: Digest): Promise<Damage | undefined> {
    return this.#database.transaction(async (tx) => {
      const [row] = await lockBlobs(tx, [digest]);
      if (row?.state !== 'live' || row.generation >= 0) return undefined;
      const damage = await this.#damageOf(tx, row, kind);
      await this.#references.forget(tx, digest);
      if (damage.hosted.length > 0)
        await tx.run('UPDATE blobs SET generation = ? WHERE digest = ?', [newGeneration(), digest]);
      else await tx.run('DELETE FROM blobs WHERE digest = ?', [digest]);
      return damage;
    });
  }

  /** Finds the content that needs the blob. */
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
    return { digest, size, kind, hosted, mirrored: state?.mirrored === 1 };
  }
}

async function isWhole(
  content: Content,
  digest: Digest,
  size: number,
  throttle: Throttle | undefined,
): Promise<boolean> {
  const algorithm = algorithmOf(digest);
  const hash = startHash(algorithm);
  const buffer = Buffer.allocUnsafe(Math.min(piece, Math.max(1, size)));
  try {
    for (let position = 0; position < size;) {
      const read = await content.read(buffer, position);
      if (read === 0) return false;
      hash.update(buffer.subarray(0, read));
      position += read;
      await throttle?.spend(read);
    }
  } catch (error) {
    // The disk cannot read the file.
    if ((error as NodeJS.ErrnoException).code === 'EIO') return false;
    throw error;
  }
  return `${algorithm}:${hash.digest('hex')}` === digest;
}
