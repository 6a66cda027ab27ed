import { randomUUID } from 'node:crypto';
import { databaseTime as now } from '../../database/clock.ts';
import { forUpdate, type Database, type Queryable, type Transaction } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';

/** Milliseconds after which a hold ends whose process has died. */
const holdLease = 120_000;

const uncached = { uncached: true };

/**
 * Keeps the bytes of all blobs that are live when it is taken, on every instance, until it is released. It is renewed while
 * the process lives. `signal` is aborted if it could not be renewed in time.
 */
export class CollectionPause implements AsyncDisposable {
  readonly #database: Database;
  readonly #id = randomUUID();
  readonly #lease: number;
  readonly #work: string;
  readonly #controller = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #renewedAt = performance.now();
  #renewing: Promise<void> | undefined;

  private constructor(database: Database, lease: number, work: string) {
    this.#database = database;
    this.#lease = lease;
    this.#work = work;
  }

  /** `lease` is in milliseconds. `work` names what needs the bytes, for the message of a lost hold. */
  static async take(database: Database, lease = holdLease, work = 'backup'): Promise<CollectionPause> {
    const hold = new CollectionPause(database, lease, work);
    await database.transaction(async (tx) => {
      await lockHolds(tx);
      await tx.run(`DELETE FROM storage_holds WHERE expires_at <= ${now[tx.dialect]}`);
      const sql = `INSERT INTO storage_holds (id, expires_at) VALUES (?, ${now[tx.dialect]} + ?)`;
      await tx.run(sql, [hold.#id, lease]);
    }, uncached);
    hold.#renewedAt = performance.now();
    hold.#timer = setInterval(() => {
      hold.#renewing ??= hold.#renew().finally(() => (hold.#renewing = undefined));
    }, lease / 6).unref();
    return hold;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#renewing;
    await this.#database.transaction((tx) => tx.run('DELETE FROM storage_holds WHERE id = ?', [this.#id]), uncached);
  }

  async #renew(): Promise<void> {
    try {
      const renewed = await this.#database.transaction((tx) => {
        const time = now[tx.dialect];
        const sql = `UPDATE storage_holds SET expires_at = ${time} + ? WHERE id = ? AND expires_at > ${time}`;
        return tx.run(sql, [this.#lease, this.#id]);
      }, uncached);
      if (renewed > 0) this.#renewedAt = performance.now();
      else this.#lose();
    } catch {
      if (performance.now() - this.#renewedAt >= this.#lease) this.#lose();
    }
  }

  #lose(): void {
    clearInterval(this.#timer);
    const message = `The lease that keeps stored content during a ${this.#work} has expired, because the database could not be reached in time. Start the ${this.#work} again.`;
    this.#controller.abort(new DomainError('DatabaseUnavailable', message));
  }
}

/**
 * Whether a hold keeps the bytes of live blobs. Call it in the transaction that marks them for deletion, after the check of
 * their references: a hold that is taken after this waits for the end of the transaction, so its owner sees the mark.
 */
export async function isHeld(tx: Transaction): Promise<boolean> {
  await lockHolds(tx);
  return mayBeHeld(tx);
}

/**
 * Limits each hold to one lease from now. Otherwise, after the clock of the database was set back, the hold of a killed process would
 * last until the old time comes again. A live process renews its hold.
 */
export async function limitHolds(database: Database): Promise<void> {
  if (!(await mayBeHeld(database))) return;
  const time = now[database.dialect];
  const sql = `UPDATE storage_holds SET expires_at = ${time} + ? WHERE expires_at > ${time} + ?`;
  await database.transaction((tx) => tx.run(sql, [holdLease, holdLease]), uncached);
}

/** As `isHeld`, without the lock: a hold may be taken at any time. */
export async function mayBeHeld(from: Queryable): Promise<boolean> {
  const sql = `SELECT id FROM storage_holds WHERE expires_at > ${now[from.dialect]} LIMIT 1`;
  return (await from.get(sql)) !== undefined;
}

/** Every database in use has this row. */
async function lockHolds(tx: Transaction): Promise<void> {
  await tx.get(`SELECT id FROM storage_identity WHERE id = 1${forUpdate(tx)}`);
}
