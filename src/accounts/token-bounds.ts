import { placeholders, type Transaction } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import type { TokenRow } from './token-rows.ts';

/** Tokens of an account that are valid at a time, and that have rows; without those that rules gave. A rule gives as many. */
const maxValid = 1000;
const maxKept = 2000;
/** Valid tokens of one person in all accounts. */
const maxPersonal = 50;
/** Ended tokens that are deleted in one transaction. */
const batch = 500;
/** A revoked one that a start made is kept: it must not be made again at the next start. Clients may use its name, too. */
export const firstToken = 'first token';
const isFirst = `name = ? AND (created_by IS NULL OR created_by LIKE '{"kind":"system",%')`;

/**
 * Throws `QuotaExceeded` if the account has too many valid tokens. Deletes the oldest of those that are valid no more, when
 * there are too many.
 */
export async function makeRoom(tx: Transaction, accountId: number, now: number): Promise<void> {
  const isValid = 'revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)';
  const { total, valid } = (await tx.get<{ total: number; valid: number | string | null }>(
    `SELECT COUNT(*) AS total, SUM(CASE WHEN ${isValid} THEN 1 ELSE 0 END) AS valid FROM tokens
     WHERE account_id = ? AND publisher_id IS NULL`,
    [now, accountId],
  ))!;
  if (Number(valid) >= maxValid) {
    throw new DomainError(
      'QuotaExceeded',
      `An account has at most ${maxValid} valid tokens. Revoke one that is not needed.`,
    );
  }
  if (total < maxKept) return;
  const ended = await tx.select<{ id: string }>(
    `SELECT id FROM tokens WHERE account_id = ? AND publisher_id IS NULL AND NOT (${isFirst}) AND NOT (${isValid})
     ORDER BY created_at, id LIMIT ${batch}`,
    [accountId, firstToken, now],
  );
  const ids = ended.map(({ id }) => id);
  if (ids.length > 0) await tx.run(`DELETE FROM tokens WHERE id IN (${placeholders(ids)})`, ids);
}

/** Throws if a rule, also by tokens that it gave, has given too many valid tokens, or if a person has too many. */
export async function boundTokens(
  tx: Transaction,
  { publisher_id: rule, owner_id: person }: TokenRow,
  now: number,
): Promise<void> {
  const valid = async (column: string, id: string) => {
    const condition = `${column} = ? AND (expires_at IS NULL OR expires_at > ?) AND revoked_at IS NULL`;
    const sql = `SELECT COUNT(*) AS n FROM tokens WHERE ${condition}`;
    return (await tx.get<{ n: number }>(sql, [id, now]))!.n;
  };
  if (rule !== null && (await valid('publisher_id', rule)) >= maxValid) {
    const message = `The rule of this token has given ${maxValid} tokens that are valid.`;
    throw new DomainError('TooManyRequests', message, { retryAfter: 60 });
  }
  if (person !== null && (await valid('owner_id', person)) >= maxPersonal) {
    const message = `A person has at most ${maxPersonal} valid tokens. Revoke one that is not needed.`;
    throw new DomainError('QuotaExceeded', message);
  }
}
