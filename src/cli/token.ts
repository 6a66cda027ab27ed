import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { DomainError } from '../errors.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

/** As `Tokens.create` takes them. */
interface Patterns {
  packages?: readonly string[] | undefined;
  containers?: readonly string[] | undefined;
}

interface CreateOptions {
  account: string;
  name: string;
  scope: string;
  packages?: string;
  containers?: string;
  expires?: string;
}

/** `entrepot token` */
export function addToken(program: Command, environment: Environment, terminal: Terminal): void {
  const token = program.command('token').description('create, list and revoke API tokens');
  token
    .command('create')
    .description('create a token and print it')
    .option('--account <name>', 'the account it belongs to', 'default')
    .requiredOption('--name <name>', 'what it is for')
    .option('--scope <list>', 'any of read,write,delete,admin,operate', 'read')
    .option(
      '--packages <patterns>',
      'narrow it to package ids, such as Contoso.*,Fabrikam; a kind without patterns is closed',
    )
    .option(
      '--containers <patterns>',
      'narrow it to image repositories, such as team/*; a kind without patterns is closed',
    )
    .option('--expires <duration>', 'for how long it is valid, such as 90d; for ever when left out')
    .action((options: CreateOptions) =>
      withInstallation(environment, async ({ core }) => {
        const { value } = await core.tokens.create(await accountId(core, options.account), {
          name: options.name,
          scopes: options.scope.split(','),
          patterns: patternsIn(options),
          expiresAt: options.expires === undefined ? null : Date.now() + durationOf(options.expires),
        });
        terminal.stdout.write(`${value}\n`);
      }),
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
            ...(each.patterns ? [narrowed(each.patterns)] : []),
          ];
          terminal.stdout.write(`${columns.join('\t')}\n`);
        }
      }),
    );
  token
    .command('revoke <id>')
    .description('end a token')
    .option('--account <name>', 'the account it belongs to', 'default')
    .action((id: string, options: { account: string }) =>
      withInstallation(environment, async ({ core }) => core.tokens.revoke(await accountId(core, options.account), id)),
    );
}

/** Each option opens its kind; with one of them alone the other kind is closed. */
function patternsIn({ packages, containers }: CreateOptions): Patterns | undefined {
  if (packages === undefined && containers === undefined) return undefined;
  return { packages: listIn(packages), containers: listIn(containers) };
}

function listIn(text = ''): string[] {
  return text
    .split(',')
    .map((each) => each.trim())
    .filter(Boolean);
}

function narrowed({ packages = [], containers = [] }: Patterns): string {
  return `packages: ${packages.join(',') || 'none'}; containers: ${containers.join(',') || 'none'}`;
}

function durationOf(text: string): number {
  const duration = parseDuration(text);
  if (duration === undefined || duration <= 0)
    throw new DomainError('Invalid', '--expires takes a duration such as 12h or 90d.');
  return duration;
}

function endOf(expiresAt: number | null, revokedAt: number | null): string {
  if (revokedAt !== null) return `revoked ${new Date(revokedAt).toISOString()}`;
  return expiresAt === null ? 'never expires' : `expires ${new Date(expiresAt).toISOString()}`;
}
