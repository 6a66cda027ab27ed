import { setImmediate as nextTurn } from 'node:timers/promises';
import { listAccounts } from '../accounts/accounts.ts';
import type { Database } from '../database/database.ts';
import { hourOf } from './period.ts';

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
  readonly #mirrorAccount: number;
  readonly #now: () => number;
  #latest: Measurement | undefined;
  #last: Map<number, Stored> | undefined;

  /** `mirrorAccount` is the account with which the mirror's content is counted. */
  constructor(database: Database, mirrorAccount: number, now: () => number) {
    this.#database = database;
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
    const accounts = measureStored(this.#database, this.#mirrorAccount);
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

/**
 * Each blob counts once for an account, however many refer to it; and so does what its packages and referrers have in
 * the database beside their blobs. Walks blobs and rows `step` by `step`, letting others in: a hundred take SQLite some
 * milliseconds, in which nobody else is served.
 */
export async function measureStored(
  database: Database,
  mirrorAccount: number,
  step = 100,
): Promise<Map<number, Stored>> {
  const accounts = new Map<number, Stored>();
  for (let after = ''; ;) {
    const page = await database.get<{ blobs: number; last: string | null }>(
      `SELECT COUNT(*) AS blobs, MAX(digest) AS last
       FROM (SELECT digest FROM blobs WHERE digest > ? ORDER BY digest LIMIT ?) AS page`,
      [after, step],
    );
    if (!page?.last) break;
    const bounds = [after, page.last];
    const rows = await database.select<{ account_id: number; mirrored: number; bytes: number }>(sumOfPage, [
      ...bounds,
      ...bounds,
      ...bounds,
      mirrorAccount,
      ...bounds,
    ]);
    for (const { account_id: id, mirrored, bytes } of rows) {
      add(accounts, id, mirrored ? 'mirrored' : 'hosted', bytes);
    }
    if (page.blobs < step) break;
    after = page.last;
    // SQLite answers without a turn of the event loop.
    await nextTurn();
  }
  for (const table of Object.keys(rowSums) as (keyof typeof rowSums)[]) {
    for await (const rows of sumsOf(database, table, step)) {
      for (const { account_id: id, bytes } of rows) add(accounts, id, 'hosted', bytes);
    }
  }
  return accounts;
}

/** What the accounts' rows of a table take up in the database itself, `step` rows at a time. */
async function* sumsOf(
  database: Database,
  table: keyof typeof rowSums,
  step: number,
): AsyncGenerator<{ account_id: number; bytes: number }[]> {
  for (let after = 0; ;) {
    const page = await database.get<{ count: number; last: number | null }>(
      `SELECT COUNT(*) AS count, MAX(id) AS last
       FROM (SELECT id FROM ${table} WHERE id > ? ORDER BY id LIMIT ?) AS page`,
      [after, step],
    );
    if (!page?.last) return;
    yield await database.select(rowSums[table], [after, page.last]);
    if (page.count < step) return;
    after = page.last;
    await nextTurn();
  }
}

function add(accounts: Map<number, Stored>, id: number, kind: keyof Stored, bytes: number): void {
  const stored = accounts.get(id) ?? { ...nothing };
  stored[kind] += bytes;
  accounts.set(id, stored);
}

/** A package's words are in its row, in a table of their own and in an index of that: about five times their length. */
const rowSums = {
  packages: `SELECT account_id, SUM(metadata_bytes + 5 * COALESCE(OCTET_LENGTH(terms), 0)) AS bytes FROM packages
    WHERE id > ? AND id <= ? GROUP BY account_id`,
  manifests: `SELECT repositories.account_id, SUM(COALESCE(OCTET_LENGTH(manifests.annotations), 0)) AS bytes
    FROM manifests JOIN repositories ON repositories.id = manifests.repository_id
    WHERE manifests.id > ? AND manifests.id <= ? GROUP BY repositories.account_id`,
};

const inPage = 'blobs.digest > ? AND blobs.digest <= ?';
const sumOfPage = `
  SELECT account_id, mirrored, SUM(size) AS bytes FROM (
    SELECT account_id, digest, MIN(mirrored) AS mirrored, MIN(size) AS size FROM (
      SELECT packages.account_id, blobs.digest, 0 AS mirrored, blobs.size FROM blobs
      JOIN package_blobs ON package_blobs.digest = blobs.digest
      JOIN package_versions ON package_versions.id = package_blobs.version_row
      JOIN packages ON packages.id = package_versions.package_row WHERE ${inPage}
      UNION ALL
      SELECT repositories.account_id, blobs.digest, 0, blobs.size FROM blobs
      JOIN repository_blobs ON repository_blobs.digest = blobs.digest
      JOIN repositories ON repositories.id = repository_blobs.repository_id WHERE ${inPage}
      UNION ALL
      SELECT repositories.account_id, blobs.digest, 0, blobs.size FROM blobs
      JOIN manifests ON manifests.digest = blobs.digest
      JOIN repositories ON repositories.id = manifests.repository_id WHERE ${inPage}
      UNION ALL
      SELECT ?, blobs.digest, 1, blobs.size FROM blobs
      JOIN mirror_entries ON mirror_entries.digest = blobs.digest WHERE ${inPage}
    ) AS referred GROUP BY account_id, digest
  ) AS once GROUP BY account_id, mirrored`;
