import { alternatives, nameKinds } from '../../config/protocols.ts';
import { z } from 'zod';
import type { Accounts } from '../../accounts/accounts.ts';
import type { Principal } from '../../accounts/principal.ts';
import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import { isClosed, parsePeriod, periodAt, type Period } from '../../usage/period.ts';
import type { UsageRecord } from '../../usage/record.ts';
import { counterNames } from '../../usage/counters.ts';
import { Collected } from '../../runtime/collected.ts';
import { firstRanked, type Rank, type Ranked } from '../../runtime/ranked.ts';
import { sortedPage } from '../framework/sorted.ts';
import {
  itemsOf,
  storageOf,
  sumsOf,
  totalsOf,
  type Grouping,
  type NameSums,
  type UsageItem,
} from '../../usage/report.ts';
import type { TokenUses } from '../../usage/token-uses.ts';
import type { StorageMeter } from '../../usage/stored.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { account, timeOf, timeOrNull, usageSchema, type usageItem } from '../framework/schemas.ts';

export interface AccountParts {
  database: Database;
  accounts: Accounts;
  usage: UsageRecord;
  stored: StorageMeter;
  uses: TokenUses;
  limits: Config['limits'];
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
});
type UsageQuery = z.output<typeof usageQuery>;
/** Names whose sums are in memory, and how long they are used at least; milliseconds. */
const maxSums = 300_000;
const sumsFreshFor = 5000;

/** `/account`: the account of the token, and its usage. */
export function accountOperations(parts: AccountParts): Operation[] {
  const sums = new Collected({
    collect: (key: string) => {
      const [accountId, start, groupBy] = JSON.parse(key) as [number, number, Grouping];
      return sumsOf(parts.database, accountId, periodAt(start), groupBy);
    },
    sizeOf: ({ names }) => names.length + 1,
    maxSize: maxSums,
    freshFor: sumsFreshFor,
  });
  return [getAccount(parts), getUsage(parts, sums)];
}

function getAccount({ database, accounts, stored, uses, limits, now }: AccountParts): Operation {
  return operation({
    method: 'get',
    path: '/account',
    id: 'getAccount',
    summary: 'Get the current account and its usage',
    action: 'account',
    status: 200,
    answer: account,
    run: async ({ principal }) => {
      const found = (await accounts.get(principal.accountId))!;
      const period = periodAt(now());
      const { hosted = 0, mirrored = 0, asOf } = (await stored.of(found.id)) ?? {};
      const totals = await totalsOf(database, found.id, period);
      return {
        id: String(found.id),
        name: found.name,
        created_at: timeOf(found.createdAt),
        billing_period: { start: timeOf(period.start), end: timeOf(period.end) },
        usage: {
          storage_bytes: hosted + mirrored,
          storage_as_of: timeOrNull(asOf ?? null),
          egress_bytes: totals.egress_bytes,
          ingress_bytes: totals.ingress_bytes,
          requests: totals.requests,
          downloads: totals.downloads,
          last_client_at: timeOrNull(await uses.latestClient(found.id)),
        },
        limits: [
          { name: 'package', unit: 'bytes', limit: limits.nupkg },
          { name: 'manifest', unit: 'bytes', limit: limits.manifest },
          { name: 'blob', unit: 'bytes', limit: limits.blob ?? null },
          { name: 'storage', unit: 'bytes', limit: limits.accountStorage ?? null },
          { name: 'egress', unit: 'bytes per month', limit: limits.accountEgress ?? null },
        ],
      };
    },
  });
}

function getUsage(
  { database, usage: record, stored, now }: AccountParts,
  sums: Collected<string, NameSums>,
): Operation {
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
      const { entries, next_cursor } = await readItems(database, sums, principal, query, period);
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
function readItems(
  database: Database,
  sums: Collected<string, NameSums>,
  principal: Principal,
  query: UsageQuery,
  period: Period,
): Promise<{ entries: readonly UsageItem[]; next_cursor: string | null }> {
  const division = { byDay: query.granularity === 'day', groupBy: query.group_by };
  if (query.cursor !== undefined && !division.byDay && !division.groupBy) {
    throw new DomainError('Invalid', 'cursor: without granularity and group_by there is only one page', {
      detail: { parameter: 'cursor' },
    });
  }
  const { sort, group_by: groupBy } = query;
  if (sort !== undefined) {
    if (division.byDay || !groupBy) {
      throw new DomainError('Invalid', 'sort: works with group_by and without granularity', {
        detail: { parameter: 'sort' },
      });
    }
    const isVisible = visibleTo(principal, groupBy) ?? (() => true);
    const ranked = async (limit: number, after: Rank | undefined): Promise<Ranked<UsageItem>[]> => {
      const { names } = await sums.of(JSON.stringify([principal.accountId, period.start, groupBy]));
      const items = await firstRanked(names, {
        rankOf: ({ name, counters }) => [counters[sort], name],
        isShown: (each) => isVisible({ day: null, ...each }),
        after,
        limit,
      });
      return items.map(({ rank, item }) => ({ rank, item: { day: null, ...item } }));
    };
    return sortedPage(query, `usage/${period.start}/${groupBy}`, [{ ranked }]);
  }
  return readPage(query, {
    name: `usage/${period.start}/${query.granularity ?? ''}/${query.group_by ?? ''}`,
    key: z.tuple([z.string(), z.int()]),
    keyOf: ({ name, day }: UsageItem) => [name ?? '', day ?? 0] as [string, number],
    read: (limit, after) => itemsOf(database, principal.accountId, period, division, limit, after),
    isVisible: visibleTo(principal, query.group_by),
  });
}

/** Hides the items whose names a limited token may not see; undefined if all items are visible. */
function visibleTo({ names }: Principal, groupBy: Grouping | undefined): ((item: UsageItem) => boolean) | undefined {
  const only = groupBy === undefined || groupBy === 'token' ? undefined : names?.of(groupBy);
  return only && (({ name }) => !name || only.includes(name));
}

function toItem({ day, name, counters }: UsageItem): z.input<typeof usageItem> {
  return { date: day === null ? null : timeOf(day).slice(0, 10), key: name || null, ...counters };
}
