import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { prefetch } from '../prefetch/prefetch.ts';
import { things, type PrefetchReport, type Tally } from '../prefetch/report.ts';
import { locationText } from '../prefetch/item.ts';
import { shown } from './printed.ts';
import { prefetchSelection, selectedItems, withSelection, type SelectionFlags } from './selection.ts';
import { accountId, stoppedBy, type Terminal, withInstallation } from './with-installation.ts';
import { binaryBytes, ProgressBar } from './progress.ts';

/** `entrepot prefetch` */
export function addPrefetch(program: Command, environment: Environment, terminal: Terminal): void {
  const command = program
    .command('prefetch')
    .description('fetch content from upstreams before clients need it, so that it is stored when an upstream is down');
  withSelection(command)
    .option('--dry-run', 'show what would be fetched; fetches only manifests and dependency data')
    .action(async (files: string[], options: SelectionFlags & { dryRun?: boolean }) => {
      if (files.length === 0 && !options.inUse) {
        throw new DomainError('Invalid', 'give a file, a folder, "-" for a list on standard input, or --in-use');
      }
      const items = await selectedItems(files, options, terminal);
      const controller = stoppedBy(terminal);
      await withInstallation(
        environment,
        async ({ core, protocols }) => {
          const bar = new ProgressBar(terminal.screen);
          const report = await prefetch(
            { upstreams: core.upstreams, protocols },
            {
              ...prefetchSelection(options),
              accountId: await accountId(core, options.account),
              items,
              dryRun: options.dryRun === true,
              signal: controller.signal,
              watch: (progress) => bar.show(progress),
            },
          ).finally(() => bar.clear());
          printReport(report, options.dryRun === true, terminal);
        },
        { level: 'silent', creates: !options.inUse && options.dryRun !== true },
      );
    });
}

/** Prints the summary to stdout and missing content to stderr. Throws if something is missing. */
function printReport(report: PrefetchReport, dryRun: boolean, terminal: Terminal): void {
  const { fetched, present, skipped, missing } = report;
  const names = { package: 'packages', manifest: 'manifests', blob: 'layers' };
  for (const thing of things) {
    if (fetched[thing].count + present[thing].count === 0) continue;
    // A dry run fetches manifests, because they list the rest.
    const verb = dryRun && thing !== 'manifest' ? 'to fetch' : 'fetched';
    terminal.stdout.write(
      `${names[thing]}: ${amount(fetched[thing])} ${verb}, ${amount(present[thing])} here already\n`,
    );
  }
  if (report.unmeasured > 0) terminal.stdout.write(`the size of ${report.unmeasured} is unknown\n`);
  for (const [what, reason] of skipped) terminal.stdout.write(`skipped: ${shown(what)}: ${shown(reason)}\n`);
  if (report.approximate) {
    terminal.stdout.write(
      'approximate: the lowest version that applies was chosen for each dependency; a lock file is exact\n',
    );
  }
  printMissing(missing, terminal);
  if (report.interrupted)
    throw new DomainError('Aborted', 'stopped before the end; run the same command again to continue');
  if (missing.length > 0) throw new DomainError('NotFound', `${missing.length} missing`);
}

function amount({ count, bytes }: Tally): string {
  return count === 0 ? '0' : `${count} (${binaryBytes(bytes)})`;
}

/** Prints to stderr what could not be fetched, with the reasons. */
export function printMissing(missing: PrefetchReport['missing'], terminal: Terminal): void {
  for (const { what, reason, location } of missing) {
    const text = `${what} (${locationText(location)}): ${reason.replace(/\.$/, '')}`;
    terminal.stderr.write(`missing: ${shown(text)}\n`);
  }
}
