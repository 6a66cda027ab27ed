import type { Accounts } from '../../accounts/accounts.ts';
import type { Config } from '../../config/schema.ts';
import { Collected } from '../../runtime/collected.ts';
import type { Counters } from '../../usage/counters.ts';
import { periodAt, type Period } from '../../usage/period.ts';
import { totalsOf } from '../../usage/report.ts';
import type { TokenUses } from '../../usage/token-uses.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { account, timeOf, timeOrNull } from '../framework/schemas.ts';
import { countersOperation } from './counters.ts';
import { usageOperation, type UsageParts } from './usage.ts';

export interface AccountParts extends UsageParts {
  accounts: Accounts;
  uses: TokenUses;
  limits: Config['limits'];
}

/** `/account`: the account of the token, and its usage. */
export function accountOperations(parts: AccountParts): Operation[] {
  return [getAccount(parts), usageOperation(parts), countersOperation(parts)];
}

/** How long the numbers of an account are used at least; milliseconds. Pages that wait for a first client ask every 3 seconds. */
const numbersFreshFor = 2000;
/** Accounts whose numbers are in memory. */
const maxNumbers = 10_000;

function getAccount(parts: AccountParts): Operation {
  const { accounts, stored, limits, now } = parts;
  const numbers = new Collected({
    collect: (key: string) => {
      const [accountId, start] = JSON.parse(key) as [number, number];
      return numbersOf(parts, accountId, periodAt(start));
    },
    maxSize: maxNumbers,
    freshFor: numbersFreshFor,
  });
  return operation({
    method: 'get',
    path: '/account',
    id: 'getAccount',
    summary: 'Get the current account and its usage, as it was counted a moment ago',
    action: 'account',
    status: 200,
    answer: account,
    run: async ({ principal }) => {
      const found = (await accounts.get(principal.accountId))!;
      const period = periodAt(now());
      const { hosted = 0, mirrored = 0, asOf } = (await stored.of(found.id)) ?? {};
      const counted = await numbers.of(JSON.stringify([found.id, period.start]));
      return {
        id: String(found.id),
        name: found.name,
        created_at: timeOf(found.createdAt),
        billing_period: { start: timeOf(period.start), end: timeOf(period.end) },
        usage: {
          storage_bytes: hosted + mirrored,
          storage_as_of: timeOrNull(asOf ?? null),
          ...counted,
          is_used: hosted + mirrored > 0 || counted.is_used,
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

/** What clients used. Requests of the console itself do not count. */
async function numbersOf({ database, uses }: AccountParts, accountId: number, period: Period) {
  const totals = await totalsOf(database, accountId, period);
  const latestClient = await uses.latestClient(accountId);
  const isUsed =
    latestClient !== null ||
    hasClients(totals) ||
    hasClients(await totalsOf(database, accountId, periodAt(period.start - 1)));
  return {
    egress_bytes: totals.egress_bytes,
    ingress_bytes: totals.ingress_bytes,
    requests: totals.requests,
    downloads: totals.downloads,
    last_client_at: timeOrNull(latestClient),
    is_used: isUsed,
  };
}

function hasClients({ downloads, uploads, version_checks: checks }: Counters): boolean {
  return downloads + uploads + checks > 0;
}
