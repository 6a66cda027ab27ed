import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { listAccounts } from '../accounts/accounts.ts';
import type { Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { addCounts, counterNames, countUse, noCounts, type Counters, type Use } from './counters.ts';
import type { Period } from './period.ts';
import { totalsOf } from './report.ts';

/** One counter of one account, according to the access log and to the database. */
interface Comparison {
  account: string;
  counter: keyof Counters;
  logged: number;
  recorded: number;
}

/** The fields of an access log line that concern usage. */
type Line = Use & { msg: string; account?: string; billable: boolean };

/**
 * Compares the recorded usage of a period with the access logs of all instances. Counts that a running instance has not
 * written yet are a difference. So are counts that were written after the period had closed: they are in the next period.
 * `skipped` is the number of lines that are not JSON, such as the first token among the log of a first start.
 */
export async function reconcile(
  database: Database,
  files: readonly string[],
  period: Period,
): Promise<{ compared: Comparison[]; skipped: number }> {
  const logged = new Map<string, Counters>();
  let skipped = 0;
  for (const file of files) skipped += await addLog(logged, file, period);
  const comparisons: Comparison[] = [];
  for (const { id, name } of await listAccounts(database)) {
    const recorded = await totalsOf(database, id, period);
    const found = logged.get(name) ?? noCounts();
    for (const counter of counterNames) {
      comparisons.push({ account: name, counter, logged: found[counter], recorded: recorded[counter] });
    }
  }
  return { compared: comparisons, skipped };
}

/** Resolves to the number of lines that are not JSON. */
async function addLog(logged: Map<string, Counters>, file: string, period: Period): Promise<number> {
  const source = createReadStream(file);
  let number = 0;
  let [entries, others] = [0, 0];
  try {
    for await (const text of createInterface({ input: source, crlfDelay: Number.POSITIVE_INFINITY })) {
      number += 1;
      if (text.trim() === '') continue;
      if (!text.startsWith('{')) {
        others += 1;
        continue;
      }
      entries += 1;
      const line = parse(text);
      if (line === undefined)
        throw new DomainError('Invalid', `${file}:${number}: this line of a JSON log is damaged or not complete`);
      if (line.account === undefined || !line.billable || line.at < period.start || line.at >= period.end) continue;
      let counters = logged.get(line.account);
      if (!counters) logged.set(line.account, (counters = noCounts()));
      if (line.msg === 'request') countUse(counters, line);
      else if (line.msg === 'fetched') addCounts(counters, { ...noCounts(), upstream_bytes: line.fetched });
    }
    if (entries === 0 && others > 0)
      throw new DomainError('Invalid', `${file}: this file has no line of a JSON log, which begins with "{"`);
    return others;
  } catch (error) {
    if (error instanceof DomainError) throw error;
    throw new DomainError('Invalid', `${file}: the log cannot be read: ${(error as Error).message}`, { cause: error });
  } finally {
    source.destroy();
  }
}

/** Undefined if `text` is not a JSON object. Lines about other things have no account; the caller skips them. */
function parse(text: string): Line | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Line) : undefined;
  } catch {
    return undefined;
  }
}
