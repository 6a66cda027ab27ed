import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { row } from './printed.ts';
import { withInstallation, type Terminal } from './with-installation.ts';

/** `entrepot account` */
export function addAccount(program: Command, environment: Environment, terminal: Terminal): void {
  const account = program.command('account').description('create and list accounts');
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
}
