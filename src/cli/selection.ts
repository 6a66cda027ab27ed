import { InvalidArgumentError, type Command } from 'commander';
import { parseDuration, parseSize } from '../config/units.ts';
import { prefetchItemsIn } from '../prefetch/folders.ts';
import { parsePlatform, type Platform } from '../prefetch/platform.ts';
import { parseWindow, type DailyTimes } from '../prefetch/daily-times.ts';
import type { PrefetchItem } from '../prefetch/item.ts';
import type { PrefetchOptions } from '../prefetch/prefetch.ts';
import { inputs } from '../server/installation.ts';
import { shown } from './printed.ts';
import type { Terminal } from './with-installation.ts';

/** The options that say what files mean. */
export interface MeaningFlags {
  kind?: string;
  platform?: Platform[];
  framework?: string[];
  arg?: Map<string, string>;
  referrers: boolean;
  account: string;
}

/** The options of commands that fetch what files list. */
export interface SelectionFlags extends MeaningFlags {
  inUse?: boolean;
  newest: number;
  usedWithin?: number;
  window?: DailyTimes;
  concurrency: number;
  rate?: number;
  rateLimitShare: number;
}

/** Adds the options that say what files mean. */
export function withMeaning(command: Command): Command {
  return command
    .option(
      '--kind <kind>',
      `the kind of the files, if their names do not show it: ${inputs.kinds.join(', ')}`,
      oneKind,
    )
    .option(
      '--platform <list>',
      'platforms of multi-platform images, such as linux/amd64,linux/arm64; all by default',
      platforms,
    )
    .option('--framework <list>', 'target frameworks to choose dependencies for, such as net8.0', list)
    .option('--arg <name=value>', 'a value for a variable or build argument (repeatable)', assignment)
    .option('--no-referrers', 'without signatures and other referrers of images')
    .option('--account <name>', 'the account whose hosted packages and images are left out', 'default');
}

/** Adds the files, and the options that say what is fetched, and how. */
export function withSelection(command: Command): Command {
  const files = `${inputs.names}; a folder, with those below it; "-" reads a list from standard input`;
  return withMeaning(command.argument('[files...]', files))
    .option('--in-use', 'also content in use: the newest versions of mirrored packages, and tags that were pulled')
    .option('--newest <n>', 'with --in-use: number of versions of each package', wholeNumber(1, 1000), 1)
    .option('--used-within <duration>', 'with --in-use: only tags pulled within this time; 30d by default', duration)
    .option('--window <from-to>', 'fetch only during these hours (local time), such as 22:00-06:00', hours)
    .option('--concurrency <n>', 'number of concurrent fetches', wholeNumber(1, 64), 4)
    .option('--rate <bytes>', 'most bytes per second from all upstreams together, such as 20MiB/s', rate)
    .option('--rate-limit-share <share>', "share of an upstream's announced rate limit to use", share, 0.8);
}

/** The items of files and folders. Prints the files that it reads. */
export async function selectedItems(
  files: readonly string[],
  { arg, kind }: Pick<SelectionFlags, 'arg' | 'kind'>,
  terminal: Terminal,
): Promise<PrefetchItem[]> {
  const items: PrefetchItem[] = [];
  for (const file of files) {
    const found = await prefetchItemsIn(file, {
      inputs,
      values: arg ?? new Map(),
      stdin: terminal.stdin,
      kind,
      onFound: (each) => terminal.stdout.write(`reading ${shown(each)}\n`),
    });
    for (const item of found) items.push(item);
  }
  return items;
}

/** What the options about the meaning of files are to a prefetch. */
export function meaningToPrefetch({ platform = [], framework = [], referrers }: MeaningFlags) {
  return { platforms: platform, frameworks: framework, referrers } satisfies Partial<PrefetchOptions>;
}

/** What the options are to a prefetch. */
export function prefetchSelection(flags: SelectionFlags) {
  return {
    inUse: flags.inUse
      ? { newest: flags.newest, since: Date.now() - (flags.usedWithin ?? duration('30d')) }
      : undefined,
    ...meaningToPrefetch(flags),
    concurrency: flags.concurrency,
    rate: flags.rate,
    rateLimitShare: flags.rateLimitShare,
    window: flags.window,
    now: Date.now,
  } satisfies Partial<PrefetchOptions>;
}

function oneKind(text: string): string {
  const kind = inputs.kinds.find((each) => each === text);
  if (kind) return kind;
  throw new InvalidArgumentError(`Use one of ${inputs.kinds.join(', ')}.`);
}

/** Reads an option with a whole number. */
export function wholeNumber(least: number, most: number): (text: string) => number {
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

/** Adds a variable that an option gives: `NAME=VALUE`. */
export function assignment(text: string, before: ReadonlyMap<string, string> = new Map()): Map<string, string> {
  const match = /^([A-Za-z_][\w.-]*)=([^]*)$/.exec(text);
  if (!match) throw new InvalidArgumentError('Use NAME=VALUE.');
  return new Map([...before, [match[1]!, match[2]!]]);
}

function hours(text: string): DailyTimes {
  const window = parseWindow(text);
  if (window) return window;
  throw new InvalidArgumentError('Use hours such as 22:00-06:00.');
}

/** Reads an option with bytes per second. */
export function rate(text: string): number {
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
