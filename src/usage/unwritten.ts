import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Tokens } from '../accounts/tokens.ts';
import { inTime } from '../runtime/in-time.ts';
import { counterNames, type Counters } from './counters.ts';
import type { UnwrittenUsage, UsageRecord } from './record.ts';

/** Most characters of a file. Counts beyond it are lost, which the log says. */
const maxSize = 16 * 2 ** 20;
/** Tokens in one line of a file. */
const tokensPerLine = 1000;
/** The part of the closing time for the database; the rest is for the file. */
const databaseShare = 0.6;

const count = z.int().min(0);
const counters = z.strictObject(
  Object.fromEntries(counterNames.map((name) => [name, count])) as Record<keyof Counters, typeof count>,
);
const seen = z
  .array(z.tuple([z.string().max(255), z.strictObject({ count, firstAt: count, lastAt: count })]))
  .transform((pairs) => new Map(pairs));
const text = z.string().max(2000).nullable();
const job = z.strictObject({
  id: z.string(),
  issuer: z.string(),
  repository: text,
  ref: text,
  run: text,
  subject: text,
});
const user = z.strictObject({
  id: z.string().max(40),
  kind: z.enum(['token', 'job', 'anonymous', 'console']),
  name: text,
  ruleId: text,
  person: text,
  job: job.nullable(),
});
const used = z.strictObject({ by: z.enum(['token', 'person', 'anonymous']), user, pulled: seen, pushed: seen });
const entry = z.strictObject({
  accountId: count,
  token: z.string().max(255),
  kind: z.string().min(1).max(20),
  name: z.string().max(255),
  day: z.int(),
  counters,
  versions: z.array(z.tuple([z.string(), count])).transform((pairs) => (pairs.length > 0 ? new Map(pairs) : undefined)),
  contents: z.array(used).max(3).default([]),
  last: count,
});
const line = z.union([
  z.strictObject({ writer: z.string().min(1).max(64), number: count, entries: z.array(entry) }),
  z.strictObject({ tokens: z.array(z.tuple([z.string(), count])) }),
]);

interface UnwrittenParts {
  usage: UsageRecord;
  tokens: Tokens;
  /** For the files; created when one is written. */
  folder: string;
  log: Logger;
}

/**
 * Usage and times of last use of tokens that a closing server could not write to the database: they are kept in a file of
 * their own, and the next start writes them. Each count is written once, whatever process was interrupted when.
 */
export class Unwritten {
  readonly #parts: UnwrittenParts;

  constructor(parts: UnwrittenParts) {
    this.#parts = parts;
  }

  /** Writes usage and times to the database, or else to a file, within `milliseconds`. */
  async close(milliseconds: number): Promise<void> {
    const { usage, tokens, log } = this.#parts;
    const time = milliseconds * databaseShare;
    const warn = (error: unknown, what: string) =>
      log.warn({ err: error }, `${what} not written; the next start includes them`);
    let counts: UnwrittenUsage | undefined;
    await Promise.all([
      inTime(() => usage.close(), time).catch((error: unknown) => {
        warn(error, 'usage was');
        counts = usage.takeUnwritten();
      }),
      inTime(() => tokens.flush(), time).catch((error: unknown) =>
        warn(error, 'the times of the last use of tokens were'),
      ),
    ]);
    // An earlier flush of the times may still wait for the database.
    const lines = [...usageLines(counts), ...tokenLines(tokens.unwritten())];
    if (lines.length > 0) await this.#write(lines);
  }

  /** Writes what earlier processes left in files. A file that fails stays, and is logged. */
  async restore(): Promise<void> {
    const { folder, log } = this.#parts;
    const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') log.error({ err: error, folder }, 'usage of earlier processes cannot be read');
      return [];
    });
    for (const name of names.filter((each) => each.endsWith('.jsonl'))) {
      const path = join(folder, name);
      try {
        await this.#restoreFile(path);
      } catch (error) {
        // Another process may have finished with it.
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue;
        log.error(
          { err: error, path },
          'usage of an earlier process could not be included; the next start tries again',
        );
      }
    }
  }

  async #restoreFile(path: string): Promise<void> {
    const { usage, tokens, log } = this.#parts;
    // The limit is in characters, which have up to 3 bytes each.
    if ((await stat(path)).size > 3 * maxSize) throw new Error('the file is too large');
    const lines = (await readFile(path, 'utf8')).split('\n').filter(Boolean);
    const parsed = lines.map((each) => line.parse(JSON.parse(each)));
    for (const each of parsed) {
      if ('tokens' in each) await tokens.restore(new Map(each.tokens));
      else await usage.restore({ writer: each.writer, batches: [each] });
    }
    await unlink(path);
    log.info({ path }, 'usage of an earlier process is included');
  }

  async #write(lines: readonly string[]): Promise<void> {
    const { folder, log } = this.#parts;
    let size = 0;
    const kept = lines.filter((each) => (size += each.length + 1) <= maxSize);
    if (kept.length < lines.length)
      log.error({ lost: lines.length - kept.length }, 'some usage is lost: it is too much');
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const path = join(folder, `${randomUUID()}.jsonl`);
    const part = `${path}.part`;
    const file = await open(part, 'wx', 0o600);
    try {
      await file.writeFile(`${kept.join('\n')}\n`);
      await file.datasync();
    } catch (error) {
      await unlink(part).catch(() => undefined);
      throw error;
    } finally {
      await file.close();
    }
    await rename(part, path);
  }
}

function usageLines(unwritten: UnwrittenUsage | undefined): string[] {
  if (!unwritten) return [];
  const { writer, batches } = unwritten;
  return batches.map(({ number, entries }) => {
    const plain = entries.map((each) => ({
      ...each,
      versions: [...(each.versions ?? [])],
      contents: each.contents.map((one) => ({ ...one, pulled: [...one.pulled], pushed: [...one.pushed] })),
    }));
    return JSON.stringify({ writer, number, entries: plain });
  });
}

function tokenLines(used: ReadonlyMap<string, number>): string[] {
  const all = [...used];
  const lines: string[] = [];
  for (let start = 0; start < all.length; start += tokensPerLine) {
    lines.push(JSON.stringify({ tokens: all.slice(start, start + tokensPerLine) }));
  }
  return lines;
}
