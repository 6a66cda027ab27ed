import { placeholders, type Database, type Transaction } from '../database/database.ts';
import { afterKey } from '../database/tables.ts';
import { pagesOf } from '../runtime/pages.ts';
import { dayOf } from './period.ts';
import type { PullAct, PullUser } from './pulls.ts';

/** A version of a package, or a digest of an image, that an account used. */
export interface UsedContent {
  id: string;
  accountId: number;
  kind: string;
  name: string;
  reference: string;
  /** The last day on which it was used; milliseconds since 1970 UTC. */
  lastDay: number;
}

/** Content, and whether known vulnerabilities were compared with it before; 0 or 1. */
export type ComparedContent = UsedContent & { isCompared: number };

/** One content and one user. Times are in milliseconds since 1970 UTC. */
export interface ContentUse {
  contentId: string;
  userId: string;
  count: number;
  firstAt: number;
  lastAt: number;
}

const idsPerStatement = 200;
const rowsPerPage = 1000;
const columns = 'id, account_id AS accountId, kind, name, reference, last_day AS lastDay';
/** Rows that are read to count users. */
const maxCounted = 10_000;

/** Reads who pulled and pushed which content. What this process has not written yet is missing: flush usage before. */
export class PullList {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** The contents under a name, in the order of accounts, some at a time; of one account, if it is given. */
  under({ accountId, kind, name }: { accountId: number | undefined; kind: string; name: string }) {
    const of = accountIs(accountId);
    const read = (after: [accountId: number, id: string]) => {
      const rest = afterKey(this.#database, ['account_id', 'id'], after);
      return this.#database.select<UsedContent>(
        `SELECT ${columns} FROM pull_contents WHERE kind = ? AND name = ? ${of.sql} AND ${rest.sql}
         ORDER BY account_id, id LIMIT ${rowsPerPage}`,
        [kind, name, ...of.values, ...rest.values],
      );
    };
    return pagesOf([0, ''], rowsPerPage, read, (row): [number, string] => [row.accountId, row.id]);
  }

  /** The names of a kind, some at a time; of one account, if it is given. */
  names(accountId: number | undefined, kind: string) {
    const of = accountIs(accountId);
    const sql = `SELECT DISTINCT name FROM pull_contents WHERE kind = ? ${of.sql} AND name > ? ORDER BY name LIMIT ${rowsPerPage}`;
    const read = (after: string) => this.#database.select<{ name: string }>(sql, [kind, ...of.values, after]);
    return pagesOf('', rowsPerPage, read, ({ name }) => name);
  }

  /** Up to `limit` contents of all accounts, by kind, name, account and ID, after `after`. */
  async toCompare(
    after: readonly [kind: string, name: string, accountId: number, id: string],
    limit: number,
  ): Promise<ComparedContent[]> {
    const { sql, values } = afterKey(this.#database, ['kind', 'name', 'account_id', 'id'], after);
    return this.#database.select<ComparedContent>(
      `SELECT ${columns}, is_compared AS isCompared FROM pull_contents WHERE ${sql}
       ORDER BY kind, name, account_id, id LIMIT ?`,
      [...values, limit],
    );
  }

  /** Notes that contents were compared. */
  async setCompared(tx: Transaction, ids: readonly string[]): Promise<void> {
    for (let start = 0; start < ids.length; start += idsPerStatement) {
      const some = ids.slice(start, start + idsPerStatement);
      await tx.run(`UPDATE pull_contents SET is_compared = 1 WHERE id IN (${placeholders(some)})`, some);
    }
  }

  /** How many users pulled contents; of very many, fewer are counted. */
  async countUsers(ids: readonly string[]): Promise<number> {
    const some = ids.slice(0, idsPerStatement);
    const row = await this.#database.get<{ users: number }>(
      `SELECT COUNT(DISTINCT user_id) AS users FROM (SELECT user_id FROM pulls
       WHERE content_id IN (${placeholders(some)}) AND act = 'pull' LIMIT ${maxCounted}) AS some`,
      some,
    );
    return row!.users;
  }

  /** Up to `limit` contents with these references, under one of `names`, or under any name if there are none. */
  async withReferences(
    accountId: number | undefined,
    references: readonly string[],
    names: readonly string[],
    limit: number,
  ): Promise<UsedContent[]> {
    if (references.length === 0) return [];
    const of = accountIs(accountId);
    const named = names.length === 0 ? '' : `AND name IN (${placeholders(names)})`;
    return this.#database.select<UsedContent>(
      `SELECT ${columns} FROM pull_contents WHERE reference IN (${placeholders(references)}) ${of.sql} ${named} LIMIT ?`,
      [...references, ...of.values, ...names, limit],
    );
  }

  /**
   * Up to `limit` pairs of these contents, whose IDs are in order, and those who pulled them on the day of `since` or later, after
   * `after`.
   */
  async pulls(
    contentIds: readonly string[],
    since: number,
    limit: number,
    after: readonly [contentId: string, userId: string] = ['', ''],
  ): Promise<ContentUse[]> {
    const found: ContentUse[] = [];
    const rest = contentIds.filter((id) => id >= after[0]);
    for (let start = 0; start < rest.length && found.length < limit; start += idsPerStatement) {
      const some = rest.slice(start, start + idsPerStatement);
      const { sql, values } = afterKey(this.#database, ['content_id', 'user_id'], after);
      const rows = await this.#database.select<Omit<ContentUse, 'count'> & { count: number | string }>(
        `SELECT content_id AS contentId, user_id AS userId, SUM(count) AS count, MIN(first_at) AS firstAt, MAX(last_at) AS lastAt
         FROM pulls WHERE content_id IN (${placeholders(some)}) AND act = 'pull' AND ${sql} AND day >= ?
         GROUP BY content_id, user_id ORDER BY content_id, user_id LIMIT ?`,
        [...some, ...values, dayOf(since), limit - found.length],
      );
      // A sum is a text on MySQL.
      found.push(...rows.map((row) => ({ ...row, count: Number(row.count) })));
    }
    return found;
  }

  /** Up to `limit` contents that a user used in one way between two times, with them: the latest first. */
  async usesOf(
    userId: string,
    act: PullAct,
    { since, until }: { since: number; until: number },
    limit: number,
  ): Promise<(ContentUse & UsedContent)[]> {
    // Rows of several days of one content are read as well, so that no more of them are read than needed.
    const rows = await this.#database.select<ContentUse>(
      `SELECT content_id AS contentId, user_id AS userId, count, first_at AS firstAt, last_at AS lastAt FROM pulls
       WHERE user_id = ? AND act = ? AND last_at >= ? AND first_at <= ? ORDER BY last_at DESC LIMIT ?`,
      [userId, act, since, until, 4 * limit],
    );
    const uses = new Map<string, ContentUse>();
    for (const row of rows) {
      const known = uses.get(row.contentId);
      if (known) uses.set(row.contentId, { ...known, count: known.count + row.count, firstAt: row.firstAt });
      else if (uses.size < limit) uses.set(row.contentId, row);
    }
    const contents = await this.contents([...uses.keys()]);
    return [...uses.values()].flatMap((use) => {
      const content = contents.get(use.contentId);
      return content ? [{ ...use, ...content }] : [];
    });
  }

  /** Contents by their IDs. */
  async contents(ids: readonly string[]): Promise<Map<string, UsedContent>> {
    const found = new Map<string, UsedContent>();
    for (let start = 0; start < ids.length; start += idsPerStatement) {
      const some = ids.slice(start, start + idsPerStatement);
      const sql = `SELECT ${columns} FROM pull_contents WHERE id IN (${placeholders(some)})`;
      for (const row of await this.#database.select<UsedContent>(sql, some)) found.set(row.id, row);
    }
    return found;
  }

  /** Users by their IDs. */
  async users(ids: readonly string[]): Promise<Map<string, PullUser>> {
    const found = new Map<string, PullUser>();
    for (let start = 0; start < ids.length; start += idsPerStatement) {
      const some = ids.slice(start, start + idsPerStatement);
      const sql = `SELECT id, facts FROM pull_users WHERE id IN (${placeholders(some)})`;
      for (const { id, facts } of await this.#database.select<{ id: string; facts: string }>(sql, some))
        found.set(id, { id, ...(JSON.parse(facts) as Omit<PullUser, 'id'>) });
    }
    return found;
  }
}

/** The end of a condition: only rows of this account, if it is given. */
function accountIs(accountId: number | undefined): { sql: string; values: number[] } {
  return accountId === undefined ? { sql: '', values: [] } : { sql: 'AND account_id = ?', values: [accountId] };
}
