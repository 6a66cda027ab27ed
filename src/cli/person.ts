import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { DomainError } from '../runtime/errors.ts';
import { pagesOf } from '../runtime/pages.ts';
import type { Core } from '../server/core.ts';
import { row } from './printed.ts';
import { accountId, forAccount, withInstallation, type Terminal } from './with-installation.ts';

interface PlaceOptions {
  account?: string;
}

interface LimitOptions {
  longest?: string;
  scopes?: string;
}

const pageSize = 500;
const day = 86_400_000;

/** `entrepot person` */
export function addPerson(program: Command, environment: Environment, terminal: Terminal): void {
  const person = program.command('person').description('people who sign in with the provider, and their tokens');
  const add = (name: string, description: string) =>
    person
      .command(name)
      .description(description)
      .option('--account <name>', 'only in this account; without it, in all');
  add('list', 'list people who signed in or are disabled: ID, last sign-in, where disabled, subject, name').action(
    ({ account }: PlaceOptions) =>
      withInstallation(environment, async ({ core: { knownPeople } }) => {
        const read = (after: string) => knownPeople.list(pageSize, after);
        for await (const page of pagesOf('', pageSize, read, ({ id }) => id))
          for (const known of page)
            if (knownPeople.concerns(known, account)) {
              const { id, signedInAt, person: each } = known;
              const places = Object.keys(each.disabled ?? {}).map((name) => (name === '*' ? 'everywhere' : name));
              const where = places.length === 0 ? '-' : `disabled ${places.join(',')}`;
              terminal.stdout.write(row(id, new Date(signedInAt).toISOString(), where, each.subject, each.name));
            }
      }),
  );
  add('disable <id>', 'refuse the sessions and personal tokens of a person from now on')
    .requiredOption('--reason <text>', 'why, for the audit')
    .action((id: string, { account, reason }: PlaceOptions & { reason: string }) =>
      withInstallation(environment, async ({ core }) => {
        await core.knownPeople.disable(id, await placeOf(core, account), reason);
      }),
    );
  add('enable <id>', 'let a person who was disabled in again').action((id: string, { account }: PlaceOptions) =>
    withInstallation(environment, async ({ core }) => {
      await core.knownPeople.enable(id, await placeOf(core, account));
    }),
  );
  forAccount<LimitOptions>(
    person
      .command('limit')
      .description('print what an account allows personal tokens, as JSON; with options, change it')
      .option('--longest <time>', 'the longest life, such as 30d; - for that of the settings')
      .option('--scopes <list>', 'the scopes that they may have, such as read,write; - for all of the person'),
    environment,
    async (account, { core: { personalLimits } }, { account: name, longest, scopes }) => {
      const before = await personalLimits.of(account);
      const after = {
        scopes: scopes === undefined ? before.scopes : scopes === '-' ? null : scopes.split(','),
        longest: longest === undefined ? before.longest : longest === '-' ? null : daysIn(longest) * day,
      };
      if ((longest ?? scopes) !== undefined) await personalLimits.put({ id: account, name }, after);
      const shown = { scopes: after.scopes, longest_days: after.longest === null ? null : after.longest / day };
      terminal.stdout.write(`${JSON.stringify(shown)}\n`);
    },
  );
}

async function placeOf(core: Core, account: string | undefined): Promise<{ id: number; name: string } | undefined> {
  return account === undefined ? undefined : { id: await accountId(core, account), name: account };
}

function daysIn(text: string): number {
  const days = (parseDuration(text) ?? 0) / day;
  if (Number.isInteger(days) && days >= 1 && days <= 3650) return days;
  throw new DomainError('Invalid', '--longest: expected a time of whole days such as 30d, from 1d to 3650d.');
}
