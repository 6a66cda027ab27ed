import { protocolWords } from '../config/protocols.ts';
import { callerLeft, currentCaller, type Actor } from '../runtime/caller.ts';
import type { Database, Value } from '../database/database.ts';
import type { EventType, Subject } from './event.ts';
import { keyOfSubject } from './record.ts';

/** Rows that one statement examines. On SQLite a statement stops all other work of the process. */
const part = 1000;
/** Rows that are examined for one page. */
export const maxExamined = 100_000;

/** Conditions for events. All of them apply. */
export interface EventFilter {
  /** Undefined: the events of all accounts, and those that concern none. */
  accountId?: number | undefined;
  /** A type, `package.*`, or `*`. */
  type?: string | undefined;
  /** The ID or the name of the actor. */
  actor?: string | undefined;
  /** The name of the subject, in any letter case. */
  subject?: string | undefined;
  /** Milliseconds since 1970; events at this time or later, and before `until`. */
  since?: number | undefined;
  until?: number | undefined;
  /** Only content with these names. */
  names?: { of(kind: string): { where(column: string): Condition } } | undefined;
}

export interface Condition {
  sql: string;
  values: readonly Value[];
}

export interface EventRow {
  position: number;
  time: number;
  type: EventType;
  account_id: number;
  actor_kind: Actor['kind'];
  actor_id: string | null;
  actor_name: string | null;
  subject_kind: Subject['kind'];
  subject_name: string | null;
  subject_reference: string | null;
  address: string | null;
  request_id: string | null;
  details: string;
}

/** The place of an event in a list. */
export type EventKey = readonly [time: number, position: number];

interface RowPage {
  rows: EventRow[];
  /** The place after which the next page begins; undefined after the last one. A page with it can be short, also empty. */
  next: EventKey | undefined;
}

export interface EventOrder {
  /** By the time of the events, else by their positions. */
  byTime: boolean;
  latestFirst: boolean;
}

/**
 * Whether a list with this filter is in the order of times. The order of positions differs from it: a repeated event is
 * written up to a minute after its time, and a job gives all its events one time. So no position tells where a time begins.
 */
export function isByTime({ subject, since, until }: EventFilter): boolean {
  return subject === undefined && (since !== undefined || until !== undefined);
}

/**
 * Up to `limit` visible events after the place `from`. It reads them in parts of a bounded number of rows by their times or
 * positions, and skips what is before the next event of the account or the subject. It examines at most `maxExamined`
 * rows. Rejects with `Aborted` when the caller has left.
 *
 * It does not search in the index of an account: MariaDB would read all its events up to the place, again for each part.
 */
export async function readEvents(
  database: Database,
  filter: EventFilter,
  order: EventOrder,
  limit: number,
  from?: EventKey,
): Promise<RowPage> {
  const columns = order.byTime ? ['time', 'position'] : ['position'];
  const sorted = columns.map((column) => `${column} ${order.latestFirst ? 'DESC' : 'ASC'}`).join(', ');
  const place = placesIn(database, order);
  const { bounds, rest } = conditionsOf(filter, order);
  const rows: EventRow[] = [];
  for (let [at, examined] = [from, 0]; ;) {
    if (currentCaller()?.gone) throw callerLeft();
    const next = await nextOf(database, filter, order, at);
    if (next === 'none') return { rows, next: undefined };
    const begun = next ? [...bounds, place('after', next)] : bounds;
    const [end] = await read<{ time: number; position: number }>(
      database,
      `SELECT time, position FROM events WHERE ${textOf(begun)} ORDER BY ${sorted} LIMIT 1 OFFSET ${part - 1}`,
      begun,
    );
    const key: EventKey | undefined = end && [end.time, end.position];
    const all = [...begun, ...(key ? [place('until', key)] : []), ...rest];
    const wanted = limit + 1 - rows.length;
    const sql = `SELECT * FROM events WHERE ${textOf(all)} ORDER BY ${sorted} LIMIT ${wanted}`;
    rows.push(...(await read<EventRow>(database, sql, all)));
    if (rows.length > limit) {
      const { time, position } = rows[limit - 1]!;
      return { rows: rows.slice(0, limit), next: [time, position] };
    }
    examined += part;
    if (!key || examined >= maxExamined) return { rows, next: key };
    at = key;
  }
}

function read<Found extends object>(
  database: Database,
  sql: string,
  conditions: readonly Condition[],
): Promise<Found[]> {
  return database.select<Found>(
    sql,
    conditions.flatMap(({ values }) => values),
  );
}

/** The place just before the next event of the subject or the account, undefined for the begin; `none` if there is no more. */
async function nextOf(
  database: Database,
  { accountId, subject, until, since }: EventFilter,
  { byTime, latestFirst }: EventOrder,
  at: EventKey | undefined,
): Promise<EventKey | undefined | 'none'> {
  const [column, value] = subject === undefined ? ['account_id', accountId] : ['subject_key', keyOfSubject(subject)];
  if (value === undefined) return at;
  const field = byTime ? 'time' : 'position';
  const conditions: Condition[] = [{ sql: `${column} = ?`, values: [value] }];
  if (byTime && since !== undefined) conditions.push({ sql: 'time >= ?', values: [since] });
  if (byTime && until !== undefined) conditions.push({ sql: 'time < ?', values: [until] });
  if (at) conditions.push({ sql: `${field} ${latestFirst ? '<=' : '>='} ?`, values: [byTime ? at[0] : at[1]] });
  const [found] = await read<{ nearest: number | null }>(
    database,
    `SELECT ${latestFirst ? 'MAX' : 'MIN'}(${field}) AS nearest FROM events WHERE ${textOf(conditions)}`,
    conditions,
  );
  const { nearest } = found!;
  if (nearest === null) return 'none';
  if (at && nearest === (byTime ? at[0] : at[1])) return at;
  if (!byTime) return [0, nearest + (latestFirst ? 1 : -1)];
  return [nearest, latestFirst ? Number.MAX_SAFE_INTEGER : 0];
}

/** Conditions on the events after a place, or up to it. */
function placesIn(database: Database, { byTime, latestFirst }: EventOrder) {
  return (which: 'after' | 'until', [time, position]: EventKey): Condition => {
    const sign = latestFirst ? (which === 'after' ? '<' : '>=') : which === 'after' ? '>' : '<=';
    if (byTime) return placeOf(database, sign, time, position);
    return { sql: `position ${sign} ?`, values: [position] };
  };
}

/** A condition on (`time`, `position`), in the form for which the database uses an index. */
function placeOf({ dialect }: Database, operator: string, time: number, position: number): Condition {
  if (dialect === 'sqlite') return { sql: `(time, position) ${operator} (?, ?)`, values: [time, position] };
  const sql = `(time ${operator.charAt(0)} ? OR (time = ? AND position ${operator} ?))`;
  return { sql, values: [time, time, position] };
}

function textOf(conditions: readonly Condition[]): string {
  return conditions.map(({ sql }) => sql).join(' AND ');
}

/** The conditions on what is read, and those on what is shown of it. */
function conditionsOf(
  { accountId, type, actor, subject, since, until, names }: EventFilter,
  { byTime }: EventOrder,
): { bounds: Condition[]; rest: Condition[] } {
  // Events get their positions after their commit. Before that, no reader sees them.
  const bounds: Condition[] = [{ sql: 'position > 0', values: [] }];
  const rest: Condition[] = [];
  const add = (where: Condition[], sql: string, ...values: Value[]) => where.push({ sql, values });
  if (subject !== undefined) add(rest, 'subject_key = ?', keyOfSubject(subject));
  if (accountId !== undefined) add(rest, 'account_id = ?', accountId);
  if (since !== undefined) add(byTime ? bounds : rest, 'time >= ?', since);
  if (until !== undefined) add(byTime ? bounds : rest, 'time < ?', until);
  // "/" is the character after ".".
  if (type?.endsWith('.*')) add(rest, 'type > ? AND type < ?', type.slice(0, -1), type.slice(0, -2).concat('/'));
  else if (type !== undefined && type !== '*') add(rest, 'type = ?', type);
  if (actor !== undefined) add(rest, '(actor_id = ? OR actor_name = ?)', actor, actor);
  if (names) {
    const kinds = protocolWords.map(({ kind }) => ({ kind, ...names.of(kind).where('subject_key') }));
    const sql = kinds.map((each) => `(subject_kind = ? AND ${each.sql})`).join(' OR ');
    add(rest, `(${sql})`, ...kinds.flatMap(({ kind, values }) => [kind, ...values]));
  }
  return { bounds, rest };
}
