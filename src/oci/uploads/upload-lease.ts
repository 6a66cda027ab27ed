import { setTimeout as sleep } from 'node:timers/promises';
import { randomUUID } from 'node:crypto';
import { forUpdate, type Database, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Allowance } from '../../usage/quota.ts';

/** The key of an upload session. */
export interface UploadKey {
  accountId: number;
  repository: string;
  id: string;
}

interface UploadRow {
  id: string;
  account_id: number;
  received: number;
  digest: Digest | null;
  torn: number;
  writer: string | null;
  writer_until: number | null;
}

/** Milliseconds after which a lease expires unless it is renewed; it is renewed every third of this time. */
const leaseTime = 6000;
/** Milliseconds between two attempts to take a lease. */
const pollInterval = 500;

/** For `Retry-After` while an account has too many sessions: other pushes end meanwhile; seconds. */
const sessionRetry = 60;

const columns = 'id, account_id, received, digest, torn, writer, writer_until';
const byKey = 'id = ? AND account_id = ? AND repository = ? AND lost = 0';

/**
 * The bytes of a session that count for its account, with the time now as a value: what it has reserved, or what has arrived if its
 * writer is dead. The file of a lost session may have all that was reserved.
 */
export const countedBytes =
  'CASE WHEN lost = 0 AND (writer IS NULL OR writer_until <= ?) THEN received ELSE reserved END';

/** The state of a session; `UploadUnknown` if the account's repository has no session with that id. */
export async function readUpload(database: Database, key: UploadKey): Promise<UploadRow> {
  const row = await database.get<UploadRow>(`SELECT ${columns} FROM uploads WHERE ${byKey}`, values(key));
  if (!row) throw uploadUnknown(key.id);
  return row;
}

/** The data folder that has the staged file of a session; undefined if there is no such session, or it is from an older version. */
export async function folderOf(database: Database, key: UploadKey): Promise<string | undefined> {
  const sql = `SELECT folder FROM uploads WHERE ${byKey}`;
  return (await database.get<{ folder: string | null }>(sql, values(key)))?.folder ?? undefined;
}

/**
 * Ends a session whose staged file cannot be reached. A writer that still has it gets `UploadUnknown`. The bytes count until
 * the file is deleted: otherwise an account could fill the disk beyond its limit.
 */
export async function loseUpload(database: Database, key: UploadKey): Promise<void> {
  const sql = `UPDATE uploads SET lost = 1, writer = NULL, writer_until = NULL WHERE ${byKey}`;
  await database.transaction((tx) => tx.run(sql, values(key)));
}

/**
 * The right to write a session's staged file. One request in one process has it, and renews it while it runs. It is stored
 * in the session's row, because instances share a disk and a file does not show which instance writes it.
 */
export class UploadLease {
  /** The row as it was when the lease was taken. */
  readonly row: UploadRow;
  readonly #database: Database;
  readonly #now: () => number;
  readonly #lost: () => void;
  readonly #renewal: NodeJS.Timeout;
  #over = false;

  private constructor(database: Database, now: () => number, row: UploadRow, lost: () => void) {
    this.#database = database;
    this.#now = now;
    this.row = row;
    this.#lost = lost;
    this.#renewal = setInterval(() => void this.#renew(), leaseTime / 3).unref();
  }

  /**
   * Takes the lease. Waits until the lease of a dead writer has expired, or was not renewed for the time of a lease: after the
   * clock was set back, it would expire much later. `UploadBusy` if another writer renews its lease, `UploadUnknown` if there
   * is no such session. `lost` is called if the lease is lost later.
   */
  static async take(database: Database, now: () => number, key: UploadKey, lost: () => void): Promise<UploadLease> {
    const writer = randomUUID();
    let seen: { writer: string | null; until: number | null } | undefined;
    let isDead = false;
    const take = async (tx: Transaction) => {
      const isFree = `writer IS NULL OR writer_until <= ?${isDead ? ' OR (writer = ? AND writer_until = ?)' : ''}`;
      const dead = isDead ? [seen!.writer, seen!.until] : [];
      // `torn` comes first: MySQL assigns from left to right, and `torn` depends on the previous writer. What that one had reserved
      // may be taken by now.
      await tx.run(
        `UPDATE uploads SET torn = CASE WHEN writer IS NULL THEN torn ELSE 1 END, writer = ?, writer_until = ?,
           reserved = received, updated_at = ? WHERE ${byKey} AND (${isFree})`,
        [writer, now() + leaseTime, now(), ...values(key), now(), ...dead],
      );
      return tx.get<UploadRow>(`SELECT ${columns} FROM uploads WHERE ${byKey}`, values(key));
    };
    for (let waited = 0; ; waited += pollInterval) {
      const row = await database.transaction(take, { fleeting: true });
      if (!row) throw uploadUnknown(key.id);
      if (row.writer === writer) return new UploadLease(database, now, row, lost);
      const { writer: other, writer_until: until } = row;
      if (isDead || (seen !== undefined && (seen.until !== until || seen.writer !== other))) throw uploadBusy();
      seen = { writer: other, until };
      isDead = waited >= leaseTime;
      await sleep(pollInterval);
    }
  }

  /**
   * Reserves room for the file to have `least` bytes, and up to `most` if there is room; resolves to the number of bytes
   * that it may have. Throws the allowance's refusal if the account's unfinished uploads have no room for `least`, `UploadUnknown` if the session was cancelled.
   */
  async reserve(least: number, most: number, { bytes, refusal }: Allowance): Promise<number> {
    return this.#database.transaction(
      async (tx) => {
        // Locks all sessions of the account, so that instances reserve one after another.
        const rows = await tx.select<{ id: string; bytes: number }>(
          `SELECT id, ${countedBytes} AS bytes FROM uploads WHERE account_id = ?${forUpdate(tx)}`,
          [this.#now(), this.row.account_id],
        );
        const all = rows.reduce((sum, { bytes: counted }) => sum + counted, 0);
        const own = rows.find(({ id }) => id === this.row.id)?.bytes ?? 0;
        const granted = Math.min(most, bytes - all + own);
        if (granted < least) throw refusal(all);
        const changed = await tx.run('UPDATE uploads SET reserved = ?, updated_at = ? WHERE id = ? AND writer = ?', [
          granted,
          this.#now(),
          this.row.id,
          this.row.writer,
        ]);
        if (changed === 0) throw uploadUnknown(this.row.id);
        return granted;
      },
      { fleeting: true },
    );
  }

  /**
   * Throws `UploadUnknown` if the session was cancelled, or if another writer has taken the lease because this process was
   * stopped for longer than the lease: the staged file then belongs to that writer.
   */
  async check(): Promise<void> {
    const row = await this.#database.get<{ writer: string | null }>('SELECT writer FROM uploads WHERE id = ?', [
      this.row.id,
    ]);
    if (row?.writer !== this.row.writer) throw uploadUnknown(this.row.id);
  }

  /**
   * Records the file's new size and releases the lease; `UploadUnknown` if the session was cancelled meanwhile. With `torn`
   * 1, an earlier writer may still have the file open.
   */
  async release(received: number, digest: Digest | null, torn = 0): Promise<void> {
    this.stop();
    const changed = await this.#database.transaction((tx) =>
      tx.run(
        `UPDATE uploads SET received = ?, reserved = ?, digest = ?, torn = ?, writer = NULL, writer_until = NULL, updated_at = ?
         WHERE id = ? AND writer = ?`,
        [received, received, digest, torn, this.#now(), this.row.id, this.row.writer],
      ),
    );
    if (changed === 0) throw uploadUnknown(this.row.id);
  }

  /** Ends the session as part of `tx`; `UploadUnknown` if it was cancelled meanwhile. */
  async end(tx: Transaction): Promise<void> {
    this.#over = true;
    const deleted = await tx.run('DELETE FROM uploads WHERE id = ? AND writer = ?', [this.row.id, this.row.writer]);
    if (deleted === 0) throw uploadUnknown(this.row.id);
  }

  /** Stops the renewals. Without a release or an end the lease then expires. */
  stop(): void {
    this.#over = true;
    clearInterval(this.#renewal);
  }

  /** A renewal that fails because of the database is repeated by the next one; two more come before the lease expires. */
  async #renew(): Promise<void> {
    const now = this.#now();
    const bound = [now + leaseTime, now, this.row.id, this.row.writer];
    const renewed = this.#database.transaction(
      (tx) => tx.run('UPDATE uploads SET writer_until = ?, updated_at = ? WHERE id = ? AND writer = ?', bound),
      { fleeting: true },
    );
    const changed = await renewed.catch(() => undefined);
    if (changed === 0 && !this.#over) this.#lost();
  }
}

/** `UploadUnknown`, for a session that has ended or expired, or never existed. */
export function uploadUnknown(id: string): DomainError {
  return new DomainError('UploadUnknown', 'This upload session does not exist, or it has ended. Start a new one.', {
    detail: { upload: id.slice(0, 36) },
  });
}

/** `UploadBusy`, for a session that another request is writing. */
export function uploadBusy(): DomainError {
  return new DomainError(
    'UploadBusy',
    'Another request is writing this upload. When it has ended, request the status of the upload and continue there.',
  );
}

/** `TooManyRequests`, for an account with `most` open sessions. */
export function tooManySessions(most: number): DomainError {
  return new DomainError(
    'TooManyRequests',
    `This account has ${most} unfinished uploads, which is the limit. Finish or cancel some; abandoned ones are removed after a while.`,
    { retryAfter: sessionRetry },
  );
}

function values(key: UploadKey): [string, number, string] {
  return [key.id, key.accountId, key.repository];
}
