import type { Logger } from 'pino';
import type { Database, Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { Throttle } from '../../runtime/incoming.ts';
import { checkStored, refuseOtherFailures } from '../drivers/check-stored.ts';
import type { Driver } from '../drivers/driver.ts';
import type { References } from './references.ts';
import { lockBlobs, newGeneration, type BlobRow } from './states.ts';

/** A blob whose bytes are missing, or do not match its digest, or cannot be opened although the storage works. */
export interface Damage {
  digest: Digest;
  size: number;
  kind: 'corrupt' | 'missing' | 'unreadable';
  /** Some of the hosted packages and images that need it. Hosted content cannot be fetched again. */
  hosted: string[];
  /** Whether a mirror entry has it. It was deleted, so that the next request fetches the content again, unless it is unreadable. */
  mirrored: boolean;
}

interface CheckOptions {
  /** Whether to read the bytes and compute their digest. */
  hash: boolean;
  /** Whether mirror entries and rows stay if the bytes are missing: a disk that is not mounted has lost nothing. */
  keepMissing: boolean;
  throttle?: Throttle;
}

const holdersShown = 5;

/** Logs a damage with the action that repairs it. */
export function logDamage(log: Logger, { digest, kind, hosted, mirrored }: Damage): void {
  if (kind === 'unreadable') log.error({ digest, hosted }, 'stored content cannot be opened; check its permissions');
  else if (hosted.length > 0) log.error({ digest, kind, hosted }, 'hosted content is damaged; push it again');
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

  constructor(database: Database, driver: Driver, references: References) {
    this.#database = database;
    this.#driver = driver;
    this.#references = references;
  }

  /**
   * Checks that the bytes are there and have the size of the row, and if that is right and `hash` is set, the digest.
   * Quarantines wrong bytes. Undefined if there is no damage, or if the blob was removed or replaced meanwhile.
   */
  async check({ digest, size }: BlobRow, { hash, keepMissing, throttle }: CheckOptions): Promise<Damage | undefined> {
    const stored = await this.#driver.stat(digest);
    if (!stored) return this.#missing(digest, keepMissing);
    if (stored.size === size) {
      const found = hash ? await checkStored(this.#driver, { digest, size }, { throttle }) : 'sound';
      if (found === 'sound') {
        if (hash) await this.#driver.checkCopy?.({ digest, size }, throttle);
        return undefined;
      }
      if (found === 'missing') return this.#missing(digest, keepMissing);
    }
    return this.#setAside(digest, stored.version);
  }

  /**
   * The damage of a blob whose check has failed with `error`, if only this blob cannot be opened: its bytes and rows stay. Throws if
   * the storage as a whole cannot be used, or if the failure is another one.
   */
  async unopened({ digest, size }: BlobRow, error: unknown): Promise<Damage> {
    await refuseOtherFailures(this.#driver, error);
    return this.#database.transaction((tx) => this.#damageOf(tx, { digest, size }, 'unreadable'));
  }

  /** Quarantines the bytes that were read, unless other bytes have replaced them. */
  async #setAside(digest: Digest, version: string): Promise<Damage | undefined> {
    const replaced = new Error('other bytes have replaced the corrupt ones');
    const move = await this.#driver.setAside(digest, version);
    try {
      return await this.#database.transaction(async (tx) => {
        const [row] = await lockBlobs(tx, [digest]);
        if (row?.state !== 'live') return undefined;
        const damage = await this.#damageOf(tx, row, 'corrupt');
        await this.#forget(tx, damage);
        // This comes last, because a repeated transaction must not move the bytes twice.
        if (!(await move())) throw replaced;
        return damage;
      });
    } catch (error) {
      if (error === replaced) return undefined;
      throw error;
    }
  }

  async #missing(digest: Digest, keep: boolean): Promise<Damage | undefined> {
    // A storage that is not there, for example a folder on which another one is mounted, has lost nothing.
    if (!keep) await this.#driver.check();
    return this.#database.transaction(async (tx) => {
      const [row] = await lockBlobs(tx, [digest]);
      if (row?.state !== 'live' || (await this.#driver.stat(digest))) return undefined;
      const damage = await this.#damageOf(tx, row, 'missing');
      if (!keep) await this.#forget(tx, damage);
      return damage;
    });
  }

  /** Finds the content that needs the blob. */
  async #damageOf(
    tx: Transaction,
    { digest, size }: Pick<BlobRow, 'digest' | 'size'>,
    kind: Damage['kind'],
  ): Promise<Damage> {
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

  /**
   * Deletes the mirror entries, and the row of a blob that is not hosted, so that no request finds it. A concurrent push that
   * has just put or seen the bytes notices, and puts them again.
   */
  async #forget(tx: Transaction, { digest, hosted }: Damage): Promise<void> {
    await this.#references.forget(tx, digest);
    if (hosted.length > 0) await tx.run('UPDATE blobs SET generation = ? WHERE digest = ?', [newGeneration(), digest]);
    else await tx.run('DELETE FROM blobs WHERE digest = ?', [digest]);
  }
}
