import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { DomainError } from '../runtime/errors.ts';
import { addPatternOptions, patternsIn, patternsText, type PatternOptions } from './patterns.ts';
import { row } from './printed.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

interface CreateOptions extends PatternOptions {
  account: string;
  name: string;
  scope: string;
  expires?: string;
}

/** `entrepot token` */
export function addToken(program: Command, environment: Environment, terminal: Terminal): void {
  const token = program.command('token').description('create, list and revoke API tokens');
  const create = token
    .command('create')
    .description('create a token and print it')
    .option('--account <name>', 'the account it belongs to', 'default')
    .requiredOption('--name <name>', 'the name of the token')
    .option('--scope <list>', 'scopes: any of read,write,delete,admin,operate', 'read');
  addPatternOptions(create, 'it')
    .option('--expires <duration>', 'how long it is valid, such as 90d; unlimited by default')
    .action((options: CreateOptions) =>
      withInstallation(
        environment,
        async ({ core }) => {
          const { value } = await core.tokens.create(await accountId(core, options.account), {
            name: options.name,
            scopes: options.scope.split(','),
            patterns: patternsIn(options),
            expiresAt: options.expires === undefined ? null : Date.now() + durationOf(options.expires),
          });
          terminal.stdout.write(`${value}\n`);
        },
        { creates: true },
      ),
    );
  token
    .command('list')
    .description('list the tokens of an account')
    .option('--account <name>', 'the account', 'default')
    .action((options: { account: string }) =>
      withInstallation(environment, async ({ core }) => {
        for (const each of await core.tokens.list(await accountId(core, options.account), 10_000)) {
          const columns = [
            each.id,
            each.tokenPrefix,
            each.scopes.join(','),
            endOf(each.expiresAt, each.revokedAt),
            each.name,
            ...(each.patterns ? [patternsText(each.patterns)] : []),
          ];
          terminal.stdout.write(row(...columns));
        }
      }),
    );
  token
    .command('revoke <id>')
    .description('revoke a token')
    .option('--account <name>', 'the account it belongs to', 'default')
    .action((id: string, options: { account: string }) =>
      withInstallation(environment, async ({ core }) => core.tokens.revoke(await accountId(core, options.account), id)),
    );
}

function durationOf(text: string): number {
  const duration = parseDuration(text);
  if (duration === undefined || duration <= 0)
    throw new DomainError('Invalid', '--expires needs a duration such as 12h or 90d.');
  return duration;
}

function endOf(expiresAt: number | null, revokedAt: number | null): string {
  if (revokedAt !== null) return `revoked ${new Date(revokedAt).toISOString()}`;
  return expiresAt === null ? 'never expires' : `expires ${new Date(expiresAt).toISOString()}`;
}
