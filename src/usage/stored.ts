import { listAccounts } from '../accounts/accounts.ts';
import { placeholders, type Database } from '../database/database.ts';
import { inBackground } from '../database/time-limits.ts';
import { inTime } from '../runtime/in-time.ts';
import type { References } from '../storage/blobs/references.ts';
import { hourOf } from './period.ts';
import type { RowBytes } from './row-bytes.ts';

/** The bytes that an account stores. A blob that is hosted and mirrored counts as hosted. */
export interface Stored {
  hosted: number;
  mirrored: number;
}

/** A hosted name with the bytes of its content. Times are in milliseconds since 1970 UTC. */
export interface SizedName {
  name: string;
  sizeBytes: number;
  changedAt: number;
  lastUsedAt: number | null;
}

/** Stored bytes, and when they were measured, in milliseconds since 1970; for an hourly sample, the start of its hour. */
interface MeasuredBytes extends Stored {
  asOf: number;
}

interface Measurement {
  accounts: Promise<Map<number, Stored>>;
  startedAt: number;
  /** The same by `performance.now()`, which no test sets. */
  began: number;
  /** Duration in milliseconds; undefined while it runs. */
  took: number | undefined;
  /** Duration of the measurement before. */
  expected: number;
  /** What this process had stored for each account when it began; a short one has seen all until its end. */
  seen: ReadonlyMap<number, number>;
}

/** A measurement that takes longer than this many milliseconds is shared by several callers. */
const long = 250;
/** How long a caller waits for a measurement that should be short; milliseconds. */
const patience = 2000;
const samplesPerStatement = 200;

/** Measures the stored bytes of accounts. All accounts share mirrored content; it counts for one of them. */
export class StorageMeter {
  readonly #database: Database;
  readonly #measures: Measures;
  readonly #mirrorAccount: number;
  readonly #now: () => number;
  readonly #added: ReadonlyMap<number, number>;
  #latest: Measurement | undefined;
  #last: (Pick<Measurement, 'startedAt' | 'seen'> & { accounts: Map<number, Stored> }) | undefined;

  /**
   * `mirrorAccount` is the account for which mirrored content counts. `added` is the bytes that this process has stored for
   * each account since it started.
   */
  constructor(
    database: Database,
    measures: Measures,
    mirrorAccount: number,
    now: () => number,
    added: ReadonlyMap<number, number> = new Map(),
  ) {
    this.#database = database;
    this.#measures = measures;
    this.#mirrorAccount = mirrorAccount;
    this.#now = now;
    this.#added = added;
  }

  /**
   * The bytes of `accountId`. Each call measures, but a long measurement is reused for twenty times its duration. While a
   * long one runs, this resolves at once to the result before, or to the last hourly sample; to undefined if there is
   * neither, because the account was never measured.
   */
  async of(accountId: number): Promise<MeasuredBytes | undefined> {
    const measurement = this.#measurement();
    if (!(await this.#endsSoon(measurement, accountId))) return this.#earlier(accountId);
    return { ...((await measurement.accounts).get(accountId) ?? nothing), asOf: measurement.startedAt };
  }

  /**
   * As `of`, but waits for the first measurement of an account that was never measured, and counts what this process has stored
   * for the account since the measurement began.
   */
  async recent(accountId: number): Promise<Stored> {
    const measurement = this.#measurement();
    const isOver = await this.#endsSoon(measurement, accountId);
    const last = this.#last;
    const known = isOver ? undefined : await this.#earlier(accountId);
    const { hosted, mirrored } = known ?? (await measurement.accounts).get(accountId) ?? nothing;
    const { seen } = (known && last) ?? measurement;
    return { hosted: hosted + (this.#added.get(accountId) ?? 0) - (seen.get(accountId) ?? 0), mirrored };
  }

  /**
   * Writes a sample of every account for the hour that begins at `hour`. The first sample of an hour is kept. Does nothing
   * if `hour` is not the current one, because only that can be measured.
   */
  async sample(hour: number): Promise<void> {
    if (hourOf(this.#now()) !== hour) return;
    const sampled = 'SELECT hour FROM storage_samples WHERE account_id = ? AND hour = ?';
    if (await this.#database.get(sampled, [this.#mirrorAccount, hour])) return;
    const accounts = await this.#measurement().accounts;
    const ids = (await listAccounts(this.#database)).map(({ id }) => id);
    // The sample that shows that the hour has them all is written last.
    const rows = [...ids.filter((id) => id !== this.#mirrorAccount), this.#mirrorAccount].map((id) => {
      const { hosted, mirrored } = accounts.get(id) ?? nothing;
      return { account_id: id, hour, hosted_bytes: hosted, mirrored_bytes: mirrored };
    });
    for (let start = 0; start < rows.length; start += samplesPerStatement) {
      const some = rows.slice(start, start + samplesPerStatement);
      await this.#database.transaction((tx) => tx.insertNew('storage_samples', some));
    }
  }

  /** The mean of the samples of each day since a time, by day; milliseconds since 1970 UTC. Days without samples are left out. */
  async history(accountId: number, since: number): Promise<(Stored & { day: number })[]> {
    const rows = await this.#database.select<{ day: number; hosted: number | string; mirrored: number | string }>(
      `SELECT hour - hour % 86400000 AS day, AVG(hosted_bytes) AS hosted, AVG(mirrored_bytes) AS mirrored
       FROM storage_samples WHERE account_id = ? AND hour >= ? GROUP BY hour - hour % 86400000 ORDER BY day`,
      [accountId, since],
    );
    return rows.map(({ day, hosted, mirrored }) => {
      return { day, hosted: Math.round(Number(hosted)), mirrored: Math.round(Number(mirrored)) };
    });
  }

  /** The bytes of all accounts by the latest sample; undefined if there is none. */
  async sampled(): Promise<Stored | undefined> {
    const latest = await this.#database.get<{ hour: number }>(
      'SELECT hour FROM storage_samples WHERE account_id = ? ORDER BY hour DESC LIMIT 1',
      [this.#mirrorAccount],
    );
    if (!latest) return undefined;
    const all = { ...nothing };
    const ids = (await listAccounts(this.#database)).map(({ id }) => id);
    for (let start = 0; start < ids.length; start += samplesPerStatement) {
      // By account, because the table has no index on the hour alone.
      const some = ids.slice(start, start + samplesPerStatement);
      const rows = await this.#database.select<Stored>(
        `SELECT hosted_bytes AS hosted, mirrored_bytes AS mirrored FROM storage_samples
         WHERE hour = ? AND account_id IN (${placeholders(some)})`,
        [latest.hour, ...some],
      );
      for (const { hosted, mirrored } of rows) {
        all.hosted += hosted;
        all.mirrored += mirrored;
      }
    }
    return all;
  }

  /** Waits for a measurement as long as its result is worth it; resolves to whether it has ended. Rejects if it fails. */
  async #endsSoon(measurement: Measurement, accountId: number): Promise<boolean> {
    if (measurement.took !== undefined) return true;
    if (measurement.expected > long) return false;
    // The first measurement of this process may take very long.
    const isKnown = this.#last !== undefined || !(await this.#earlier(accountId));
    const end = measurement.began + (isKnown ? patience : long);
    const ended = () => measurement.accounts.then(() => true);
    return inTime(ended, Math.max(0, end - performance.now()), { late: () => false });
  }

  async #earlier(accountId: number): Promise<MeasuredBytes | undefined> {
    if (this.#last) return { ...(this.#last.accounts.get(accountId) ?? nothing), asOf: this.#last.startedAt };
    return this.#database.get<MeasuredBytes>(
      `SELECT hosted_bytes AS hosted, mirrored_bytes AS mirrored, hour AS asOf FROM storage_samples
       WHERE account_id = ? ORDER BY hour DESC LIMIT 1`,
      [accountId],
    );
  }

  #measurement(): Measurement {
    return this.#latest && this.#isReusable(this.#latest) ? this.#latest : this.#measure();
  }

  #isReusable({ startedAt, took, expected }: Measurement): boolean {
    const age = this.#now() - startedAt;
    // The clock was set back.
    if (age < 0) return false;
    return took === undefined ? age > long || expected > long : took > long && age < 20 * took;
  }

  #measure(): Measurement {
    const startedAt = this.#now();
    const accounts = inBackground(() => measureStored(this.#database, this.#measures, this.#mirrorAccount));
    const began = performance.now();
    const expected = this.#latest?.took ?? 0;
    const seen = new Map(this.#added);
    const measurement: Measurement = { accounts, startedAt, began, took: undefined, expected, seen };
    this.#latest = measurement;
    void this.#end(measurement);
    return measurement;
  }

  /** Ignores a failure: the callers that wait for the measurement get it. */
  async #end(measurement: Measurement): Promise<void> {
    try {
      const accounts = await measurement.accounts;
      const took = this.#now() - measurement.startedAt;
      measurement.took = took;
      if (took <= long) measurement.seen = new Map(this.#added);
      this.#last = { ...measurement, accounts };
    } catch {
      if (this.#latest === measurement) this.#latest = undefined;
    }
  }
}

const nothing: Stored = { hosted: 0, mirrored: 0 };

/** The bytes of rows of one protocol's tables, `step` rows at a time. */
export type MeasureRows = (database: Database, step: number) => AsyncGenerator<RowBytes[]>;

/** The references and rows that are measured. */
export interface Measures {
  references: References;
  rows: readonly MeasureRows[];
}

/**
 * Measures the bytes that accounts store: blobs, and the rows of packages and referrers in the database. Content that all
 * accounts share counts for `mirrorAccount`. Reads `step` blobs or rows at a time, so that other work can run in between:
 * SQLite needs some milliseconds for a hundred.
 */
export async function measureStored(
  database: Database,
  { references, rows: measures }: Measures,
  mirrorAccount: number,
  step = 100,
): Promise<Map<number, Stored>> {
  const accounts = new Map<number, Stored>();
  for await (const holdings of references.holdings(database, mirrorAccount, step)) {
    for (const { account_id: id, mirrored, bytes } of holdings) {
      add(accounts, id, mirrored ? 'mirrored' : 'hosted', bytes);
    }
  }
  for (const measure of measures) {
    for await (const rows of measure(database, step)) {
      for (const { account_id: id, bytes } of rows) add(accounts, id, 'hosted', bytes);
    }
  }
  return accounts;
}

function add(accounts: Map<number, Stored>, id: number, kind: keyof Stored, bytes: number): void {
  const stored = accounts.get(id) ?? { ...nothing };
  stored[kind] += bytes;
  accounts.set(id, stored);
}
