import { alternatives, nameKinds } from '../../config/protocols.ts';
import { z } from 'zod';
import { coversPatterns, forAction } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import type { Token } from '../../accounts/token-rows.ts';
import type { Tokens } from '../../accounts/tokens.ts';
import type { Database } from '../../database/database.ts';
import { Collected } from '../../runtime/collected.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { firstRanked, type Rank } from '../../runtime/ranked.ts';
import { addCounts, counterNames, noCounts, type Counters } from '../../usage/counters.ts';
import { isClosed, parsePeriod, periodAt, type Period } from '../../usage/period.ts';
import type { UsageRecord } from '../../usage/record.ts';
import {
  itemsOf,
  storageOf,
  sumsOf,
  totalsOf,
  type Grouping,
  type NameSums,
  type UsageItem,
} from '../../usage/report.ts';
import type { StorageMeter } from '../../usage/stored.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { timeOf, timeOrNull, usageSchema, type usageItem } from '../framework/schemas.ts';
import { filterText, sortedPage, totalFlag } from '../framework/sorted.ts';

export interface UsageParts {
  database: Database;
  usage: UsageRecord;
  stored: StorageMeter;
  tokens: Tokens;
  now: () => number;
}

const groupings = ['token', ...nameKinds];
const usageQuery = pageQuery.extend({
  period: z.string().optional().meta({ description: 'A month as YYYY-MM; the current month by default' }),
  granularity: z.enum(['day'], 'expected day').optional().meta({ description: 'One item per day' }),
  group_by: z
    .enum(groupings, `expected ${alternatives(groupings)}`)
    .optional()
    .meta({ description: `One item per ${alternatives(groupings)}` }),
  sort: z
    .enum(counterNames, `expected ${alternatives(counterNames)}`)
    .optional()
    .meta({
      description:
        'With `group_by` and without `granularity`: the largest first, as counted a moment ago; by name without it',
    }),
  q: filterText(
    'With `group_by` and without `granularity`: only names that contain this text, in any letter case; of tokens their IDs, and with the scope admin their names',
  ),
  total: totalFlag,
});
type UsageQuery = z.output<typeof usageQuery>;

/** Names whose sums are in memory, and how long they are used at least; milliseconds. */
const maxSums = 300_000;
const sumsFreshFor = 1000;
/** How long a total waits for the first sums; milliseconds. */
const patience = 1000;
/** Names that are added up without a pause, and tokens that are read together. */
const atATime = 2000;
const tokensAtATime = 500;

type Page = { entries: readonly UsageItem[]; next_cursor: string | null };
type Total = (Counters & { count: number }) | null;

/** `/account/usage`: what the account used in a month. */
export function usageOperation(parts: UsageParts): Operation {
  const { database, usage: record, stored, now } = parts;
  const sums = new Collected({
    collect: (key: string) => {
      const [accountId, start, groupBy] = JSON.parse(key) as [number, number, Grouping];
      return sumsOf(database, accountId, periodAt(start), groupBy);
    },
    sizeOf: ({ names }) => names.length + 1,
    maxSize: maxSums,
    freshFor: sumsFreshFor,
  });
  return operation({
    method: 'get',
    path: '/account/usage',
    id: 'getUsage',
    summary: 'Get detailed usage metrics for a billing period, by default the current one',
    action: 'account',
    query: usageQuery,
    status: 200,
    answer: usageSchema,
    run: async ({ principal, query }) => {
      const { accountId } = principal;
      const time = now();
      const period = periodOf(query, time);
      const { entries, next_cursor, ...ofNames } = await readItems(parts, sums, principal, query, period);
      const storage = await storageOf(database, stored, accountId, period, time);
      const totals = await totalsOf(database, accountId, period);
      const { requests: total, egress_bytes, ingress_bytes, upstream_bytes, ...requests } = totals;
      const { hosted, mirrored } = storage.current;
      return {
        period: {
          start: timeOf(period.start),
          end: timeOf(period.end),
          status: isClosed(period, time) ? ('closed' as const) : ('open' as const),
        },
        as_of: timeOf(Math.min(record.asOf, storage.asOf ?? record.asOf)),
        storage: {
          as_of: timeOrNull(storage.asOf ?? null),
          current_bytes: hosted + mirrored,
          peak_bytes: storage.peak,
          average_bytes: storage.average,
          byte_hours: storage.byteHours,
          by_origin: { hosted, mirrored },
        },
        bandwidth: { egress_bytes, ingress_bytes, upstream_bytes },
        requests: { total, ...requests },
        items: entries.map(toItem),
        next_cursor,
        ...ofNames,
      };
    },
  });
}

/** The month that `query` asks for; `Invalid` for a malformed or future one. */
function periodOf(query: UsageQuery, now: number): Period {
  const period = query.period === undefined ? periodAt(now) : parsePeriod(query.period);
  if (period && period.start <= now) return period;
  throw new DomainError('Invalid', 'period: expected a month as YYYY-MM that is not in the future', {
    detail: { parameter: 'period' },
  });
}

/** One page of the period's items, divided as `query` asks. */
async function readItems(
  { database, tokens }: UsageParts,
  sums: Collected<string, NameSums>,
  principal: Principal,
  query: UsageQuery,
  period: Period,
): Promise<Page & { total?: Total }> {
  const { accountId } = principal;
  const { sort, q: text, group_by: groupBy } = query;
  const division = { byDay: query.granularity === 'day', groupBy };
  const ofNames = Object.entries({ sort, q: text || undefined, total: query.total === '1' || undefined });
  const [first] = ofNames.find(([, value]) => value !== undefined) ?? [];
  if (first !== undefined && (division.byDay || !groupBy)) {
    throw new DomainError('Invalid', `${first}: works with group_by and without granularity`, {
      detail: { parameter: first },
    });
  }
  if (query.cursor !== undefined && !division.byDay && !groupBy) {
    throw new DomainError('Invalid', 'cursor: without granularity and group_by there is only one page', {
      detail: { parameter: 'cursor' },
    });
  }
  const isVisible = visibleTo(principal, groupBy);
  const key = JSON.stringify([accountId, period.start, groupBy]);
  const contains = await containing(tokens, principal, groupBy, text);
  const isShown = (each: UsageItem) => contains(each.name!) && (isVisible?.(each) ?? true);
  const total = query.total === '1' && { total: await totalOf(await sums.within(patience, key), isShown) };
  if (sort === undefined && text === '') {
    const page = await readPage(query, {
      name: `usage/${period.start}/${query.granularity ?? ''}/${groupBy ?? ''}`,
      key: z.tuple([z.string(), z.int()]),
      keyOf: ({ name, day }: UsageItem) => [name ?? '', day ?? 0] as [string, number],
      read: (limit, after) => itemsOf(database, accountId, period, division, limit, after),
      isVisible,
    });
    return { ...page, ...total };
  }
  const ranked = async (limit: number, after: Rank | undefined) =>
    firstRanked((await sums.of(key)).names, {
      rankOf: ({ name, counters }): Rank => [sort === undefined ? null : counters[sort], name!],
      isShown,
      after,
      limit,
    });
  return { ...(await sortedPage(query, `usage/${period.start}/${groupBy}`, [{ ranked }])), ...total };
}

/** Hides the items whose names a limited token may not see; undefined if all items are visible. */
function visibleTo({ names }: Principal, groupBy: Grouping | undefined): ((item: UsageItem) => boolean) | undefined {
  const only = groupBy === undefined || groupBy === 'token' ? undefined : names?.of(groupBy);
  return only && (({ name }) => !name || only.includes(name));
}

/** Whether a name contains a text. The names of tokens are for those who may list them. */
async function containing(
  tokens: Tokens,
  principal: Principal,
  groupBy: Grouping | undefined,
  text: string,
): Promise<(name: string) => boolean> {
  if (text === '' || groupBy !== 'token' || !principal.scopes.has('admin')) return (name) => name.includes(text);
  const { accountId } = principal;
  const admin = forAction(principal, 'admin');
  const found = new Set<string>();
  const read = (after: [number, string] | undefined) => tokens.list(accountId, tokensAtATime, after);
  for await (const page of pagesOf(undefined as [number, string] | undefined, tokensAtATime, read, placeOf)) {
    for (const { id, name, patterns } of page) {
      if (coversPatterns(admin, patterns) && name.toLowerCase().includes(text)) found.add(id);
    }
  }
  return (id) => found.has(id) || id.includes(text);
}

function placeOf({ createdAt, id }: Token): [number, string] {
  return [createdAt, id];
}

async function totalOf(sums: NameSums | undefined, isShown: (item: UsageItem) => boolean): Promise<Total> {
  if (!sums) return null;
  const total = { count: 0, ...noCounts() };
  for (let start = 0; start < sums.names.length; start += atATime) {
    for (const each of sums.names.slice(start, start + atATime)) {
      if (!isShown(each)) continue;
      if (each.name !== '') total.count += 1;
      addCounts(total, each.counters);
    }
    await pause();
  }
  return total;
}

function toItem({ day, name, counters }: UsageItem): z.input<typeof usageItem> {
  return { date: day === null ? null : timeOf(day).slice(0, 10), key: name || null, ...counters };
}
