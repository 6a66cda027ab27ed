import { Option, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { maxPromotionReason, promotionStates, type Promotion, type PromotionState } from '../promotion/promotion.ts';
import { DomainError } from '../runtime/errors.ts';
import { pagesOf } from '../runtime/pages.ts';
import { addKindOption, protocolOf, type KindOptions } from './named-kind.ts';
import { row } from './printed.ts';
import { accountId, forAccount, withInstallation, type Terminal } from './with-installation.ts';

interface PromoteOptions extends KindOptions {
  toAccount?: string;
  toName?: string;
  reason: string;
}

const pageSize = 500;
/** Requests by commands count as those of one person. */
const requester = 'system:command';

/** `entrepot promote` and `entrepot promotion` */
export function addPromotion(program: Command, environment: Environment, terminal: Terminal): void {
  forAccount<PromoteOptions>(
    addKindOption(
      program
        .command('promote <name> <reference>')
        .description(
          'show a version, tag or digest in another account, or an image under another name; print its number, and "requested" where another person approves it',
        )
        .option('--to-account <name>', 'the other account; the own one by default')
        .option('--to-name <name>', 'the name there; the same one by default')
        .option('--reason <text>', 'why, for the audit', ''),
    ),
    environment,
    async (account, { promotions, protocols }, options, name, reference) => {
      const { account: own, toAccount = own, toName, reason } = options;
      if (reason.length > maxPromotionReason)
        throw new DomainError('Invalid', `--reason: expected at most ${maxPromotionReason} characters.`);
      const { id, state } = await promotions.request({
        kind: protocolOf(protocols, name!, options).protocol.kind,
        account: { id: account, name: own },
        name: name!,
        reference: reference!,
        toAccount,
        toName,
        reason,
        requester,
        // The operator of the machine may do that in all accounts.
        mayPromoteIn: () => Promise.resolve(true),
        permit: () => undefined,
      });
      terminal.stdout.write(row(id, state));
    },
  );
  const promotion = program.command('promotion').description('promotions that were asked for, and what was decided');
  promotion
    .command('list')
    .description('list promotions, the latest first: number, state, from where, to where, digest, reason')
    .option('--account <name>', 'only those from or to this account')
    .addOption(new Option('--state <state>', 'only those in this state').choices(promotionStates))
    .action(async ({ account, state }: { account?: string; state?: PromotionState }) => {
      await withInstallation(environment, async ({ core, promotions }) => {
        const id = account === undefined ? undefined : await accountId(core, account);
        const read = (before: number) => promotions.list(id, state, pageSize, { after: before });
        for await (const page of pagesOf(Number.MAX_SAFE_INTEGER, pageSize, read, (each) => each.id))
          for (const each of page) terminal.stdout.write(await lineOf(each, (of) => core.accounts.nameOf(of)));
      });
    });
  promotion
    .command('approve <id>')
    .description('promote what was asked for: its digest')
    .action(async (id: string) => {
      await withInstallation(environment, async ({ promotions }) => {
        await promotions.approve(numberOf(id), undefined);
      });
    });
  promotion
    .command('reject <id>')
    .description('reject a promotion that was asked for')
    .action(async (id: string) => {
      await withInstallation(environment, async ({ promotions }) => {
        const { to } = await promotions.get(undefined, numberOf(id));
        await promotions.reject(numberOf(id), to.accountId);
      });
    });
}

async function lineOf(
  { id, state, from, reference, to, digest, reason }: Promotion,
  nameOf: (id: number) => Promise<string | undefined>,
): Promise<string> {
  const [source, target] = [await nameOf(from.accountId), await nameOf(to.accountId)];
  return row(id, state, source ?? '', from.name, reference, target ?? '', to.name, digest, reason);
}

function numberOf(id: string): number {
  if (!/^\d{1,15}$/.test(id))
    throw new DomainError('Invalid', `${id.slice(0, 50)}: expected the number of a promotion.`);
  return Number(id);
}
