import { validateDetailed } from 'node-cron';
import { z } from 'zod';

const milliseconds: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const bytes: Record<string, number> = {
  '': 1,
  B: 1,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/** More milliseconds, before now or after it, would not be a date. */
const maxDuration = 4_000_000_000_000_000;

/** The milliseconds of a duration such as `90d`, `5m`, `1.5h`, `30s` or `250ms`; undefined if malformed, or beyond all dates. */
export function parseDuration(text: string): number | undefined {
  const found = anyDuration(text);
  return found !== undefined && found <= maxDuration ? found : undefined;
}

/** A date (UTC), or a date and a time as in RFC 3339, without a zone that of this machine. `Date.parse` takes `7` for a month. */
const timeFormat = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?$/i;

/** The milliseconds since 1970 of a date or a time such as `2027-01-31T12:00:00Z`; undefined if malformed. */
export function parseTime(text: string): number | undefined {
  const trimmed = text.trim();
  const time = timeFormat.test(trimmed) ? Date.parse(trimmed) : NaN;
  return Number.isNaN(time) ? undefined : time;
}

function anyDuration(text: string): number | undefined {
  return parse(text, /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/, milliseconds);
}

/** The bytes of a size such as `512MiB`, `4 GB` or `1000`; undefined if malformed. */
export function parseSize(text: string): number | undefined {
  return parse(text, /^(\d+(?:\.\d+)?) ?(B|[kMGT]B|[KMGT]iB|)$/, bytes);
}

function parse(text: string, pattern: RegExp, units: Record<string, number>): number | undefined {
  const match = pattern.exec(text.trim());
  return match ? Math.round(Number(match[1]) * units[match[2]!]!) : undefined;
}

function withUnit(read: (text: string) => number | undefined, expected: string) {
  return z.union([z.string(), z.number()], { error: expected }).transform((value, context) => {
    const amount = read(String(value));
    if (amount !== undefined) return amount;
    context.addIssue({ code: 'custom', message: expected });
    return z.NEVER;
  });
}

/** A setting in milliseconds, written with a unit. Stored policies have such values, too, so none becomes invalid later. */
export const duration = withUnit(anyDuration, 'expected a duration such as 30s, 5m or 90d');
/** A setting in milliseconds for which timers wait, from `least`. A timer of Node that is set to 25 days or more ends at once. */
export function timerTime(least: number, days: number) {
  const atLeast = z.number().min(least, 'expected more than 0');
  return duration.pipe(atLeast.max(days * milliseconds['d']!, `expected ${days}d or less`));
}
/** A setting in bytes, written with or without a unit. */
export const sizeSetting = withUnit(parseSize, 'expected a size such as 512MiB');

/** When a job runs: a cron expression in UTC, or `off`. */
export const schedule = z.string('expected a cron expression or off').superRefine((text, context) => {
  if (text === 'off') return;
  const { valid, errors } = validateDetailed(text);
  if (valid) return;
  const reason = errors[0]!.message.replace(' a invalid', ' not a valid');
  context.addIssue({ code: 'custom', message: `expected a cron expression such as "15 3 * * *", or off: ${reason}` });
});

/** A whole number. It is text if it comes from the environment. */
export function whole(least: number, most: number) {
  const error = `expected a whole number from ${least} to ${most}`;
  const digits = z.string().regex(/^\d+$/).transform(Number);
  return z.union([z.number(), digits], { error }).pipe(z.int(error).min(least, error).max(most, error));
}

/** A limit: a whole number from 1, or `off` for none. */
export function limit(most: number) {
  const expected = `expected a whole number from 1 to ${most}, or off`;
  return z.union([z.string(), z.number()], { error: expected }).transform((value, context): number | undefined => {
    if (value === 'off') return undefined;
    const number = /^\d{1,15}$/.test(String(value)) ? Number(value) : 0;
    if (number >= 1 && number <= most) return number;
    context.addIssue({ code: 'custom', message: expected });
    return z.NEVER;
  });
}
