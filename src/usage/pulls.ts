import { hash } from 'node:crypto';
import type { CiJob, Principal } from '../accounts/principal.ts';
import { placeholders, type Database, type Row, type Transaction } from '../database/database.ts';
import { pause } from '../runtime/event-loop.ts';
import { isDownload, type Use } from './counters.ts';
import { forgetPushes, notePushes, type ObservedPush } from './observed-pushes.ts';
import { dayOf } from './period.ts';

/** Whether content was got from this server, or sent to it. */
export type PullAct = 'pull' | 'push';

/** Who used content. All clients without a credential are one user of an account, and all people in the console another one. */
export interface PullUser {
  id: string;
  kind: 'token' | 'job' | 'anonymous' | 'console';
  /** Of a token its name, of a job that of the rule that gave its token. */
  name: string | null;
  ruleId: string | null;
  /** The person whose personal token it is. */
  person: string | null;
  job: CiJob | null;
}

/** How often content was used, and when first and last; milliseconds since 1970 UTC. */
interface SeenContent {
  count: number;
  firstAt: number;
  lastAt: number;
}

/** What a user got and sent under one name on one day, since the last flush. */
export interface UsedContents {
  by: Principal['kind'];
  user: PullUser;
  /** By version or digest. */
  pulled: Map<string, SeenContent>;
  pushed: Map<string, SeenContent>;
}

/** Where they were used. */
interface UsedName {
  accountId: number;
  kind: string;
  name: string;
  day: number;
  contents: readonly UsedContents[];
}

/** The rows that a transaction wrote, by table and key, with their last day. */
export type WrittenPulls = ReadonlyMap<string, number>;

const rowsPerStatement = 50;
/** Rows of contents and users that this process knows to be written for a day. */
const maxKnown = 100_000;
const maxReference = 255;
/** Most rows of all days. When there are more, the oldest days are deleted. */
const maxRows = 20_000_000;
const rowsPerDeletion = 500;

/** Who it is that sends a request. */
function pullUserOf(principal: Principal): PullUser {
  const none = { name: null, ruleId: null, person: null, job: null };
  const { kind, accountId } = principal;
  if (kind === 'anonymous') return { ...none, id: `anonymous-${accountId}`, kind };
  if (kind === 'person') return { ...none, id: `console-${accountId}`, kind: 'console' };
  const { tokenId, tokenName: name, publisherId: ruleId, personName: person, job } = principal;
  if (job) return { id: job.id, kind: 'job', name, ruleId, person: null, job };
  return { id: tokenId, kind, name, ruleId, person, job };
}

/** Notes content that a request got or sent, if it did. `contents` are those with the same token, or without one. */
export function noteContent(
  contents: UsedContents[],
  principal: Principal,
  use: Pick<Use, 'at' | 'act' | 'status' | 'complete'>,
  reference: string,
): void {
  const isPush = use.act === 'upload' && (use.status === 201 || use.status === 303);
  // An index of an image is no download, but its client has got it. So has a client that got the last part of a file.
  const isPull = isDownload({ ...use, act: 'download' }) || (use.status === 206 && use.complete);
  if (!isPush && !isPull) return;
  let used = contents.find(({ by }) => by === principal.kind);
  if (!used) {
    used = { by: principal.kind, user: pullUserOf(principal), pulled: new Map(), pushed: new Map() };
    contents.push(used);
  }
  const seen = isPush ? used.pushed : used.pulled;
  const before = seen.get(reference);
  if (!before) {
    seen.set(reference, { count: 1, firstAt: use.at, lastAt: use.at });
    return;
  }
  before.count += 1;
  before.lastAt = use.at;
}

/** The ID of content of an account. */
function contentIdOf(accountId: number, kind: string, name: string, reference: string): string {
  return hash('sha256', JSON.stringify([accountId, kind, name, reference])).slice(0, 32);
}

/** The table of who pulled and pushed what on which day: written with usage, and kept for as long as a setting says. */
export class Pulls {
  readonly #database: Database;
  readonly #keep: number;
  readonly #maxRows: number;
  readonly #known = new Map<string, number>();
  /** Numbers of rows of days that have ended. */
  readonly #counted = new Map<number, number>();

  /** `keep` is in milliseconds; 0 writes nothing. */
  constructor(database: Database, keep: number, max = maxRows) {
    this.#database = database;
    this.#keep = keep;
    this.#maxRows = max;
  }

  /** Adds what was used. Call `remember` with the result when the transaction has ended. */
  async write(tx: Transaction, entries: readonly UsedName[]): Promise<WrittenPulls> {
    const written = new Map<string, number>();
    if (this.#keep === 0) return written;
    const contents = new Map<string, Row>();
    const users = new Map<string, Row>();
    const [pulls, sums] = [new Map<string, Row>(), new Map<string, SeenContent>()];
    const pushes: (ObservedPush & { accountId: number })[] = [];
    const isNew = (key: string, day: number) => {
      if ((this.#known.get(key) ?? -1) >= day) return false;
      written.set(key, Math.max(day, written.get(key) ?? 0));
      return true;
    };
    const all = entries.flatMap(({ contents: each, ...at }) => each.map((used) => ({ ...at, used })));
    for (const { accountId, kind, name, day, used } of all) {
      if (kind === 'other' || name === '') continue;
      const { id: userId, ...facts } = used.user;
      for (const act of ['pull', 'push'] as const) {
        for (const [text, seen] of act === 'pull' ? used.pulled : used.pushed) {
          const reference = text.slice(0, maxReference);
          const id = contentIdOf(accountId, kind, name, reference);
          if (isNew(`content ${id}`, day))
            contents.set(id, { id, account_id: accountId, kind, name, reference, last_day: day, is_compared: 0 });
          if (isNew(`user ${userId}`, day))
            users.set(userId, { id: userId, account_id: accountId, facts: JSON.stringify(facts), last_day: day });
          // Two tokens of one job have the same key, and so have references that are too long and were cut.
          const key = `${id} ${act} ${userId} ${day}`;
          const { count, firstAt, lastAt } = joined(sums.get(key), seen);
          sums.set(key, { count, firstAt, lastAt });
          pulls.set(key, { content_id: id, act, user_id: userId, day, count, first_at: firstAt, last_at: lastAt });
          if (act === 'push' && facts.kind === 'job')
            pushes.push({ accountId, contentId: id, userId, pushedAt: seen.firstAt });
        }
      }
    }
    await upsertAll(tx, 'pull_contents', ['id'], contents, laterDay('pull_contents'));
    await upsertAll(tx, 'pull_users', ['id'], users, `facts = new.facts, ${laterDay('pull_users')}`);
    const earliest = 'CASE WHEN new.first_at < pulls.first_at THEN new.first_at ELSE pulls.first_at END';
    const latest = 'CASE WHEN new.last_at > pulls.last_at THEN new.last_at ELSE pulls.last_at END';
    const update = `count = pulls.count + new.count, first_at = ${earliest}, last_at = ${latest}`;
    await upsertAll(tx, 'pulls', ['content_id', 'act', 'user_id', 'day'], pulls, update);
    await notePushes(tx, pushes);
    return written;
  }

  /** Notes that rows are written, so that they are not written again on the same day. */
  remember(written: WrittenPulls): void {
    if (this.#known.size + written.size > maxKnown) this.#known.clear();
    for (const [key, day] of written) this.#known.set(key, day);
  }

  /**
   * Deletes the days that are older than the setting, and the oldest ones when there are too many rows; resolves to the number of
   * rows. `now` is the time for deletions by age. `dropWith` deletes what belongs to contents that nobody used on another day.
   */
  async deleteOld(
    now: number,
    signal: AbortSignal,
    dropWith: (tx: Transaction, contentIds: readonly string[]) => Promise<void>,
  ): Promise<number> {
    const first = await this.#firstKept(now, signal);
    let deleted = 0;
    for (;;) {
      signal.throwIfAborted();
      const some = await this.#deleteSome(first);
      if (some === 0) break;
      deleted += some;
    }
    await this.#deleteUnused('pull_contents', first, signal, dropWith);
    await this.#deleteUnused('pull_users', first, signal);
    return deleted;
  }

  /** Deletes contents or users without a use on the day `first` or later. */
  async #deleteUnused(
    table: 'pull_contents' | 'pull_users',
    first: number,
    signal: AbortSignal,
    dropWith?: (tx: Transaction, ids: readonly string[]) => Promise<void>,
  ): Promise<void> {
    const some = `SELECT id FROM ${table} WHERE last_day < ? LIMIT ${rowsPerDeletion}`;
    for (;;) {
      signal.throwIfAborted();
      const ids = (await this.#database.select<{ id: string }>(some, [first])).map(({ id }) => id);
      if (ids.length === 0) return;
      await this.#database.transaction(async (tx) => {
        await tx.run(`DELETE FROM ${table} WHERE id IN (${placeholders(ids)}) AND last_day < ?`, [...ids, first]);
        if (table === 'pull_contents') await forgetPushes(tx, ids);
        await dropWith?.(tx, ids);
      });
    }
  }

  /** The first day that is kept. */
  async #firstKept(now: number, signal: AbortSignal): Promise<number> {
    const today = dayOf(now);
    const oldest = dayOf(now - this.#keep);
    let rows = 0;
    for (let day = await this.#lastDay(today + 86_400_000); day >= oldest; day = await this.#lastDay(day)) {
      signal.throwIfAborted();
      rows += await this.#countOf(day, today);
      if (rows > this.#maxRows && day < today) return day + 86_400_000;
    }
    return this.#keep === 0 ? today + 86_400_000 : oldest;
  }

  /** The last day before another one that has rows; -1 if there is none. */
  async #lastDay(before: number): Promise<number> {
    const sql = 'SELECT MAX(day) AS day FROM pulls WHERE day < ?';
    return (await this.#database.get<{ day: number | null }>(sql, [before]))!.day ?? -1;
  }

  async #countOf(day: number, today: number): Promise<number> {
    const known = this.#counted.get(day);
    if (known !== undefined) return known;
    await pause();
    const row = await this.#database.get<{ n: number }>('SELECT COUNT(*) AS n FROM pulls WHERE day = ?', [day]);
    // Counts of the day before may still be written.
    if (day < today - 86_400_000) this.#counted.set(day, row!.n);
    return row!.n;
  }

  /** Deletes rows of the oldest day before `first`. */
  async #deleteSome(first: number): Promise<number> {
    const oldest = await this.#database.get<{ day: number | null }>('SELECT MIN(day) AS day FROM pulls');
    const day = oldest?.day ?? first;
    if (day >= first) return 0;
    this.#counted.delete(day);
    const last = await this.#database.get<{ id: string }>(
      'SELECT content_id AS id FROM pulls WHERE day = ? ORDER BY content_id LIMIT 1 OFFSET ?',
      [day, rowsPerDeletion],
    );
    const some = last ? ' AND content_id <= ?' : '';
    const sql = `DELETE FROM pulls WHERE day = ?${some}`;
    return this.#database.transaction((tx) => tx.run(sql, [day, ...(last ? [last.id] : [])]));
  }
}

function joined(one: SeenContent | undefined, other: SeenContent): SeenContent {
  if (!one) return other;
  return {
    count: one.count + other.count,
    firstAt: Math.min(one.firstAt, other.firstAt),
    lastAt: Math.max(one.lastAt, other.lastAt),
  };
}

/** Changes of an upsert to a table, so that the later day stays. */
function laterDay(table: string): string {
  return `last_day = CASE WHEN new.last_day > ${table}.last_day THEN new.last_day ELSE ${table}.last_day END`;
}

/** In the order of the keys, so that concurrent writers do not deadlock. */
async function upsertAll(
  tx: Transaction,
  table: string,
  key: readonly string[],
  byKey: ReadonlyMap<string, Row>,
  update: string,
): Promise<void> {
  const rows = [...byKey].toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([, row]) => row);
  for (let start = 0; start < rows.length; start += rowsPerStatement)
    await tx.upsert(table, key, rows.slice(start, start + rowsPerStatement), update);
}
