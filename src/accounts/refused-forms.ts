import { randomBytes } from 'node:crypto';
import { placeholders, type Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Principal } from './principal.ts';

/** Milliseconds for which a form is kept. */
const keptFor = 3_600_000;
/** Forms that are kept of a token or a person. */
const maxForms = 10;
/** Most characters of a form. */
const maxLength = 100_000;

/**
 * Forms of the console that were refused, for an hour, so that the page that shows one with its errors has an address, and can
 * be loaded again. Only who sent a form sees it, in the same account.
 */
export class RefusedForms {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /**
   * Keeps a form; of more than 10, the latest. Resolves to its ID. Throws `TooLarge` for more than 100,000 characters, and
   * `Unauthorized` for an anonymous visitor.
   */
  async keep(principal: Principal, content: string): Promise<string> {
    if (content.length > maxLength) {
      throw new DomainError('TooLarge', 'The form is too large to be shown again with its errors. Send less.');
    }
    const owner = ownerOf(principal);
    if (owner === undefined) throw new DomainError('Unauthorized', 'Sign in to send a form.');
    const id = randomBytes(16).toString('base64url');
    await this.#database.transaction(
      async (tx) => {
        const sql = 'SELECT id FROM refused_forms WHERE owner = ? ORDER BY created_at DESC, id LIMIT 100';
        const others = (await tx.select<{ id: string }>(sql, [owner])).map((each) => each.id).slice(maxForms - 1);
        if (others.length > 0) {
          await tx.run(`DELETE FROM refused_forms WHERE id IN (${placeholders(others)})`, others);
        }
        const row = { id, account_id: principal.accountId, owner, content, created_at: this.#now() };
        await tx.insert('refused_forms', row);
      },
      { uncached: true },
    );
    return id;
  }

  /** The form with an ID, if `principal` sent it within the last hour. */
  async find(principal: Principal, id: string): Promise<string | undefined> {
    const owner = ownerOf(principal);
    if (owner === undefined) return undefined;
    const row = await this.#database.get<{ content: string }>(
      'SELECT content FROM refused_forms WHERE id = ? AND owner = ? AND account_id = ? AND created_at > ?',
      [id, owner, principal.accountId, this.#now() - keptFor],
    );
    return row?.content;
  }

  /** Deletes up to 200 forms that are kept no longer. */
  async deleteOld(): Promise<void> {
    const rows = await this.#database.select<{ id: string }>(
      'SELECT id FROM refused_forms WHERE created_at <= ? ORDER BY created_at LIMIT 200',
      [this.#now() - keptFor],
    );
    if (rows.length === 0) return;
    const ids = rows.map(({ id }) => id);
    const sql = `DELETE FROM refused_forms WHERE id IN (${placeholders(ids)})`;
    await this.#database.transaction((tx) => tx.run(sql, ids), { uncached: true });
  }
}

/** The token or the person; undefined for an anonymous visitor. */
function ownerOf(principal: Principal): string | undefined {
  if (principal.kind === 'anonymous') return undefined;
  return principal.kind === 'person' ? principal.personId : principal.tokenId;
}
