import { placeholders, type Database } from '../database/database.ts';
import { addCounts, counterNames, noCounts, type Counters } from './counters.ts';
import { periodAt, type Period } from './period.ts';

/** The usage of all accounts in the current month. */
interface UseOfAll {
  period: Period;
  counters: Counters;
  /** When it was added up; milliseconds since 1970 UTC. */
  asOf: number;
}

/** Accounts that one query adds up. */
const atOnce = 500;
/** Milliseconds for which the sums are kept. */
const keepFor = 60_000;

const sums = counterNames.map((name) => `SUM(${name}) AS ${name}`).join(', ');

/** Adds up the usage of all accounts, at most once a minute. Counts that are not written yet are missing. */
export class AllAccountsUse {
  readonly #database: Database;
  readonly #accounts: () => Promise<readonly { id: number }[]>;
  readonly #now: () => number;
  #last: { use: Promise<UseOfAll>; at: number } | undefined;

  constructor(database: Database, accounts: () => Promise<readonly { id: number }[]>, now: () => number) {
    this.#database = database;
    this.#accounts = accounts;
    this.#now = now;
  }

  read(): Promise<UseOfAll> {
    if (this.#last && performance.now() - this.#last.at < keepFor) return this.#last.use;
    const last = { use: this.#sum(), at: performance.now() };
    this.#last = last;
    last.use.catch(() => {
      if (this.#last === last) this.#last = undefined;
    });
    return last.use;
  }

  async #sum(): Promise<UseOfAll> {
    const asOf = this.#now();
    const period = periodAt(asOf);
    const counters = noCounts();
    const ids = (await this.#accounts()).map(({ id }) => id);
    for (let start = 0; start < ids.length; start += atOnce) {
      const some = ids.slice(start, start + atOnce);
      const row = await this.#database.get<Record<keyof Counters, number | null>>(
        `SELECT ${sums} FROM usage_counts
         WHERE account_id IN (${placeholders(some)}) AND dimension = 'account' AND period_start = ? AND name = ''`,
        [...some, period.start],
      );
      const part = noCounts();
      for (const name of counterNames) part[name] = row?.[name] ?? 0;
      addCounts(counters, part);
    }
    return { period, counters, asOf };
  }
}
