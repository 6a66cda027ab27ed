import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Database } from '../database/database.ts';

interface Measurement {
  bytes: Promise<number>;
  startedAt: number;
  /** Milliseconds; undefined while it is under way. */
  took: number | undefined;
}

/** A measurement that takes longer than so many milliseconds is shared by those who ask. */
const long = 250;

/** What each account's packages and images take up. */
export class HostedBytes {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #measurements = new Map<number, Measurement>();

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /**
   * The bytes of `accountId` and when they were measured, in milliseconds since 1970. Measured anew each time, unless
   * that is long work: then a measurement serves for twenty times as long as it took.
   */
  async of(accountId: number): Promise<{ bytes: number; asOf: number }> {
    const known = this.#measurements.get(accountId);
    const shared = known && this.#serves(known) ? known : this.#measure(accountId);
    return { bytes: await shared.bytes, asOf: shared.startedAt };
  }

  #serves({ startedAt, took }: Measurement): boolean {
    const age = this.#now() - startedAt;
    return took === undefined ? age > long : took > long && age < 20 * took;
  }

  #measure(accountId: number): Measurement {
    const startedAt = this.#now();
    const bytes = measureHosted(this.#database, accountId);
    const measurement: Measurement = { bytes, startedAt, took: undefined };
    this.#measurements.set(accountId, measurement);
    bytes.then(
      () => (measurement.took = this.#now() - startedAt),
      () => this.#measurements.delete(accountId),
    );
    return measurement;
  }
}

/** Each blob counts once, however many refer to it. Walks the blobs `step` by `step`, letting others in between. */
export async function measureHosted(database: Database, accountId: number, step = 2000): Promise<number> {
  let total = 0;
  let after = '';
  for (;;) {
    const found = await database.get<{ blobs: number; last: string | null; bytes: number | null }>(
      `SELECT COUNT(*) AS blobs, MAX(digest) AS last, SUM(CASE WHEN
         EXISTS (SELECT 1 FROM package_blobs JOIN package_versions ON package_versions.id = package_blobs.version_row
                 JOIN packages ON packages.id = package_versions.package_row
                 WHERE package_blobs.digest = page.digest AND packages.account_id = ?)
         OR EXISTS (SELECT 1 FROM repository_blobs JOIN repositories ON repositories.id = repository_blobs.repository_id
                    WHERE repository_blobs.digest = page.digest AND repositories.account_id = ?)
         OR EXISTS (SELECT 1 FROM manifests JOIN repositories ON repositories.id = manifests.repository_id
                    WHERE manifests.digest = page.digest AND repositories.account_id = ?)
         THEN size ELSE 0 END) AS bytes
       FROM (SELECT digest, size FROM blobs WHERE digest > ? ORDER BY digest LIMIT ?) AS page`,
      [accountId, accountId, accountId, after, step],
    );
    total += found?.bytes ?? 0;
    if (!found?.last || found.blobs < step) return total;
    after = found.last;
    // SQLite answers without a turn of the event loop.
    await nextTurn();
  }
}
