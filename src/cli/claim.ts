import { Option, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../errors.ts';
import type { House } from '../server.ts';
import { accountId, inHouse, type Terminal } from './in-house.ts';

type Kind = 'package' | 'container';

interface Claim {
  name: string;
  /** Where the list goes on. */
  position: string;
  since: number;
}

const atATime = 500;

/** Claims of which nothing is left: their names are kept from upstream all the same. */
const empty: Record<Kind, string> = {
  package: `SELECT package_id AS name, package_key AS position, created_at AS since FROM packages
    WHERE account_id = ? AND package_key > ? AND version_count = 0 ORDER BY package_key LIMIT ${atATime}`,
  container: `SELECT name, name AS position, claimed_at AS since FROM repositories
    WHERE account_id = ? AND name > ? AND claimed_at IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM manifests WHERE manifests.repository_id = repositories.id)
    ORDER BY name LIMIT ${atATime}`,
};

/** `entrepot claim` */
export function addClaim(program: Command, environment: Environment, terminal: Terminal): void {
  const claim = program.command('claim').description('names that stay claimed when nothing of them is left');
  claim
    .command('list')
    .description('list the claims that can be released: nothing of that name is left, and no upstream is asked for it')
    .option('--account <name>', 'the account', 'default')
    .action((options: { account: string }) =>
      inHouse(environment, async (house) => {
        const account = await accountId(house, options.account);
        for (const kind of ['package', 'container'] as const) {
          for await (const { name, since } of emptyClaims(house, account, kind)) {
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
    inHouse(environment, async (house) => {
      const account = await accountId(house, options.account);
      if (options.kind === 'package') await releasePackage(house, account, name);
      else await releaseContainer(house, account, name);
    }),
  );
}

async function* emptyClaims({ database }: House, account: number, kind: Kind): AsyncGenerator<Claim> {
  for (let after = ''; ;) {
    const claims = await database.select<Claim>(empty[kind], [account, after]);
    yield* claims;
    if (claims.length < atATime) return;
    after = claims.at(-1)!.position;
  }
}

/** The row is the claim. */
async function releasePackage({ database }: House, account: number, id: string): Promise<void> {
  const values = [account, id.toLowerCase()];
  await database.transaction(async (tx) => {
    const gone = 'DELETE FROM packages WHERE account_id = ? AND package_key = ? AND version_count = 0';
    if ((await tx.run(gone, values)) > 0) return;
    const found = await tx.get('SELECT id FROM packages WHERE account_id = ? AND package_key = ?', values);
    throw found ? inUse('package', id, 'versions') : unclaimed('package', id);
  });
}

/** The row stays, with blobs that may be left in it. */
async function releaseContainer({ database }: House, account: number, name: string): Promise<void> {
  const values = [account, name];
  await database.transaction(async (tx) => {
    // The lock first: a push takes it before it writes its manifest.
    await tx.run('UPDATE repositories SET updated_at = updated_at WHERE account_id = ? AND name = ?', values);
    const found = await tx.get<{ id: number; manifests: number }>(
      `SELECT r.id, (SELECT COUNT(*) FROM manifests m WHERE m.repository_id = r.id) AS manifests
       FROM repositories r WHERE r.account_id = ? AND r.name = ? AND r.claimed_at IS NOT NULL`,
      values,
    );
    if (!found) throw unclaimed('container', name);
    if (found.manifests > 0) throw inUse('container', name, 'manifests');
    await tx.run('UPDATE repositories SET claimed_at = NULL WHERE id = ?', [found.id]);
  });
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
