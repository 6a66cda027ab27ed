import { z } from 'zod';
import type { Accounts } from '../accounts/accounts.ts';
import type { Principal } from '../accounts/principal.ts';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import { DomainError } from '../errors.ts';
import { isClosed, parsePeriod, periodAt } from '../usage/period.ts';
import type { UsageRecord } from '../usage/record.ts';
import { itemsOf, storageOf, totalsOf, type Grouping, type UsageItem } from '../usage/report.ts';
import type { StoredBytes } from '../usage/stored.ts';
import { operation, type Operation } from './operation.ts';
import { pageQuery, readPage } from './paging.ts';
import { account, timeOf, usage, type usageItem } from './schemas.ts';

export interface AccountParts {
  database: Database;
  accounts: Accounts;
  usage: UsageRecord;
  stored: StoredBytes;
  limits: Config['limits'];
  now: () => number;
}

const usageQuery = pageQuery.extend({
  period: z.string().optional().meta({ description: 'A month as YYYY-MM; the current one when left out' }),
  granularity: z.enum(['day'], 'expected day').optional().meta({ description: 'One item a day' }),
  group_by: z
    .enum(['token', 'package', 'container'], 'expected token, package or container')
    .optional()
    .meta({ description: 'One item for each' }),
});

/** `/account`: who the token belongs to, and what that account has used. */
export function accountOperations(parts: AccountParts): Operation[] {
  const { database, accounts, usage: record, stored, limits, now } = parts;
  return [
    operation({
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
        const { hosted, mirrored } = await stored.of(found.id);
        const totals = await totalsOf(database, found.id, period);
        return {
          id: String(found.id),
          name: found.name,
          created_at: timeOf(found.createdAt),
          billing_period: { start: timeOf(period.start), end: timeOf(period.end) },
          usage: {
            storage_bytes: hosted + mirrored,
            egress_bytes: totals.egress_bytes,
            ingress_bytes: totals.ingress_bytes,
            requests: totals.requests,
            downloads: totals.downloads,
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
    }),
    operation({
      method: 'get',
      path: '/account/usage',
      id: 'getUsage',
      summary: 'Get detailed usage metrics for a billing period, by default the current one',
      action: 'account',
      query: usageQuery,
      status: 200,
      answer: usage,
      run: async ({ principal, query }) => {
        const time = now();
        const period = query.period === undefined ? periodAt(time) : parsePeriod(query.period);
        if (!period || period.start > time) {
          throw new DomainError('Invalid', 'period: expected a month as YYYY-MM that is not in the future', {
            detail: { parameter: 'period' },
          });
        }
        const division = { byDay: query.granularity === 'day', groupBy: query.group_by };
        if (query.cursor !== undefined && !division.byDay && !division.groupBy) {
          throw new DomainError('Invalid', 'cursor: without granularity and group_by there is one page only', {
            detail: { parameter: 'cursor' },
          });
        }
        const { entries, next_cursor } = await readPage(query, {
          list: `usage/${period.start}/${query.granularity ?? ''}/${query.group_by ?? ''}`,
          key: z.tuple([z.string(), z.int()]),
          keyOf: ({ name, day }: UsageItem) => [name ?? '', day ?? 0] as [string, number],
          read: (limit, after) => itemsOf(database, principal.accountId, period, division, limit, after),
          keep: shownTo(principal, query.group_by),
        });
        const storage = await storageOf(database, stored, principal.accountId, period, time);
        const totals = await totalsOf(database, principal.accountId, period);
        const { requests: total, egress_bytes, ingress_bytes, upstream_bytes, ...requests } = totals;
        const { hosted, mirrored } = storage.current;
        return {
          period: {
            start: timeOf(period.start),
            end: timeOf(period.end),
            status: isClosed(period, time) ? ('closed' as const) : ('open' as const),
          },
          as_of: timeOf(Math.min(record.asOf, storage.asOf)),
          storage: {
            current_bytes: hosted + mirrored,
            peak_bytes: storage.peak,
            average_bytes: storage.average,
            byte_hours: storage.byteHours,
            by_origin: { hosted, mirrored },
          },
          bandwidth: { egress_bytes, ingress_bytes, upstream_bytes },
          requests: { total, ...requests },
          items: entries.map(shown),
          next_cursor,
        };
      },
    }),
  ];
}

/** A narrowed token is not told the names of anything else. */
function shownTo({ names }: Principal, groupBy: Grouping | undefined): ((item: UsageItem) => boolean) | undefined {
  const only = groupBy === 'package' || groupBy === 'container' ? names?.[groupBy] : undefined;
  return only && (({ name }) => !name || only.includes(name));
}

function shown({ day, name, counters }: UsageItem): z.input<typeof usageItem> {
  return { date: day === null ? null : timeOf(day).slice(0, 10), key: name || null, ...counters };
}
