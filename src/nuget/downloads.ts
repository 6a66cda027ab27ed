import type { Database, Transaction } from '../database/database.ts';
import { movePackage, type IndexedPackage } from './term-index.ts';
import { standingOf } from './terms.ts';

/** Packages whose counts are written in one transaction. */
const batch = 50;

interface Count {
  versions: Map<number, number>;
  last: number;
}

/** Downloads of hosted packages, counted in memory and written down by `flush`: a download writes nothing. */
export class Downloads {
  readonly #database: Database;
  readonly #now: () => number;
  #counts = new Map<number, Count>();

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Counts one download of a version. */
  count(packageRow: number, versionRow: number): void {
    let count = this.#counts.get(packageRow);
    if (!count) this.#counts.set(packageRow, (count = { versions: new Map(), last: 0 }));
    count.versions.set(versionRow, (count.versions.get(versionRow) ?? 0) + 1);
    count.last = this.#now();
  }

  /** Writes down what was counted; what could not be written is kept for the next time. */
  async flush(): Promise<void> {
    const counts = [...this.#counts].sort(([a], [b]) => a - b);
    this.#counts = new Map();
    for (let start = 0; start < counts.length; start += batch) {
      const some = counts.slice(start, start + batch);
      try {
        await this.#database.transaction(async (tx) => {
          for (const [packageRow, count] of some) await add(tx, packageRow, count);
        });
      } catch (error) {
        for (const each of counts.slice(start)) this.#putBack(...each);
        throw error;
      }
    }
  }

  #putBack(packageRow: number, { versions, last }: Count): void {
    const count = this.#counts.get(packageRow) ?? { versions: new Map<number, number>(), last };
    for (const [row, number] of versions) count.versions.set(row, (count.versions.get(row) ?? 0) + number);
    this.#counts.set(packageRow, count);
  }
}

async function add(tx: Transaction, packageRow: number, { versions, last }: Count): Promise<void> {
  const total = [...versions.values()].reduce((sum, number) => sum + number, 0);
  await tx.run('UPDATE packages SET download_count = download_count + ?, last_downloaded_at = ? WHERE id = ?', [
    total,
    last,
    packageRow,
  ]);
  for (const [row, number] of versions) {
    await tx.run('UPDATE package_versions SET download_count = download_count + ? WHERE id = ?', [number, row]);
  }
  const row = await tx.get<IndexedPackage & { download_count: number }>(
    'SELECT id, account_id, standing, flags, terms, download_count FROM packages WHERE id = ?',
    [packageRow],
  );
  if (row) await movePackage(tx, row, standingOf(row.download_count));
}
