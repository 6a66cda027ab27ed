import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { heldItem } from '../policy/decision-item.ts';
import { refusalCode, type HeldPlace, type HeldReference } from '../policy/held.ts';
import { DomainError } from '../runtime/errors.ts';
import { jsonItem } from '../runtime/json-item.ts';
import { row } from './printed.ts';
import { forAccount, type Terminal } from './with-installation.ts';

interface Options {
  match?: string;
  limit: string;
  json?: boolean;
  byToken?: boolean;
}

const pageSize = 200;

/** `entrepot policy held` */
export function addHeld(policy: Command, environment: Environment, terminal: Terminal): void {
  forAccount<Options>(
    policy
      .command('held')
      .description(
        'list the mirrored versions and tags that the policies hold or deny for an account, by which rule and until when, the newest first',
      )
      .option('--match <text>', 'only names that contain this text')
      .option('--limit <number>', 'the most lines', '100')
      .option(
        '--by-token',
        'instead: the tokens whose requests the policies refused in the last two days, the most frequent first',
      )
      .option('--json', 'print one JSON object on a line, as in /v1/held and /v1/held/refusals'),
    environment,
    async (account, { core, held }, { match = '', limit: text, json, byToken }) => {
      if (!/^[1-9]\d{0,5}$/.test(text)) throw new DomainError('Invalid', '--limit: expected a number such as 100.');
      const limit = Number(text);
      if (byToken) {
        for (const { item } of await core.failures.byToken(
          { accountId: account, code: refusalCode },
          limit,
          undefined,
        )) {
          const name = item.tokenId === null ? null : ((await core.tokens.get(account, item.tokenId))?.name ?? null);
          const told = { ...jsonItem(item), token_name: name };
          terminal.stdout.write(json ? `${JSON.stringify(told)}\n` : refusalsOf(told));
        }
        return;
      }
      const isWanted = (_kind: string, name: string) => name.includes(match.toLowerCase());
      let count = 0;
      let after: HeldPlace | undefined;
      do {
        const { items, next } = await held.list(account, { limit: Math.min(pageSize, limit - count), after, isWanted });
        for (const each of items) terminal.stdout.write(json ? `${JSON.stringify(heldItem(each))}\n` : lineOf(each));
        count += items.length;
        after = next;
      } while (after && count < limit);
      if (after) terminal.stderr.write(`There may be more: these are the first ${limit}. Use --limit or --match.\n`);
    },
  );
}

/** The columns: token, its ID, requests, names, and the last time. */
function refusalsOf(told: {
  token_id: string | null;
  token_name: string | null;
  count: number;
  names: number;
  last_at: string;
}): string {
  return row(told.token_name ?? '-', told.token_id ?? '-', told.count, told.names, told.last_at);
}

/** The columns: verdict, name, reference, end, rule, policy, whether a higher version is open, and the reason. */
function lineOf({ name, reference, decision, isBelowVisible }: HeldReference): string {
  const { verdict, until, rule, layer, reason } = decision;
  const end = until === undefined ? '-' : new Date(until).toISOString();
  const below = isBelowVisible ? 'below a visible version' : '-';
  return row(verdict, name, reference, end, rule ?? '-', layer?.scope ?? '-', below, reason ?? '');
}
