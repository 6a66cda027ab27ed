import { Option, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../errors.ts';
import type { Core } from '../server.ts';
import { accountId, withCore, type Terminal } from './with-core.ts';

type Kind = 'package' | 'container';

const atATime = 500;
/** What is still there of a name that cannot be given up. */
const rest: Record<Kind, string> = { package: 'versions', container: 'manifests' };

/** `entrepot claim` */
export function addClaim(program: Command, environment: Environment, terminal: Terminal): void {
  const claim = program.command('claim').description('names that stay claimed when nothing of them is left');
  claim
    .command('list')
    .description('list the claims that can be released: nothing of that name is left, and no upstream is asked for it')
    .option('--account <name>', 'the account', 'default')
    .action((options: { account: string }) =>
      withCore(environment, async (core) => {
        const account = await accountId(core, options.account);
        for (const kind of ['package', 'container'] as const) {
          for await (const { name, since } of allEmpty(core, account, kind)) {
            terminal.stdout.write(`${kind}\t${name}\t${new Date(since).toISOString()}\n`);
          }
        }
      }),
    );
  const release = claim
    .command('release <name>')
    .description('give up a name of which nothing is left, so that upstreams may be asked for it')
    .addOption(new Option('--kind <kind>', 'what it names').choices(['package', 'container']).makeOptionMandatory())
    .option('--account <name>', 'the account it belongs to', 'default');
  release.action((name: string, options: { account: string; kind: Kind }) =>
    withCore(environment, async (core) => {
      const account = await accountId(core, options.account);
      const { kind } = options;
      const obstacle = await core.emptyClaims[kind].release(account, name);
      if (obstacle === 'unclaimed') throw unclaimed(kind, name);
      if (obstacle === 'in use') throw inUse(kind, name, rest[kind]);
    }),
  );
}

async function* allEmpty(
  { emptyClaims }: Core,
  account: number,
  kind: Kind,
): AsyncGenerator<{ name: string; since: number }> {
  for (let after = ''; ;) {
    const page = await emptyClaims[kind].list(account, after, atATime);
    yield* page;
    if (page.length < atATime) return;
    after = page.at(-1)!.position;
  }
}

function unclaimed(kind: Kind, name: string): DomainError {
  return new DomainError(
    'NotFound',
    `The account claims no ${kind} "${name}"; "entrepot claim list" shows what it does.`,
  );
}

function inUse(kind: Kind, name: string, what: string): DomainError {
  return new DomainError(
    'Invalid',
    `The ${kind} "${name}" still has ${what}: delete them first, then release its name.`,
  );
}
