import { InvalidArgumentError, type Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseDuration, parseSize } from '../config/units.ts';
import { DomainError } from '../runtime/errors.ts';
import { parsePlatform, type Platform } from '../prefetch/platform.ts';
import { prefetchItemsIn } from '../prefetch/folders.ts';
import { prefetch } from '../prefetch/prefetch.ts';
import { things, type PrefetchReport, type Tally } from '../prefetch/report.ts';
import { parseWindow, type DailyTimes } from '../prefetch/daily-times.ts';
import { locationText, type PrefetchItem } from '../prefetch/item.ts';
import { inputs } from '../server/server.ts';
import { shown } from './printed.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';
import { binaryBytes, ProgressBar } from './progress.ts';

interface Options {
  kind?: string;
  inUse?: boolean;
  newest: number;
  usedWithin?: number;
  platform?: Platform[];
  framework?: string[];
  arg?: Map<string, string>;
  referrers: boolean;
  dryRun?: boolean;
  window?: DailyTimes;
  concurrency: number;
  rate?: number;
  rateLimitShare: number;
  account: string;
}

/** `entrepot prefetch` */
export function addPrefetch(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('prefetch')
    .description('fetch content from upstreams before clients need it, so that it is stored when an upstream is down')
    .argument('[files...]', `${inputs.names}; a folder, with those below it; "-" reads a list from standard input`)
    .option(
      '--kind <kind>',
      `the kind of the files, if their names do not show it: ${inputs.kinds.join(', ')}`,
      oneKind,
    )
    .option('--in-use', 'also content in use: the newest versions of mirrored packages, and tags that were pulled')
    .option('--newest <n>', 'with --in-use: number of versions of each package', count(1, 1000), 1)
    .option('--used-within <duration>', 'with --in-use: only tags pulled within this time; 30d by default', duration)
    .option(
      '--platform <list>',
      'platforms of multi-platform images, such as linux/amd64,linux/arm64; all by default',
      platforms,
    )
    .option('--framework <list>', 'target frameworks to choose dependencies for, such as net8.0', list)
    .option('--arg <name=value>', 'a value for a variable or build argument (repeatable)', assignment)
    .option('--no-referrers', 'do not fetch signatures and other referrers of images')
    .option('--dry-run', 'show what would be fetched; fetches only manifests and dependency data')
    .option('--window <from-to>', 'fetch only during these hours (local time), such as 22:00-06:00', hours)
    .option('--concurrency <n>', 'number of concurrent fetches', count(1, 64), 4)
    .option('--rate <bytes>', 'most bytes per second from all upstreams together, such as 20MiB/s', rate)
    .option('--rate-limit-share <share>', "share of an upstream's announced rate limit to use", share, 0.8)
    .option('--account <name>', 'the account whose hosted packages and images are not fetched', 'default')
    .action(async (files: string[], options: Options) => {
      if (files.length === 0 && !options.inUse) {
        throw new DomainError('Invalid', 'give a file, a folder, "-" for a list on standard input, or --in-use');
      }
      const items: PrefetchItem[] = [];
      for (const file of files) {
        const found = await prefetchItemsIn(file, {
          inputs,
          values: options.arg ?? new Map(),
          stdin: terminal.stdin,
          kind: options.kind,
          onFound: (each) => terminal.stdout.write(`reading ${shown(each)}\n`),
        });
        for (const item of found) items.push(item);
      }
      const controller = new AbortController();
      terminal.once('SIGINT', () => controller.abort());
      terminal.once('SIGTERM', () => controller.abort());
      await withInstallation(
        environment,
        async ({ core, protocols }) => {
          const bar = new ProgressBar(terminal.screen);
          const report = await prefetch(
            { upstreams: core.upstreams, protocols },
            {
              accountId: await accountId(core, options.account),
              items,
              inUse: options.inUse
                ? { newest: options.newest, since: Date.now() - (options.usedWithin ?? duration('30d')) }
                : undefined,
              platforms: options.platform ?? [],
              frameworks: options.framework ?? [],
              referrers: options.referrers,
              dryRun: options.dryRun === true,
              concurrency: options.concurrency,
              rate: options.rate,
              rateLimitShare: options.rateLimitShare,
              window: options.window,
              signal: controller.signal,
              now: Date.now,
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
  for (const { what, reason, location } of missing) {
    const text = `${what} (${locationText(location)}): ${reason.replace(/\.$/, '')}`;
    terminal.stderr.write(`missing: ${shown(text)}\n`);
  }
  if (report.interrupted)
    throw new DomainError('Aborted', 'stopped before the end; run the same command again to continue');
  if (missing.length > 0) throw new DomainError('NotFound', `${missing.length} missing`);
}

function amount({ count, bytes }: Tally): string {
  return count === 0 ? '0' : `${count} (${binaryBytes(bytes)})`;
}

function oneKind(text: string): string {
  const kind = inputs.kinds.find((each) => each === text);
  if (kind) return kind;
  throw new InvalidArgumentError(`Use one of ${inputs.kinds.join(', ')}.`);
}

function count(least: number, most: number): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Use a whole number from ${least} to ${most}.`);
  };
}

function duration(text: string): number {
  const milliseconds = parseDuration(text);
  if (milliseconds !== undefined && milliseconds > 0) return milliseconds;
  throw new InvalidArgumentError('Use a duration such as 12h or 30d.');
}

function list(text: string, before: readonly string[] = []): string[] {
  const found = text.split(',').map((each) => each.trim());
  return [...before, ...found.filter((each) => each !== '')];
}

function platforms(text: string, before: readonly Platform[] = []): Platform[] {
  return [
    ...before,
    ...list(text).map((each) => {
      const platform = parsePlatform(each);
      if (platform) return platform;
      throw new InvalidArgumentError('Use platforms such as linux/amd64,linux/arm/v7.');
    }),
  ];
}

function assignment(text: string, before: ReadonlyMap<string, string> = new Map()): Map<string, string> {
  const match = /^([A-Za-z_][\w.-]*)=([^]*)$/.exec(text);
  if (!match) throw new InvalidArgumentError('Use NAME=VALUE.');
  return new Map([...before, [match[1]!, match[2]!]]);
}

function hours(text: string): DailyTimes {
  const window = parseWindow(text);
  if (window) return window;
  throw new InvalidArgumentError('Use hours such as 22:00-06:00.');
}

function rate(text: string): number {
  const bytes = parseSize(text.replace(/\/s$/, ''));
  if (bytes !== undefined && bytes > 0) return bytes;
  throw new InvalidArgumentError('Use bytes per second such as 20MiB/s.');
}

function share(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(%?)$/.exec(text.trim());
  const part = match ? Number(match[1]) / (match[2] ? 100 : 1) : Number.NaN;
  if (part > 0 && part <= 1) return part;
  throw new InvalidArgumentError('Use a share such as 80% or 0.8.');
}
