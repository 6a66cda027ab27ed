import { Option, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { stateAt, waiverStates, type Waiver, type WaiverState } from '../policy/waiver.ts';
import { liftable } from '../policy/waiver-request.ts';
import { DomainError } from '../runtime/errors.ts';
import { pagesOf } from '../runtime/pages.ts';
import { addKindOption, protocolOf, type KindOptions } from './named-kind.ts';
import { row } from './printed.ts';
import { accountId, forAccount, withInstallation, type Terminal } from './with-installation.ts';

interface RequestOptions extends KindOptions {
  lifts: string;
  reason: string;
  for: string;
}

const pageSize = 500;
/** Requests by commands count as those of one person. */
const requester = 'system:command';

/** `entrepot waiver` */
export function addWaiver(program: Command, environment: Environment, terminal: Terminal): void {
  const waiver = program
    .command('waiver')
    .description('what is let through for a time although a policy refuses it: requests, and what was decided of them');
  forAccount<RequestOptions>(
    addKindOption(
      waiver
        .command('request <name> <references...>')
        .description('request a waiver for versions, bounded ranges of versions, tags or digests, and print its number')
        .requiredOption('--lifts <what>', liftable)
        .requiredOption('--reason <text>', 'why it is needed')
        .requiredOption('--for <time>', 'for how long, such as 14d; at most the setting waivers.longest'),
    ),
    environment,
    async (account, { core, protocols }, options, name, references) => {
      const { lifts, reason, for: text } = options;
      const { protocol, word } = protocolOf(protocols, name!, options);
      const duration = parseDuration(text);
      if (!duration) throw new DomainError('Invalid', '--for: expected a time such as 12h or 14d.');
      const story = await protocol.explain(account, name!);
      const resolved = await core.waivers.resolve(story, name!, references as unknown as string[]);
      const made = await core.waivers.request({
        ...resolved,
        accountId: account,
        kind: word as Waiver['kind'],
        lifts,
        reason,
        requester,
        expiresAt: core.now() + duration,
      });
      terminal.stdout.write(`${made.id}\n`);
    },
  );
  waiver
    .command('list')
    .description('list waivers, the latest first')
    .option('--account <name>', 'only those of this account')
    .addOption(new Option('--state <state>', 'only those in this state').choices(waiverStates))
    .action(async ({ account, state }: { account?: string; state?: WaiverState }) => {
      await withInstallation(environment, async ({ core }) => {
        const id = account === undefined ? undefined : await accountId(core, account);
        const read = (before: number) => core.waivers.list(id, state, pageSize, { after: before });
        for await (const page of pagesOf(Number.MAX_SAFE_INTEGER, pageSize, read, (each) => each.id))
          for (const each of page)
            terminal.stdout.write(
              await lineOf({ ...each, state: stateAt(each, core.now()) }, (of) => core.accounts.nameOf(of)),
            );
      });
    });
  const decide = (name: string, description: string) => waiver.command(`${name} <id>`).description(description);
  decide('approve', 'approve a request')
    .addOption(
      new Option('--layer <policy>', 'lift it in the policy of the account, or in that of all accounts')
        .choices(['account', 'all'])
        .makeOptionMandatory(),
    )
    .action(async (id: string, { layer }: { layer: 'account' | 'all' }) => {
      await withInstallation(environment, async ({ core }) => {
        await core.waivers.decide(undefined, numberOf(id), { state: 'approved', layer }, undefined);
      });
    });
  decide('reject', 'reject a request').action(async (id: string) => {
    await withInstallation(environment, async ({ core }) => {
      await core.waivers.decide(undefined, numberOf(id), { state: 'rejected' }, undefined);
    });
  });
  decide('end', 'end a waiver now').action(async (id: string) => {
    await withInstallation(environment, async ({ core }) => {
      await core.waivers.end(undefined, numberOf(id));
    });
  });
}

async function lineOf(
  { id, state, accountId: account, layer, name, references, lifts, expiresAt, reason }: Waiver,
  nameOf: (id: number) => Promise<string | undefined>,
): Promise<string> {
  const until = new Date(expiresAt).toISOString();
  return row(id, state, (await nameOf(account)) ?? '', layer ?? '-', name, references.join(','), lifts, until, reason);
}

function numberOf(id: string): number {
  if (!/^\d{1,15}$/.test(id)) throw new DomainError('Invalid', `${id}: expected the number of a waiver.`);
  return Number(id);
}
