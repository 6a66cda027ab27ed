import type { Database, Queryable, Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';

/** How the tables of one folder refer to blobs. Each folder describes its own tables, so the storage knows none of them. */
export interface BlobReferences {
  /** Mirrored content can be fetched again, hosted content cannot. */
  readonly origin: 'hosted' | 'mirrored';
  /** Tables whose column `digest` refers to a blob. */
  readonly tables: readonly string[];
  /** For each of `tables` with mirrored content that cannot be fetched again: the condition on its row. */
  readonly lasting?: Readonly<Record<string, string>>;
  /** Those of `tables` that may also name content that is not stored. */
  readonly sparse?: readonly string[];
  /**
   * Statements that select `account_id` and `digest` of the references with `digest > ? AND digest <= ?`, in this order;
   * `account_id` is NULL for content that all accounts share.
   */
  readonly owned: readonly string[];
  /** Names up to `limit` packages or images that need a blob, for example `package Contoso 1.0.0`. */
  holders?(tx: Transaction, digest: Digest, limit: number): Promise<string[]>;
  /** Deletes the references to a mirrored blob, so that the next request fetches it again. */
  forget?(tx: Transaction, digest: Digest): Promise<void>;
}

/** Bytes of blobs to which one account refers. */
export interface Holding {
  account_id: number;
  mirrored: number;
  bytes: number;
}

/** All references to blobs. The collector deletes unreferenced blobs, so a missing entry here loses data. */
export class References {
  readonly #all: readonly BlobReferences[];
  /** Conditions on a row of `blobs`. */
  readonly isHosted: string;
  readonly isMirrored: string;
  readonly isReferenced: string;
  /** For mirrored content that cannot be fetched again. */
  readonly isLasting: string;
  /** Conditions on rows of the tables of mirrored content: whether it cannot be fetched again. */
  readonly lasting: Readonly<Record<string, string>>;
  readonly #sumOfPage: string;
  readonly #statements: number;

  constructor(all: readonly BlobReferences[]) {
    this.#all = all;
    const tablesOf = (origin: BlobReferences['origin']) =>
      all.flatMap((each) => (each.origin === origin ? each.tables : []));
    this.isHosted = exists(tablesOf('hosted'));
    this.isMirrored = exists(tablesOf('mirrored'));
    this.isReferenced = exists(all.flatMap(({ tables }) => tables));
    const lasting = Object.assign({}, ...all.map((each) => each.lasting)) as Record<string, string>;
    this.isLasting = exists(Object.keys(lasting), lasting);
    this.lasting = Object.fromEntries(tablesOf('mirrored').map((table) => [table, lasting[table] ?? '0 = 1']));
    const parts = all.flatMap(({ origin, owned }) =>
      owned.map(
        (select) =>
          `SELECT COALESCE(account_id, ?) AS account_id, digest, ${origin === 'mirrored' ? 1 : 0} AS mirrored FROM (${select}) AS some`,
      ),
    );
    this.#statements = parts.length;
    this.#sumOfPage = `
      SELECT account_id, mirrored, SUM(size) AS bytes FROM (
        SELECT referred.account_id, referred.digest, MIN(referred.mirrored) AS mirrored, MIN(blobs.size) AS size
        FROM (${parts.join(' UNION ALL ')}) AS referred JOIN blobs ON blobs.digest = referred.digest
        GROUP BY referred.account_id, referred.digest
      ) AS once GROUP BY account_id, mirrored`;
  }

  /** Tables of which each row needs its blob. */
  get needing(): string[] {
    return this.#all.flatMap(({ tables, sparse = [] }) => tables.filter((table) => !sparse.includes(table)));
  }

  /** Names of packages and images that need a blob, up to `limit` of each protocol. */
  async holders(tx: Transaction, digest: Digest, limit: number): Promise<string[]> {
    const found: string[] = [];
    for (const each of this.#all) found.push(...((await each.holders?.(tx, digest, limit)) ?? []));
    return found;
  }

  /** Deletes the references to a blob from content that can be fetched again. */
  async forget(tx: Transaction, digest: Digest): Promise<void> {
    for (const each of this.#all) await each.forget?.(tx, digest);
  }

  /**
   * The bytes of blobs by account, `step` blobs at a time. Each blob counts once for an account, even if several of its
   * rows refer to it; it counts as hosted if one of them is hosted. Content that all accounts share counts for
   * `sharedAccount`.
   */
  async *holdings(database: Database, sharedAccount: number, step: number): AsyncGenerator<Holding[]> {
    for (let after = ''; ;) {
      const page = await database.get<{ blobs: number; last: string | null }>(
        `SELECT COUNT(*) AS blobs, MAX(digest) AS last
         FROM (SELECT digest FROM blobs WHERE digest > ? ORDER BY digest LIMIT ?) AS page`,
        [after, step],
      );
      if (!page?.last) return;
      const bounds = Array.from({ length: this.#statements }, () => [sharedAccount, after, page.last]).flat();
      yield await database.select<Holding>(this.#sumOfPage, bounds);
      if (page.blobs < step) return;
      after = page.last;
    }
  }
}

/** Whether rows of the tables refer to a blob, and fulfil the condition of their table if it has one. */
function exists(tables: readonly string[], only: Readonly<Record<string, string>> = {}): string {
  const conditions = tables.map((table) => {
    const and = table in only ? ` AND (${only[table]})` : '';
    return `EXISTS (SELECT 1 FROM ${table} WHERE ${table}.digest = blobs.digest${and})`;
  });
  return `(${conditions.join(' OR ') || '0 = 1'})`;
}

/** The last digest of the next `limit` blobs after `after`; undefined when there are fewer. Fast, because it reads only the key. */
export async function pageEnd(from: Queryable, after: string, limit: number): Promise<string | undefined> {
  const last = await from.get<{ digest: string }>(
    'SELECT digest FROM blobs WHERE digest > ? ORDER BY digest LIMIT 1 OFFSET ?',
    [after, limit - 1],
  );
  return last?.digest;
}
