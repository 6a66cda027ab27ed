import type { Command } from 'commander';
import { pluralOf, protocolWords } from '../config/protocols.ts';
import type { Environment } from '../config/load.ts';
import { addKindOption, protocolOf, type KindOptions } from './named-kind.ts';
import { listIn } from './patterns.ts';
import { row } from './printed.ts';
import type { Core } from '../server/core.ts';
import { forAccount, type Terminal } from './with-installation.ts';

type Grant = Awaited<ReturnType<Core['grants']['get']>>;
type AddOptions = Readonly<Record<string, string | undefined>> & { may: string; issuer?: string };

const pageSize = 500;

/** `entrepot grant` */
export function addGrant(program: Command, environment: Environment, terminal: Terminal): void {
  const grant = program.command('grant').description('who may do what with which names of an account');
  const add = grant
    .command('add')
    .description('let a person, a group, a token or another account do something, and print the ID of the grant')
    .argument('<kind>', 'who gets it: person, group, token or account')
    .argument('<id>', 'the subject of a person, the ID of a group or a token, or the name of an account')
    .requiredOption('--may <list>', 'any of read,write,delete,promote,admin; another account gets only read')
    .option('--issuer <url>', 'the provider of the person or group; by default signIn.oidc.issuer');
  for (const { word, names, example } of protocolWords)
    add.option(
      `--${pluralOf(word)} <patterns>`,
      `limit it to ${names}, such as ${example}; alone, it gives no other kind of names`,
    );
  forAccount<AddOptions>(add, environment, async (account, { core }, options, kind, id) => {
    const given = protocolWords.flatMap(({ word, plural }) => {
      const list = options[pluralOf(word)];
      return list === undefined ? [] : [[plural, listIn(list)] as const];
    });
    const made = await core.grants.add(account, {
      subject: { kind: kind!, issuer: options.issuer, id: id! },
      verbs: options.may.split(','),
      patterns: given.length === 0 ? null : Object.fromEntries(given),
    });
    terminal.stdout.write(`${made.id}\n`);
  });
  forAccount(
    grant.command('list').description('list the grants of an account, and those of other accounts to it'),
    environment,
    async (account, { core }) => {
      for (let after: [number, string] | undefined; ;) {
        const page = await core.grants.list(account, pageSize, after);
        for (const each of page)
          terminal.stdout.write(lineOf(each, (await core.accounts.nameOf(each.accountId)) ?? ''));
        const last = page.at(-1);
        if (!last || page.length < pageSize) return;
        after = [last.createdAt, last.id];
      }
    },
  );
  forAccount(
    grant.command('accept <id>').description('accept a grant of another account'),
    environment,
    async (account, { core }, _options, id) => {
      await core.grants.accept(account, id!);
    },
  );
  forAccount(
    grant.command('remove <id>').description('remove a grant of the account, or end one of another account to it'),
    environment,
    (account, { core }, _options, id) => core.grants.remove(account, id!),
  );
}

/** `entrepot access` */
export function addAccess(program: Command, environment: Environment, terminal: Terminal): void {
  const access = program.command('access').description('who may do what');
  forAccount<KindOptions>(
    addKindOption(
      access
        .command('list')
        .description('list all who may do something with a name of an account, and which rule or grant gives it')
        .argument('<verb>', 'such as read or write')
        .argument('<name>', 'the package or image'),
    ),
    environment,
    async (id, { core, protocols }, { account, ...kind }, ...[verb, name]) => {
      const { protocol } = protocolOf(protocols, name!, kind);
      const about = { account: { id, name: account }, kind: protocol.kind, name: name!, verb: verb! };
      const { entitled, isComplete } = await core.access.entitled(about);
      for (const { who, name: called, because } of entitled)
        terminal.stdout.write(row(who.kind, who.id, called ?? '-', because));
      if (!isComplete)
        terminal.stderr.write('entrepot: there are more people or tokens than are examined; some may be missing\n');
    },
  );
  forAccount<KindOptions>(
    addKindOption(
      access
        .command('explain')
        .description(
          'print whether somebody may do something with a name of an account, and which rule or grant decides',
        )
        .argument('<who>', 'person, group, token or account')
        .argument('<id>', 'the ID or subject of a person, the ID of a group or a token, or the name of an account')
        .argument('<verb>', 'such as read or write')
        .argument('<name>', 'the package or image'),
    ),
    environment,
    async (id, { core, protocols }, { account, ...kind }, ...[who, of, verb, name]) => {
      const { protocol, word } = protocolOf(protocols, name!, kind);
      const question = { account: { id, name: account }, kind: protocol.kind, name: name! };
      const { allowed, because } = await core.access.explainTyped(question, { who: who!, id: of!, verb: verb! });
      const may = allowed ? 'may' : 'may not';
      terminal.stdout.write(`The ${who} ${of} ${may} ${verb} the ${word} ${name} of ${account}: ${because}.\n`);
    },
  );
}

function lineOf({ id, subject, verbs: scopes, patterns, acceptedAt }: Grant, account: string): string {
  const state = subject.kind === 'account' && acceptedAt === null ? 'pending' : 'active';
  const names = protocolWords.map(
    ({ plural, word }) => `${pluralOf(word)}: ${patterns ? patterns[plural]?.join(',') || 'none' : 'all'}`,
  );
  return row(id, account, state, scopes.join(','), names.join('; '), subject.kind, subject.id, subject.issuer ?? '-');
}
