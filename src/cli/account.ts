import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { typed } from '../runtime/command-name.ts';
import { DomainError } from '../runtime/errors.ts';
import { row } from './printed.ts';
import { forAccount, withInstallation, type Terminal } from './with-installation.ts';

interface BillOptions {
  key?: boolean;
}

/** `entrepot account` */
export function addAccount(program: Command, environment: Environment, terminal: Terminal): void {
  const account = program.command('account').description('create and list accounts, and their bills of materials');
  account
    .command('create <name>')
    .description('create an account')
    .action((name: string) =>
      withInstallation(
        environment,
        async ({ core }) => {
          const created = await core.accounts.create(name);
          terminal.stdout.write(`${created.name}\n`);
        },
        { creates: true },
      ),
    );
  account
    .command('list')
    .description('list the accounts')
    .action(() =>
      withInstallation(environment, async ({ core }) => {
        for (const { name, createdAt } of await core.accounts.list()) {
          terminal.stdout.write(row(name, new Date(createdAt).toISOString()));
        }
      }),
    );
  forAccount<BillOptions>(
    account
      .command('bills [on|off]')
      .description(
        'print, as JSON, whether images that jobs of a CI push get a signed bill of materials of what the job pulled before, and the key that verifies it; with on or off, change it',
      )
      .option('--key', 'print the public key alone, as PEM'),
    environment,
    async (id, { bills }, { account: name, key }, state) => {
      if (state !== undefined && state !== 'on' && state !== 'off')
        throw new DomainError('Invalid', `${state.slice(0, 50)}: expected on or off.`);
      if (state !== undefined) await bills.put({ id, name }, state === 'on');
      const publicKey = await bills.publicKey();
      const shown = { enabled: await bills.isWanted(id), public_key: publicKey };
      if (key && publicKey === null)
        throw new DomainError('NotFound', `There is no key yet: "${typed('account bills on')}" makes it.`);
      terminal.stdout.write(key ? publicKey! : `${JSON.stringify(shown)}\n`);
    },
  );
}
