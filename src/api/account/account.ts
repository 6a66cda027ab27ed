import type { Accounts } from '../../accounts/accounts.ts';
import type { Config } from '../../config/schema.ts';
import { periodAt } from '../../usage/period.ts';
import { totalsOf } from '../../usage/report.ts';
import type { TokenUses } from '../../usage/token-uses.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { account, timeOf, timeOrNull } from '../framework/schemas.ts';
import { usageOperation, type UsageParts } from './usage.ts';

export interface AccountParts extends UsageParts {
  accounts: Accounts;
  uses: TokenUses;
  limits: Config['limits'];
}

/** `/account`: the account of the token, and its usage. */
export function accountOperations(parts: AccountParts): Operation[] {
  return [getAccount(parts), usageOperation(parts)];
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
