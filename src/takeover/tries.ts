import { hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../database/database.ts';
import { untilCallerLeaves } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';

/** Wrong passwords of one user that a predecessor gets in this time: directories often lock a user out after five. */
const maxTries = 3;
const triesIn = 30 * 60_000;
/** Milliseconds after which a question without an answer is one of a process that died. */
const longestAsking = 60_000;
/** Milliseconds between two looks at whether the questions of others are answered. */
const lookEvery = 100;
const fleeting = { fleeting: true };
const ofUser = 'WHERE predecessor = ? AND user_hash = ?';

/** A name of a user as directories compare them: most take names that differ in letter case only as one user. */
export function directoryName(user: string): string {
  return user.normalize('NFKC').trim().toLowerCase();
}

/** Counts the wrong passwords of each user that predecessors get from all processes together. */
export class Tries {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /**
   * Runs `ask`, which asks a predecessor whether a password of this user is right. While as many questions as it may get are
   * not answered, it waits, because each of them may have the right one. A question without an answer counts as a wrong password.
   * With `isKnown`, it does not count: the predecessor accepted this password before. Throws `TooManyRequests` after too many wrong
   * passwords.
   */
  async run(predecessor: string, user: string, ask: () => Promise<boolean>, isKnown = false): Promise<boolean> {
    const key = [predecessor, hash('sha256', directoryName(user))] as const;
    while (!(await this.#begin(key))) await untilCallerLeaves(sleep(lookEvery));
    let isRight: boolean | undefined;
    try {
      isRight = await ask();
    } finally {
      await this.#end(key, isRight ? 'right' : isRight === undefined && isKnown ? 'uncounted' : 'wrong');
    }
    return isRight;
  }

  /** Counts a question; false while those of others may still be right. */
  #begin(key: readonly [predecessor: string, userHash: string]): Promise<boolean> {
    const [predecessor, userHash] = key;
    return this.#database.transaction(async (tx) => {
      const now = this.#now();
      await tx.run('DELETE FROM adopted_tries WHERE asked_at <= ?', [now - triesIn]);
      const none = { predecessor, user_hash: userHash, tries: 0, asking: 0, asked_at: now };
      await tx.insertNew('adopted_tries', [none]);
      const count = `UPDATE adopted_tries SET tries = tries + 1, asking = asking + 1, asked_at = ? ${ofUser} AND tries < ?`;
      if ((await tx.run(count, [now, ...key, maxTries])) > 0) return true;
      const sql = `SELECT 1 AS one FROM adopted_tries ${ofUser} AND asking > 0 AND asked_at > ?`;
      if (await tx.get(sql, [...key, now - longestAsking])) return false;
      const message = `Not signed in: too many wrong passwords of this user. Correct the password and try again later, or use a token of this server.`;
      throw new DomainError('TooManyRequests', message, { retryAfter: triesIn / 1000 });
    }, fleeting);
  }

  /** The right password shows that the wrong ones were mistakes. */
  async #end(
    key: readonly [predecessor: string, userHash: string],
    result: 'right' | 'wrong' | 'uncounted',
  ): Promise<void> {
    const less = result === 'uncounted' ? ', tries = tries - 1' : '';
    const sql =
      result === 'right'
        ? `DELETE FROM adopted_tries ${ofUser}`
        : `UPDATE adopted_tries SET asking = asking - 1${less} ${ofUser} AND asking > 0`;
    await this.#database.transaction((tx) => tx.run(sql, key), fleeting);
  }
}
