import { z } from 'zod';
import type { Accounts } from '../accounts/accounts.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../errors.ts';
import type { HostedBytes } from '../usage/hosted.ts';
import { parsePeriod, periodAt } from '../usage/period.ts';
import { operation, type Operation } from './operation.ts';
import { pageQuery } from './paging.ts';
import { account, timeOf, usage } from './schemas.ts';

export interface AccountParts {
  accounts: Accounts;
  hostedBytes: HostedBytes;
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
export function accountOperations({ accounts, hostedBytes, limits, now }: AccountParts): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/account',
      id: 'getAccount',
      summary: 'Get the current account and its usage',
      scope: 'read',
      status: 200,
      answer: account,
      run: async ({ principal }) => {
        const found = (await accounts.get(principal.accountId))!;
        const { start, end } = periodAt(now());
        return {
          id: String(found.id),
          name: found.name,
          created_at: timeOf(found.createdAt),
          billing_period: { start: timeOf(start), end: timeOf(end) },
          usage: {
            storage_bytes: (await hostedBytes.of(found.id)).bytes,
            egress_bytes: 0,
            ingress_bytes: 0,
            requests: 0,
            downloads: 0,
          },
          limits: [
            { name: 'package', unit: 'bytes', limit: limits.nupkg },
            { name: 'manifest', unit: 'bytes', limit: limits.manifest },
            { name: 'blob', unit: 'bytes', limit: limits.blob ?? null },
          ],
        };
      },
    }),
    operation({
      method: 'get',
      path: '/account/usage',
      id: 'getUsage',
      summary: 'Get detailed usage metrics for a billing period, by default the current one',
      scope: 'read',
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
        if (query.cursor !== undefined) {
          throw new DomainError('Invalid', 'cursor: this period has one page only', {
            detail: { parameter: 'cursor' },
          });
        }
        const open = time < period.end;
        const { bytes: hosted, asOf } = open ? await hostedBytes.of(principal.accountId) : { bytes: 0, asOf: time };
        return {
          period: {
            start: timeOf(period.start),
            end: timeOf(period.end),
            status: open ? ('open' as const) : ('closed' as const),
          },
          as_of: timeOf(asOf),
          // Nothing is recorded over time yet: what is stored now is the one measurement there is.
          storage: {
            current_bytes: hosted,
            peak_bytes: hosted,
            average_bytes: hosted,
            byte_hours: 0,
            by_origin: { hosted, mirrored: 0 },
          },
          bandwidth: { egress_bytes: 0, ingress_bytes: 0, upstream_bytes: 0 },
          requests: { total: 0, downloads: 0, uploads: 0, version_checks: 0, cache_hits: 0, cache_misses: 0 },
          items: [],
          next_cursor: null,
        };
      },
    }),
  ];
}
