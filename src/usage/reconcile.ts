import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { listAccounts } from '../accounts/accounts.ts';
import type { Database } from '../database/database.ts';
import { DomainError } from '../errors.ts';
import { addCounts, counterNames, countUse, noCounts, type Counters, type Use } from './counters.ts';
import type { Period } from './period.ts';
import { totalsOf } from './report.ts';

/** One counter of one account, as the access log has it and as it was recorded. */
export interface Comparison {
  account: string;
  counter: keyof Counters;
  logged: number;
  recorded: number;
}

/** What a line of the access log tells of usage. */
type Line = Use & { msg: string; account?: string; billable: boolean };

/**
 * Compares what was recorded for a period with the access logs of all instances. What a running instance has not
 * written down yet is a difference, and so is what was written after the period had closed, into the next one.
 */
export async function reconcile(database: Database, files: readonly string[], period: Period): Promise<Comparison[]> {
  const logged = new Map<string, Counters>();
  for (const file of files) await addLog(logged, file, period);
  const comparisons: Comparison[] = [];
  for (const { id, name } of await listAccounts(database)) {
    const recorded = await totalsOf(database, id, period);
    const found = logged.get(name) ?? noCounts();
    for (const counter of counterNames) {
      comparisons.push({ account: name, counter, logged: found[counter], recorded: recorded[counter] });
    }
  }
  return comparisons;
}

async function addLog(logged: Map<string, Counters>, file: string, period: Period): Promise<void> {
  const source = createReadStream(file);
  let number = 0;
  try {
    for await (const text of createInterface({ input: source, crlfDelay: Number.POSITIVE_INFINITY })) {
      number += 1;
      if (text.trim() === '') continue;
      const line = parse(text);
      if (line === undefined) throw new DomainError('Invalid', `${file}:${number}: this is no line of a JSON log`);
      if (line.account === undefined || !line.billable || line.at < period.start || line.at >= period.end) continue;
      let counters = logged.get(line.account);
      if (!counters) logged.set(line.account, (counters = noCounts()));
      if (line.msg === 'request') countUse(counters, line);
      else if (line.msg === 'fetched') addCounts(counters, { ...noCounts(), upstream_bytes: line.fetched });
    }
  } catch (error) {
    if (error instanceof DomainError) throw error;
    throw new DomainError('Invalid', `${file}: the log cannot be read: ${(error as Error).message}`, { cause: error });
  } finally {
    source.destroy();
  }
}

/** Undefined for what is no JSON object. A line that tells of something else has no account, and is passed over. */
function parse(text: string): Line | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Line) : undefined;
  } catch {
    return undefined;
  }
}
