import { setImmediate as nextTurn } from 'node:timers/promises';
import { listAccounts } from '../accounts/accounts.ts';
import type { Database } from '../database/database.ts';
import type { References } from '../storage/references.ts';
import { hourOf } from './period.ts';
import type { RowBytes } from './row-bytes.ts';

/** What an account takes up. A blob that is hosted and mirrored counts as hosted. */
export interface Stored {
  hosted: number;
  mirrored: number;
}

interface Measurement {
  accounts: Promise<Map<number, Stored>>;
  startedAt: number;
  /** Milliseconds; undefined while it is under way. */
  took: number | undefined;
  /** What the one before took. */
  expected: number;
}

/** A measurement that takes longer than so many milliseconds is shared by those who ask. */
const long = 250;
const samplesPerStatement = 200;

/** What the accounts' content takes up, now and over time. All accounts share the mirror; one of them answers for it. */
export class StoredBytes {
  readonly #database: Database;
  readonly #measures: Measures;
  readonly #mirrorAccount: number;
  readonly #now: () => number;
  #latest: Measurement | undefined;
  #last: Map<number, Stored> | undefined;

  /** `mirrorAccount` is the account with which the mirror's content is counted. */
  constructor(database: Database, measures: Measures, mirrorAccount: number, now: () => number) {
    this.#database = database;
    this.#measures = measures;
    this.#mirrorAccount = mirrorAccount;
    this.#now = now;
  }

  /**
   * The bytes of `accountId` and when they were measured, in milliseconds since 1970. Measured anew each time, unless
   * that is long work: then a measurement serves for twenty times as long as it took.
   */
  async of(accountId: number): Promise<Stored & { asOf: number }> {
    const { accounts, startedAt } = this.#measurement();
    return { ...((await accounts).get(accountId) ?? nothing), asOf: startedAt };
  }

  /** The same without waiting for long work, while there is any earlier result. */
  async recent(accountId: number): Promise<Stored> {
    const { accounts, took, expected } = this.#measurement();
    const known = (took ?? expected) > long && this.#last ? this.#last : await accounts;
    return known.get(accountId) ?? nothing;
  }

  /**
   * Writes down what every account takes up in the hour that begins at `hour`; the first sample of an hour stays. Only
   * the present hour can be measured: `hour` is for whoever schedules this, to say which one is meant.
   */
  async sample(hour: number): Promise<void> {
    if (hourOf(this.#now()) !== hour) return;
    const sampled = 'SELECT hour FROM storage_samples WHERE account_id = ? AND hour = ?';
    if (await this.#database.get(sampled, [this.#mirrorAccount, hour])) return;
    const accounts = await this.#measurement().accounts;
    const rows = (await listAccounts(this.#database)).map(({ id }) => {
      const { hosted, mirrored } = accounts.get(id) ?? nothing;
      return { account_id: id, hour, hosted_bytes: hosted, mirrored_bytes: mirrored };
    });
    for (let start = 0; start < rows.length; start += samplesPerStatement) {
      const some = rows.slice(start, start + samplesPerStatement);
      await this.#database.transaction((tx) => tx.insertNew('storage_samples', some));
    }
  }

  #measurement(): Measurement {
    return this.#latest && this.#serves(this.#latest) ? this.#latest : this.#measure();
  }

  #serves({ startedAt, took, expected }: Measurement): boolean {
    const age = this.#now() - startedAt;
    return took === undefined ? age > long || expected > long : took > long && age < 20 * took;
  }

  #measure(): Measurement {
    const startedAt = this.#now();
    const accounts = measureStored(this.#database, this.#measures, this.#mirrorAccount);
    const measurement: Measurement = { accounts, startedAt, took: undefined, expected: this.#latest?.took ?? 0 };
    this.#latest = measurement;
    void this.#end(measurement);
    return measurement;
  }

  /** Whoever waits for the measurement hears of its failure. */
  async #end(measurement: Measurement): Promise<void> {
    try {
      this.#last = await measurement.accounts;
      measurement.took = this.#now() - measurement.startedAt;
    } catch {
      if (this.#latest === measurement) this.#latest = undefined;
    }
  }
}

const nothing: Stored = { hosted: 0, mirrored: 0 };

/** The bytes of rows of one protocol's tables, `step` rows at a time. */
export type MeasureRows = (database: Database, step: number) => AsyncGenerator<RowBytes[]>;

/** What content is measured by. */
export interface Measures {
  references: References;
  rows: readonly MeasureRows[];
}

/**
 * Measures what accounts store: blobs, and what packages and referrers have in the database beside their blobs. Content
 * that all accounts share is counted with `mirrorAccount`. Walks blobs and rows `step` by `step`, so that other work runs
 * in between: a hundred take SQLite some milliseconds.
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
    // SQLite answers without a turn of the event loop.
    await nextTurn();
  }
  for (const measure of measures) {
    for await (const rows of measure(database, step)) {
      for (const { account_id: id, bytes } of rows) add(accounts, id, 'hosted', bytes);
      await nextTurn();
    }
  }
  return accounts;
}

function add(accounts: Map<number, Stored>, id: number, kind: keyof Stored, bytes: number): void {
  const stored = accounts.get(id) ?? { ...nothing };
  stored[kind] += bytes;
  accounts.set(id, stored);
}
