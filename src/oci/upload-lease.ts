import { setTimeout as sleep } from 'node:timers/promises';
import { randomUUID } from 'node:crypto';
import type { Database, Transaction } from '../database/database.ts';
import type { Digest } from '../digest.ts';
import { DomainError } from '../errors.ts';

/** Which session of whom. */
export interface UploadKey {
  accountId: number;
  repository: string;
  id: string;
}

export interface UploadRow {
  id: string;
  received: number;
  digest: Digest | null;
  torn: number;
  writer: string | null;
  writer_until: number | null;
}

/** Milliseconds a writer holds a session without a word; it renews three times as often. */
const leaseTime = 6000;
const pollInterval = 500;

const columns = 'id, received, digest, torn, writer, writer_until';
const byKey = 'id = ? AND account_id = ? AND repository = ?';

/** The state of a session; `UploadUnknown` when the account's repository has none of that id. */
export async function readUpload(database: Database, key: UploadKey): Promise<UploadRow> {
  const row = await database.get<UploadRow>(`SELECT ${columns} FROM uploads WHERE ${byKey}`, values(key));
  if (!row) throw uploadUnknown(key.id);
  return row;
}

/**
 * The right to write a session's staged file, held by one request in one process and renewed while it lasts. It is a row's
 * column, because instances share a disk and a file's owner cannot be told from the file.
 */
export class UploadLease {
  /** As it was when the lease was taken. */
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

  /** Waits for a writer elsewhere that says nothing more; `UploadBusy` when one does, `UploadUnknown` without a session. */
  static async take(database: Database, now: () => number, key: UploadKey, lost: () => void): Promise<UploadLease> {
    const writer = randomUUID();
    let seen: number | null | undefined;
    const take = async (tx: Transaction) => {
      // `torn` first: MySQL assigns from left to right, and it is about the writer before.
      await tx.run(
        `UPDATE uploads SET torn = CASE WHEN writer IS NULL THEN torn ELSE 1 END, writer = ?, writer_until = ?,
           updated_at = ? WHERE ${byKey} AND (writer IS NULL OR writer_until <= ?)`,
        [writer, now() + leaseTime, now(), ...values(key), now()],
      );
      return tx.get<UploadRow>(`SELECT ${columns} FROM uploads WHERE ${byKey}`, values(key));
    };
    for (let waited = 0; ; waited += pollInterval) {
      const row = await database.transaction(take, { fleeting: true });
      if (!row) throw uploadUnknown(key.id);
      if (row.writer === writer) return new UploadLease(database, now, row, lost);
      if ((seen !== undefined && row.writer_until !== seen) || waited > leaseTime) throw uploadBusy();
      seen = row.writer_until;
      await sleep(pollInterval);
    }
  }

  /** Records what the file holds now and lets go; `UploadUnknown` when the session was cancelled meanwhile. */
  async release(received: number, digest: Digest | null): Promise<void> {
    this.stop();
    const changed = await this.#database.transaction((tx) =>
      tx.run(
        `UPDATE uploads SET received = ?, digest = ?, torn = 0, writer = NULL, writer_until = NULL, updated_at = ?
         WHERE id = ? AND writer = ?`,
        [received, digest, this.#now(), this.row.id, this.row.writer],
      ),
    );
    if (changed === 0) throw uploadUnknown(this.row.id);
  }

  /** Ends the session as part of `tx`; `UploadUnknown` when it was cancelled meanwhile. */
  async end(tx: Transaction): Promise<void> {
    this.#over = true;
    const deleted = await tx.run('DELETE FROM uploads WHERE id = ? AND writer = ?', [this.row.id, this.row.writer]);
    if (deleted === 0) throw uploadUnknown(this.row.id);
  }

  /** No more renewals; without a release or an end the lease runs out. */
  stop(): void {
    this.#over = true;
    clearInterval(this.#renewal);
  }

  /** What a database that is away for a moment leaves undone, the next renewal does: there are two more in time. */
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

/** `UploadUnknown`, for a session that ended, expired or never was. */
export function uploadUnknown(id: string): DomainError {
  return new DomainError('UploadUnknown', 'There is no such upload session, or it has ended. Start a new one.', {
    detail: { upload: id.slice(0, 36) },
  });
}

/** `UploadBusy`, while another request writes the session. */
export function uploadBusy(): DomainError {
  return new DomainError(
    'UploadBusy',
    'Another request is writing this upload. Ask for its status and go on from there when that request has ended.',
  );
}

function values(key: UploadKey): [string, number, string] {
  return [key.id, key.accountId, key.repository];
}
