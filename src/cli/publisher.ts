import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { addPatternOptions, patternsIn, type PatternOptions } from './patterns.ts';
import { row, shown } from './printed.ts';
import { forAccount, type Terminal } from './with-installation.ts';

interface CreateOptions extends PatternOptions {
  name: string;
  issuer: string;
  claim: string[];
  scope: string;
}

/** Longest identity token on stdin, in characters. */
const maxTokenLength = 16 * 1024;

/** `entrepot publisher` */
export function addPublisher(program: Command, environment: Environment, terminal: Terminal): void {
  const publisher = program
    .command('publisher')
    .description('create, list, delete and explain the rules by which identity tokens are exchanged for tokens');
  const create = publisher
    .command('create')
    .description('create a rule and print its ID')
    .requiredOption('--name <name>', 'the name of the rule, and of the tokens that it gives')
    .requiredOption('--issuer <name>', 'the name of an issuer in the setting trustedIssuers')
    .requiredOption(
      '--claim <name=value>',
      'a claim that the identity token must have, such as repository_id=123; repeat it for further claims and values',
      (text: string, before: string[] | undefined) => [...(before ?? []), text],
    )
    .option('--scope <list>', 'scopes of the tokens: any of read,write,delete,promote,admin,operate', 'read');
  forAccount<CreateOptions>(
    addPatternOptions(create, 'the tokens'),
    environment,
    async (account, { core }, options) => {
      const { publishers } = core.identity;
      const made = await publishers.create(account, {
        name: options.name,
        issuer: options.issuer,
        claims: claimsIn(options.claim),
        scopes: options.scope.split(','),
        patterns: patternsIn(options) ?? null,
      });
      for (const warning of publishers.warningsOf(made)) terminal.stderr.write(`entrepot: ${warning}\n`);
      terminal.stdout.write(`${made.id}\n`);
    },
    { creates: true },
  );
  forAccount(
    publisher.command('list').description('list the rules of an account'),
    environment,
    async (account, { core }) => {
      for (const each of await core.identity.publishers.list(account)) {
        const claims = Object.entries(each.claims).map(([claim, values]) => `${claim}=${values.join('|')}`);
        const columns = [each.id, each.issuer, each.scopes.join(','), claims.join(' '), each.source, each.name];
        terminal.stdout.write(row(...columns));
      }
    },
  );
  forAccount(
    publisher.command('delete <id>').description('delete a rule, and revoke the tokens that it gave'),
    environment,
    (account, { core }, _options, id) => core.identity.publishers.delete(account, id!),
  );
  forAccount(
    publisher
      .command('explain')
      .description('read an identity token from stdin, and say which rules match it; it is not exchanged'),
    environment,
    async (account, { core }) => {
      const { issuer, problem, rules } = await core.identity.exchange.explain(account, await readToken(terminal));
      const { stdout } = terminal;
      stdout.write(`${shown(problem ?? `The token of the issuer ${issuer} is accepted.`)}\n`);
      for (const { publisher: rule, missed } of rules) {
        stdout.write(`${shown(rule.name)}: ${resultOf(missed)}\n`);
        for (const { claim, wanted, found } of missed ?? []) {
          const text = `${claim} is ${found.join(', ') || 'missing'}, but must be ${wanted.join(' or ')}`;
          stdout.write(`  ${shown(text)}\n`);
        }
      }
      if (rules.length === 0) stdout.write('The account has no rules.\n');
    },
  );
}

function resultOf(missed: readonly unknown[] | null): string {
  if (missed === null) return 'is for another issuer';
  return missed.length === 0 ? 'matches' : 'does not match';
}

/** A claim that is given several times has several values. */
function claimsIn(texts: readonly string[]): Record<string, string[]> {
  const claims = new Map<string, string[]>();
  for (const text of texts) {
    const at = text.indexOf('=');
    if (at < 1) throw new DomainError('Invalid', '--claim needs a name and a value, such as repository_id=123.');
    const name = text.slice(0, at);
    claims.set(name, [...(claims.get(name) ?? []), text.slice(at + 1)]);
  }
  return Object.fromEntries(claims);
}

/** From stdin, because other users of the machine can read the arguments of a command. */
async function readToken({ stdin }: Terminal): Promise<string> {
  let text = '';
  for await (const piece of stdin ?? []) {
    text += typeof piece === 'string' ? piece : Buffer.from(piece).toString('utf8');
    if (text.length > maxTokenLength + 2) throw new DomainError('Invalid', 'The identity token on stdin is too long.');
  }
  if (text.trim() === '') throw new DomainError('Invalid', 'Send the identity token to stdin.');
  return text.trim();
}
