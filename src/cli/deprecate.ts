import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Installation } from '../server/installation.ts';
import { row } from './printed.ts';
import { forAccount, type Terminal } from './with-installation.ts';

interface DeprecateOptions {
  version?: string[];
  all?: boolean;
  reason?: string[];
  message?: string;
  alternative?: string;
  undo?: boolean;
}

interface CreateOptions {
  affected: string;
  severity: string;
  url: string;
}

/** `entrepot deprecate` */
export function addDeprecate(program: Command, environment: Environment, terminal: Terminal): void {
  const deprecate = program
    .command('deprecate <id>')
    .description('mark hosted versions of a package as deprecated, which clients show to its users')
    .option('--version <versions...>', 'the versions')
    .option('--all', 'all versions that exist now, instead of --version')
    .option('--reason <reasons...>', 'one or more of Legacy, CriticalBugs, Other')
    .option('--message <text>', 'what users should know; needed with Other')
    .option('--alternative <package>', 'the package to use instead: ID, or ID@RANGE such as My.Package@2.0.0')
    .option('--undo', 'end the deprecation of the versions')
    .addHelpText('after', '\nPrints the number of versions that changed.');
  forAccount<DeprecateOptions>(deprecate, environment, async (account, opened, options, id) => {
    const changed = await noticesOf(opened).deprecate(account, id!, versionsIn(options), deprecationIn(options));
    terminal.stdout.write(`${changed}\n`);
  });
}

/** `entrepot advisory` */
export function addAdvisory(program: Command, environment: Environment, terminal: Terminal): void {
  const advisory = program
    .command('advisory')
    .description('vulnerabilities of hosted packages, of which NuGet warns at a restore');
  const create = advisory
    .command('create <id>')
    .description('report a vulnerability of a hosted package; prints the ID of the advisory')
    .requiredOption(
      '--affected <range>',
      'the affected versions, with brackets: "[1.0.0, 1.2.0)", or "[1.0.0]" for one',
    )
    .requiredOption('--severity <level>', `${levels.join(', ')}; or 0 to 3`)
    .requiredOption('--url <address>', 'where people read about it');
  forAccount<CreateOptions>(create, environment, async (account, opened, options, packageId) => {
    const { affected: versions, url } = options;
    const given = { packageId: packageId!, versions, severity: severityOf(options.severity), url };
    terminal.stdout.write(`${(await noticesOf(opened).createAdvisory(account, given)).id}\n`);
  });
  const list = advisory
    .command('list')
    .description('list the advisories of an account: ID, package, affected versions, severity, address');
  forAccount(list, environment, async (account, opened) => {
    for (const { id, packageId, versions, severity, url } of await noticesOf(opened).listAdvisories(account)) {
      terminal.stdout.write(row(id, packageId, versions, levels[severity] ?? '', url));
    }
  });
  forAccount(
    advisory.command('delete <advisory>').description('delete an advisory by its ID, so that clients no longer warn'),
    environment,
    (account, opened, _options, id) => noticesOf(opened).deleteAdvisory(account, id!),
  );
}

function noticesOf({ protocols }: Installation) {
  return protocols.find(({ notices }) => notices)!.notices!;
}

/** The levels of severity, from 0. */
const levels = ['low', 'moderate', 'high', 'critical'];

function versionsIn({ version, all }: DeprecateOptions): 'all' | string[] {
  if ((version === undefined) === !all) throw new DomainError('Invalid', 'Give the versions with --version, or --all.');
  return version ?? 'all';
}

/** Null to end the deprecation. */
function deprecationIn({ reason, message, alternative, undo }: DeprecateOptions) {
  if (undo) {
    if (reason ?? message ?? alternative) {
      throw new DomainError('Invalid', '--undo takes no --reason, --message or --alternative.');
    }
    return null;
  }
  const [id = '', range] = alternative?.split(/@(.*)/s) ?? [];
  return { reasons: reason ?? [], message, alternative: alternative === undefined ? undefined : { id, range } };
}

function severityOf(text: string): number {
  const level = levels.indexOf(text.toLowerCase());
  if (level >= 0) return level;
  if (/^[0-3]$/.test(text)) return Number(text);
  throw new DomainError('Invalid', `--severity is one of ${levels.join(', ')}, or 0 to 3.`);
}
