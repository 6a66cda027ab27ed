import { z } from 'zod';
import { Collected } from '../../runtime/collected.ts';
import { periodAt } from '../../usage/period.ts';
import { totalsOf } from '../../usage/report.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { bytes, count, time, timeOf, timeOrNull } from '../framework/schemas.ts';
import type { UsageParts } from './usage.ts';

export const countersSchema = z
  .strictObject({
    as_of: time.meta({ description: 'When the requests were counted' }),
    storage_as_of: time.nullable().meta({ description: 'null while the stored bytes are measured for the first time' }),
    hosted_bytes: bytes,
    mirrored_bytes: bytes,
    egress_bytes: bytes,
    ingress_bytes: bytes,
    requests: count,
    downloads: count,
    uploads: count,
    cache_hits: count,
    cache_misses: count,
  })
  .meta({ id: 'Counters' });

/** How long counters are used at least; milliseconds. */
const freshFor = 2000;
/** Accounts whose counters are in memory. */
const maxAccounts = 10_000;

/** `/account/counters`: the counters of this month, which pages ask for again and again. Many readers cost as much as one. */
export function countersOperation({ database, usage, stored, now }: UsageParts): Operation {
  const collect = async (key: string): Promise<z.input<typeof countersSchema>> => {
    const [accountId, start] = JSON.parse(key) as [number, number];
    const asOf = timeOf(usage.asOf);
    const totals = await totalsOf(database, accountId, periodAt(start));
    const { version_checks: _checks, upstream_bytes: _fetched, ...requests } = totals;
    const { hosted = 0, mirrored = 0, asOf: measured = null } = (await stored.of(accountId)) ?? {};
    return {
      as_of: asOf,
      storage_as_of: timeOrNull(measured),
      hosted_bytes: hosted,
      mirrored_bytes: mirrored,
      ...requests,
    };
  };
  const counters = new Collected({ collect, maxSize: maxAccounts, freshFor });
  return operation({
    method: 'get',
    path: '/account/counters',
    id: 'getCounters',
    summary: 'Get the counters of this month and the stored bytes, as they were counted a moment ago',
    action: 'account',
    status: 200,
    answer: countersSchema,
    run: ({ principal: { accountId } }) => counters.of(JSON.stringify([accountId, periodAt(now()).start])),
  });
}
