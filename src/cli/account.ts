import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { inHouse, type Terminal } from './in-house.ts';

/** `entrepot account` */
export function addAccount(program: Command, environment: Environment, terminal: Terminal): void {
  const account = program.command('account').description('create and list accounts');
  account
    .command('create <name>')
    .description('create an account')
    .action((name: string) =>
      inHouse(environment, async (house) => {
        const created = await house.accounts.create(name);
        terminal.stdout.write(`${created.name}\n`);
      }),
    );
  account
    .command('list')
    .description('list the accounts')
    .action(() =>
      inHouse(environment, async (house) => {
        for (const { name, createdAt } of await house.accounts.list()) {
          terminal.stdout.write(`${name}\t${new Date(createdAt).toISOString()}\n`);
        }
      }),
    );
}
