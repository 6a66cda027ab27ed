import { pagesOf } from '../runtime/pages.ts';
import { Option, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { counterNames } from '../usage/counters.ts';
import { isClosed, parsePeriod, periodAt, type Period } from '../usage/period.ts';
import { reconcile } from '../usage/reconcile.ts';
import { itemsOf, storageOf, totalsOf, type Grouping } from '../usage/report.ts';
import type { Core } from '../server/core.ts';
import { allProtocols, type Installation } from '../server/installation.ts';
import { row } from './printed.ts';
import { forAccount, withInstallation, type Terminal } from './with-installation.ts';

const pageSize = 500;

/** `entrepot usage` */
export function addUsage(program: Command, environment: Environment, terminal: Terminal): void {
  const divisions = new Option('--by <division>', 'also print a line for each').choices([
    'day',
    'token',
    ...allProtocols.map(({ kind }) => kind),
  ]);
  const usage = program
    .command('usage')
    .description('show the usage of an account in a month')
    .option('--period <month>', 'the month as YYYY-MM, UTC; the current one when left out')
    .addOption(divisions);
  forAccount<{ period?: string; by?: Grouping }>(usage, environment, async (account, installation, options) => {
    const period = periodIn(options.period);
    await report(installation, account, period, terminal);
    if (options.by) await list(installation.core, account, period, options.by, terminal);
  });
  usage
    .command('reconcile')
    .description('compare recorded usage with access logs, and print the differences; fails if there are any')
    .requiredOption('--access-log <files...>', 'the JSON logs of all instances')
    .option('--period <month>', 'the month as YYYY-MM, UTC; the current one when left out')
    .action((options: { accessLog: string[] }, command: Command) =>
      withInstallation(environment, async (installation) => {
        const { period } = command.optsWithGlobals<{ period?: string }>();
        const { compared, skipped } = await reconcile(installation.core.database, options.accessLog, periodIn(period));
        terminal.stdout.write('account\tcounter\taccess log\trecorded\tdifference\n');
        for (const { account, counter, logged, recorded } of compared) {
          terminal.stdout.write(row(account, counter, logged, recorded, recorded - logged));
        }
        const wrong = compared.filter(({ logged, recorded }) => logged !== recorded).length;
        const lines = skipped > 0 ? `; ${skipped} lines that are not JSON were skipped` : '';
        if (wrong > 0) throw new DomainError('Invalid', `${wrong} of ${compared.length} counters differ${lines}`);
      }),
    );
}

async function report(
  { core, stored }: Installation,
  account: number,
  period: Period,
  terminal: Terminal,
): Promise<void> {
  const now = Date.now();
  const totals = await totalsOf(core.database, account, period);
  const { current, peak, average, byteHours } = await storageOf(core.database, stored, account, period, now);
  const lines: [string, string | number][] = [
    ['period', `${new Date(period.start).toISOString().slice(0, 7)} (${isClosed(period, now) ? 'closed' : 'open'})`],
    ['hosted_bytes', current.hosted],
    ['mirrored_bytes', current.mirrored],
    ['peak_bytes', peak],
    ['average_bytes', average],
    ['byte_hours', byteHours],
    ...counterNames.map((name): [string, number] => [name, totals[name]]),
  ];
  for (const [name, value] of lines) terminal.stdout.write(`${name}\t${value}\n`);
}

async function list(core: Core, account: number, period: Period, by: Grouping, terminal: Terminal): Promise<void> {
  const division = { byDay: by === 'day', groupBy: by === 'day' ? undefined : by };
  terminal.stdout.write(`\n${by}\t${counterNames.join('\t')}\n`);
  const read = (after?: [string, number]) => itemsOf(core.database, account, period, division, pageSize, after);
  const pages = pagesOf(undefined, pageSize, read, ({ name, day }): [string, number] => [name ?? '', day ?? 0]);
  for await (const items of pages) {
    for (const { day, name, counters } of items) {
      const title = day === null ? name || '-' : new Date(day).toISOString().slice(0, 10);
      terminal.stdout.write(row(title, ...counterNames.map((each) => counters[each])));
    }
  }
}

function periodIn(text: string | undefined): Period {
  const now = Date.now();
  const period = text === undefined ? periodAt(now) : parsePeriod(text);
  if (!period || period.start > now)
    throw new DomainError('Invalid', '--period needs a month such as 2026-11 that is not in the future.');
  return period;
}
