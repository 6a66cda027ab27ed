import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { typed } from '../runtime/command-name.ts';
import { DomainError } from '../runtime/errors.ts';
import { parsePolicy, writePolicy } from '../policy/document.ts';
import { allAccounts, refusesAllText } from '../policy/policies.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

interface LayerOptions {
  account?: string;
}

interface ApplyOptions extends LayerOptions {
  dryRun?: boolean;
  yes?: boolean;
}

/** `entrepot policy` */
export function addPolicy(program: Command, environment: Environment, terminal: Terminal): void {
  const policy = program.command('policy').description('which content of upstreams clients get, and from when on');
  const add = (name: string, description: string) =>
    policy
      .command(name)
      .description(description)
      .option('--account <name>', 'the policy of this account; without it, the one of all accounts');

  add(
    'apply <file>',
    'replace the policy by the one in a YAML file, or - for the standard input; an empty file ends it',
  )
    .option('--dry-run', 'only check the file')
    .option('--yes', 'also apply a policy that refuses next to everything')
    .action(async (file: string, { account, dryRun = false, yes = false }: ApplyOptions) => {
      await withInstallation(environment, async ({ core }) => {
        const text = await readText(file, terminal);
        const parsed = named(file, () => parsePolicy(text));
        const layer = account === undefined ? allAccounts : await accountId(core, account);
        const { refusesAll } = named(file, () => core.policies.check(parsed?.written));
        if (refusesAll && !yes)
          throw new DomainError('Invalid', `${file}: ${refusesAllText} Add --yes if you mean that.`);
        if (!dryRun) await core.policies.put(layer, parsed?.written ?? {}, 'command');
        const what = account === undefined ? 'of all accounts' : `of the account ${account}`;
        const done = dryRun ? 'is valid; nothing was changed' : parsed ? 'is in force' : 'has ended';
        terminal.stderr.write(`The policy ${what} ${done}.\n`);
        if (dryRun || !parsed || parsed.document.knownBad.lists.length === 0) return;
        const read = typed('jobs run known-bad');
        terminal.stderr.write(
          `A new list denies nothing until the job known-bad has read it. To read it now: ${read}\n`,
        );
      });
    });
  add('show', 'print the policy in force as YAML').action(async ({ account }: LayerOptions) => {
    await withInstallation(environment, async ({ core }) => {
      const layer = account === undefined ? allAccounts : await accountId(core, account);
      const stored = await core.policies.get(layer);
      if (stored?.document) terminal.stdout.write(writePolicy(stored.written));
      else terminal.stderr.write('There is no policy.\n');
    });
  });
}

async function readText(file: string, { stdin }: Terminal): Promise<string> {
  if (file !== '-') {
    return readFile(file, 'utf8').catch((error: unknown) => {
      throw new DomainError('Invalid', `${file}: cannot be read: ${(error as Error).message}`);
    });
  }
  const parts: Uint8Array[] = [];
  for await (const part of stdin ?? []) parts.push(Buffer.from(part));
  return Buffer.concat(parts).toString();
}

/** Runs `work`, whose errors then begin with the name of the file. */
function named<T>(file: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof DomainError) throw new DomainError(error.name, `${file}: ${error.message}`);
    throw error;
  }
}
