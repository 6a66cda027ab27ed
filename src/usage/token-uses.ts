import { inTurn } from '../runtime/in-turn.ts';
import { placeholders, type Database, type Value } from '../database/database.ts';
import { isBillable, isDownload, type Use } from './counters.ts';
import { usageName } from './record.ts';

/** The kind of a use that says from where: its name is an address, a space and the `User-Agent`. */
export const clientKind = 'client';

/** What was done with a token, or with the tokens that a rule gave, under one name. */
export interface TokenUse {
  kind: string;
  name: string;
  /** The ID of the token or of the rule. */
  userId: string;
  /** All of them since the first use after which there were never 30 days without one. */
  downloads: number;
  uploads: number;
  /** Milliseconds since 1970 UTC. */
  lastAt: number;
}

/** How long a use is kept after its last request, in milliseconds. */
const keepFor = 30 * 86_400_000;
/** Clients of a token that are kept, the latest. */
const maxClients = 20;
/** Most different uses in memory until the next flush. Further ones are lost. */
const maxUnwritten = 5000;
/** Clients whose rows are known to this process, so that old ones are looked for only when a new one comes. */
const maxKnown = 10_000;
const rowsPerStatement = 500;

const columns = 'kind, name, user_id AS userId, downloads, uploads, last_at AS lastAt';

type Unwritten = TokenUse & { accountId: number };

/** What was done with each token in the last 30 days, and from where. */
export class TokenUses {
  readonly #database: Database;
  readonly #now: () => number;
  #unwritten = new Map<string, Unwritten>();
  readonly #known = new Set<string>();

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Counts a finished request with a token; the next flush writes it. */
  note(accountId: number, userId: string, use: Use, client: string): void {
    this.#add(accountId, userId, use.at, clientKind, client.slice(0, 255));
    const isPull = isDownload(use);
    if (use.kind === 'other' || use.subject === '' || !isBillable(use.status)) return;
    if (!isPull && use.act !== 'upload') return;
    const entry = this.#add(accountId, userId, use.at, use.kind, usageName(use.subject));
    if (entry) entry[isPull ? 'downloads' : 'uploads'] += 1;
  }

  #add(accountId: number, userId: string, lastAt: number, kind: string, name: string): Unwritten | undefined {
    const key = `${userId} ${kind} ${name}`;
    let entry = this.#unwritten.get(key);
    if (!entry) {
      if (this.#unwritten.size >= maxUnwritten) return undefined;
      entry = { accountId, kind, name, userId, downloads: 0, uploads: 0, lastAt };
      this.#unwritten.set(key, entry);
    }
    entry.lastAt = lastAt;
    return entry;
  }

  /** Writes what was counted. What cannot be written is lost. */
  readonly flush = inTurn(() => this.#write());

  async #write(): Promise<void> {
    const uses = [...this.#unwritten];
    this.#unwritten = new Map();
    uses.sort(([one], [other]) => (one < other ? -1 : 1));
    const key = ['account_id', 'kind', 'name', 'user_id'];
    const update = `downloads = token_uses.downloads + new.downloads, uploads = token_uses.uploads + new.uploads,
      last_at = new.last_at`;
    for (let start = 0; start < uses.length; start += rowsPerStatement) {
      const rows = uses.slice(start, start + rowsPerStatement).map(([, { accountId, userId, lastAt, ...rest }]) => {
        return { account_id: accountId, ...rest, user_id: userId, last_at: lastAt };
      });
      await this.#database.transaction((tx) => tx.upsert('token_uses', key, rows, update), { fleeting: true });
    }
    const fresh = uses.filter(([id, { kind }]) => kind === clientKind && !this.#known.has(id));
    if (this.#known.size + fresh.length > maxKnown) this.#known.clear();
    for (const [id] of fresh) this.#known.add(id);
    for (const userId of new Set(fresh.map(([, each]) => each.userId))) await this.#dropOldClients(userId);
  }

  async #dropOldClients(userId: string): Promise<void> {
    const condition = 'user_id = ? AND kind = ?';
    const values = [userId, clientKind];
    const first = await this.#database.get<{ lastAt: number }>(
      `SELECT last_at AS lastAt FROM token_uses WHERE ${condition} ORDER BY last_at DESC LIMIT 1 OFFSET ?`,
      [...values, maxClients],
    );
    if (!first) return;
    const sql = `DELETE FROM token_uses WHERE ${condition} AND last_at <= ?`;
    await this.#database.transaction((tx) => tx.run(sql, [...values, first.lastAt]), { fleeting: true });
  }

  /** Up to `limit` uses of a token or rule of the account, of one kind, the latest first. */
  async of(accountId: number, userId: string, kind: string, limit: number): Promise<TokenUse[]> {
    // Without `+ 0`, the planner may read all uses of the account.
    return this.#read('user_id = ? AND kind = ? AND account_id + 0 = ?', [userId, kind, accountId], limit);
  }

  /** Up to `limit` uses of a name, the latest first. */
  async under(accountId: number, kind: string, name: string, limit: number): Promise<TokenUse[]> {
    return this.#read('account_id = ? AND kind = ? AND name = ?', [accountId, kind, name], limit);
  }

  /** When a client last used a token of the account, in the last 30 days; null if none did. */
  async latestClient(accountId: number): Promise<number | null> {
    // Clients ask for this often, so it writes nothing.
    const unwritten = [...this.#unwritten.values()].filter((each) => each.kind === clientKind);
    const latest = Math.max(0, ...unwritten.filter((each) => each.accountId === accountId).map(({ lastAt }) => lastAt));
    if (latest > 0) return latest;
    const sql = 'SELECT MAX(last_at) AS lastAt FROM token_uses WHERE account_id = ? AND kind = ?';
    return (await this.#database.get<{ lastAt: number | null }>(sql, [accountId, clientKind]))!.lastAt;
  }

  /** When each of these tokens and rules was last used by a client, in the last 30 days. */
  async lastOf(userIds: readonly string[]): Promise<Map<string, number>> {
    if (userIds.length === 0) return new Map();
    await this.flush().catch(() => undefined);
    const rows = await this.#database.select<{ userId: string; lastAt: number }>(
      `SELECT user_id AS userId, MAX(last_at) AS lastAt FROM token_uses
       WHERE user_id IN (${placeholders(userIds)}) AND kind = ? GROUP BY user_id`,
      [...userIds, clientKind],
    );
    return new Map(rows.map(({ userId, lastAt }) => [userId, lastAt]));
  }

  /** When each of `names` was last used with a token, if one was. */
  async lastUnder(accountId: number, kind: string, names: readonly string[]): Promise<Map<string, number>> {
    await this.flush().catch(() => undefined);
    const last = new Map<string, number>();
    for (let start = 0; start < names.length; start += rowsPerStatement) {
      const some = names.slice(start, start + rowsPerStatement);
      const rows = await this.#database.select<{ name: string; lastAt: number }>(
        `SELECT name, MAX(last_at) AS lastAt FROM token_uses
         WHERE account_id = ? AND kind = ? AND name IN (${placeholders(some)}) GROUP BY name`,
        [accountId, kind, ...some],
      );
      for (const { name, lastAt } of rows) last.set(name, lastAt);
    }
    return last;
  }

  /** The latest use of each of `names`, if there was one. */
  async latest(accountId: number, kind: string, names: readonly string[]): Promise<Map<string, TokenUse>> {
    if (names.length === 0) return new Map();
    await this.flush().catch(() => undefined);
    // The rows of each name are read twice, and not once for each of them.
    const rows = await this.#database.select<TokenUse>(
      `SELECT ${columns.replaceAll(/(^|, )/g, '$1u.')} FROM
         (SELECT name, MAX(last_at) AS latest FROM token_uses
          WHERE account_id = ? AND kind = ? AND name IN (${placeholders(names)}) GROUP BY name) l
       CROSS JOIN token_uses u ON u.account_id = ? AND u.kind = ? AND u.name = l.name AND u.last_at = l.latest`,
      [accountId, kind, ...names, accountId, kind],
    );
    return new Map(rows.map((row) => [row.name, row]));
  }

  /** With those of this process that are not written yet. */
  async #read(condition: string, values: readonly Value[], limit: number): Promise<TokenUse[]> {
    await this.flush().catch(() => undefined);
    const sql = `SELECT ${columns} FROM token_uses WHERE ${condition} ORDER BY last_at DESC LIMIT ?`;
    return this.#database.select<TokenUse>(sql, [...values, limit]);
  }

  /** Deletes old uses. */
  async deleteOld(): Promise<void> {
    const sql = 'DELETE FROM token_uses WHERE last_at <= ?';
    await this.#database.transaction((tx) => tx.run(sql, [this.#now() - keepFor]), { fleeting: true });
  }
}
