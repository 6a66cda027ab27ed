import { pagesOf } from '../runtime/pages.ts';
import { Option, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { releaseClaim, type EmptyClaim, type EmptyClaims } from '../mirror/policy/claims.ts';
import { allProtocols } from '../server/installation.ts';
import { row } from './printed.ts';
import { forAccount, type Terminal } from './with-installation.ts';

const pageSize = 500;

/** `entrepot claim` */
export function addClaim(program: Command, environment: Environment, terminal: Terminal): void {
  const claim = program
    .command('claim')
    .description('names that an account still claims after all of their content was deleted');
  forAccount(
    claim
      .command('list')
      .description('list claims without content; until you release such a name, no upstream is used for it'),
    environment,
    async (account, { protocols: opened }) => {
      for (const { kind, claims } of opened) {
        for await (const { name, since } of allEmpty(claims, account)) {
          terminal.stdout.write(row(kind, name, new Date(since).toISOString()));
        }
      }
    },
  );
  const kinds = new Option('--kind <kind>', 'the kind of the name').choices(allProtocols.map(({ kind }) => kind));
  forAccount<{ kind: string }>(
    claim
      .command('release <name>')
      .description('release a claim without content, so that upstreams can serve the name')
      .addOption(kinds.makeOptionMandatory()),
    environment,
    async (account, { protocols: opened }, options, name) => {
      const { kind, claims } = opened.find((each) => each.kind === options.kind)!;
      await releaseClaim(kind, claims, account, name!);
    },
  );
}

async function* allEmpty(claims: EmptyClaims, account: number): AsyncGenerator<EmptyClaim> {
  const read = (after: string) => claims.list(account, after, pageSize);
  for await (const page of pagesOf('', pageSize, read, ({ position }) => position)) yield* page;
}
