import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Core } from '../server/core.ts';
import { addPatternOptions, patternsIn, patternsText, type PatternOptions } from './patterns.ts';
import { row } from './printed.ts';
import { forAccount, type Terminal } from './with-installation.ts';

type Token = Awaited<ReturnType<Core['tokens']['list']>>[number];

interface CreateOptions extends PatternOptions {
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
    .requiredOption('--name <name>', 'the name of the token')
    .option('--scope <list>', 'scopes: any of read,write,delete,promote,admin,operate', 'read');
  forAccount<CreateOptions>(
    addPatternOptions(create, 'it').option(
      '--expires <duration>',
      'how long it is valid, such as 90d; unlimited by default',
    ),
    environment,
    async (account, { core }, options) => {
      const { value } = await core.tokens.create(account, {
        name: options.name,
        scopes: options.scope.split(','),
        patterns: patternsIn(options),
        expiresAt: options.expires === undefined ? null : Date.now() + durationOf(options.expires),
      });
      terminal.stdout.write(`${value}\n`);
    },
    { creates: true },
  );
  forAccount(
    token.command('list').description('list the tokens of an account'),
    environment,
    async (account, { core }) => {
      for (const each of await core.tokens.list(account, 10_000)) {
        const { id, tokenPrefix, scopes, name, patterns, createdBy: maker } = each;
        const limits = patterns ? [patternsText(patterns)] : [];
        const end = endOf(each);
        const by = `by ${maker?.name ?? maker?.kind ?? 'unknown'}`;
        terminal.stdout.write(row(id, tokenPrefix, scopes.join(','), end, name, ...limits, by));
      }
    },
  );
  forAccount(
    token.command('revoke <id>').description('revoke a token'),
    environment,
    (account, { core }, _options, id) => core.tokens.revoke(account, id!),
  );
}

function durationOf(text: string): number {
  const duration = parseDuration(text);
  if (duration === undefined || duration <= 0)
    throw new DomainError('Invalid', '--expires needs a duration such as 12h or 90d.');
  return duration;
}

function endOf({ expiresAt, revokedAt, refusedBecause }: Token): string {
  if (refusedBecause !== null && revokedAt === null) return `refused ${refusedBecause}`;
  if (revokedAt !== null) return `revoked ${new Date(revokedAt).toISOString()}`;
  return expiresAt === null ? 'never expires' : `expires ${new Date(expiresAt).toISOString()}`;
}
