import { Quota } from '../usage/quota.ts';
import type { StorageMeter } from '../usage/stored.ts';
import type { Core } from './core.ts';
import type { OpenProtocol } from './protocol.ts';

interface QuotaPlace {
  core: Core;
  protocols: readonly OpenProtocol[];
  stored: StorageMeter;
}

/** The limits of the accounts of an installation. What they refuse is recorded as an event. */
export function openQuota({ core, protocols, stored }: QuotaPlace): Quota {
  const { config, database, promotionRules, repeatedEvents, log, now } = core;
  return new Quota({
    database,
    stored,
    limits: config.limits,
    requirePushes: ({ accountId, accountName }) => promotionRules.requirePushes(accountId, accountName),
    unfinished: (accountId) => unfinishedBytes(protocols, accountId),
    onReached: ({ accountId, accountName: name, ...details }) =>
      repeatedEvents.note({
        type: 'limit.reached',
        accountId,
        subject: { kind: 'account', name, reference: details.limit },
        details,
      }),
    log,
    now,
  });
}

/** Bytes of an account's unfinished uploads, in all protocols. */
async function unfinishedBytes(protocols: readonly OpenProtocol[], accountId: number): Promise<number> {
  let bytes = 0;
  for (const each of protocols) bytes += (await each.unfinishedBytes?.(accountId)) ?? 0;
  return bytes;
}
