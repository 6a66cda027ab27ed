import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { parseDuration } from '../config/units.ts';
import type { Environment } from '../config/load.ts';
import { typed } from '../runtime/command-name.ts';
import { DomainError } from '../runtime/errors.ts';
import { parsePolicy, writePolicy } from '../policy/document.ts';
import { allAccounts, refusesAllText } from '../policy/policies.ts';
import type { TrialResult } from '../policy/trial.ts';
import type { Core } from '../server/core.ts';
import { row } from './printed.ts';
import { addHeld } from './held.ts';
import { addSeed } from './seed.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

/** Lines that a trial prints. */
const maxShown = 1000;

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
    .option('--dry-run', 'only check the file, and say what it would have refused of the last 30 days')
    .option('--yes', 'also apply a policy that refuses next to everything')
    .action(async (file: string, { account, dryRun = false, yes = false }: ApplyOptions) => {
      await withInstallation(environment, async ({ core, trial }) => {
        const text = await readText(file, terminal);
        const parsed = named(file, () => parsePolicy(text));
        const layer = await layerOf(core, account);
        const { refusesAll } = named(file, () => core.policies.check(parsed?.written, parsed?.placeOf));
        if (refusesAll && !yes)
          throw new DomainError('Invalid', `${file}: ${refusesAllText} Add --yes if you mean that.`);
        if (!dryRun) await core.policies.put(layer, parsed?.written ?? {}, 'command');
        const done = dryRun ? 'is valid; nothing was changed' : parsed ? 'is in force' : 'has ended';
        terminal.stderr.write(`The policy ${whose(account)} ${done}.\n`);
        const tried = dryRun ? core.policies.layerOf(layer, parsed?.written) : undefined;
        if (tried) {
          printTrial(await trial.run(tried, account === undefined ? undefined : layer, core.now()), terminal);
        }
        if (dryRun || !parsed || parsed.document.knownBad.lists.length === 0) return;
        const read = typed('jobs run known-bad');
        terminal.stderr.write(
          `A new list denies nothing until the job known-bad has read it. To read it now: ${read}\n`,
        );
      });
    });
  addSeed(policy, environment, terminal);
  add('suspend', 'do not enforce the policy for a time; its lists of known bad content still hold')
    .requiredOption('--for <time>', 'for how long, such as 30m or 2h; at most 24h')
    .action(async ({ account, for: text }: LayerOptions & { for: string }) => {
      const duration = parseDuration(text);
      if (!duration) throw new DomainError('Invalid', '--for: expected a time such as 30m or 2h.');
      await withInstallation(environment, async ({ core }) => {
        const until = await core.policies.suspend(await layerOf(core, account), duration);
        terminal.stderr.write(`The policy ${whose(account)} ${suspendedText(until)}\n`);
      });
    });
  add('resume', 'enforce a suspended policy again').action(async ({ account }: LayerOptions) => {
    await withInstallation(environment, async ({ core }) => {
      await core.policies.suspend(await layerOf(core, account), 0);
      terminal.stderr.write(`The policy ${whose(account)} is enforced again.\n`);
    });
  });
  addHeld(policy, environment, terminal);
  add('show', 'print the policy in force as YAML').action(async ({ account }: LayerOptions) => {
    await withInstallation(environment, async ({ core }) => {
      const stored = await core.policies.get(await layerOf(core, account));
      if (stored?.document) terminal.stdout.write(writePolicy(stored.written));
      else terminal.stderr.write('There is no policy.\n');
      if (stored && stored.suspendedUntil > core.now())
        terminal.stderr.write(`It ${suspendedText(stored.suspendedUntil)}\n`);
    });
  });
}

/** The columns: what would have been decided of the first and of the last download, name, reference, first download, rule and reason. */
function printTrial({ tried, refused, unknown, isCut }: TrialResult, terminal: Terminal): void {
  const among = `${tried} versions, tags and digests that clients have downloaded in the last 30 days`;
  const many = isCut ? ` It tried no more than these.` : '';
  terminal.stderr.write(`It would have refused ${refused.length} of ${among}.${many}\n`);
  if (unknown > 0)
    terminal.stderr.write(
      `Of ${unknown} of them nothing is known: their upstream fails, or its documents cannot be read.\n`,
    );
  for (const { name, reference, firstAt, first, last } of refused.slice(0, maxShown)) {
    const time = new Date(firstAt).toISOString();
    terminal.stdout.write(
      row(first.verdict, last.verdict, name, reference, time, first.rule ?? '-', first.reason ?? ''),
    );
  }
  if (refused.length > maxShown) terminal.stderr.write(`These are the first ${maxShown}.\n`);
}

async function layerOf(core: Core, account: string | undefined): Promise<number> {
  return account === undefined ? allAccounts : accountId(core, account);
}

function whose(account: string | undefined): string {
  return account === undefined ? 'of all accounts' : `of the account ${account}`;
}

function suspendedText(until: number): string {
  return `is suspended until ${new Date(until).toISOString()}: until then it refuses nothing, except what its lists name.`;
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
