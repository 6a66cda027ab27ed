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
  /** Those of `tables` that may also name content that is not stored: then their column `absent` is 1, and it is no reference. */
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
    const conditionsOf = (origin: BlobReferences['origin']) => conditions(all.filter((each) => each.origin === origin));
    this.isHosted = exists(conditionsOf('hosted'));
    this.isMirrored = exists(conditionsOf('mirrored'));
    this.isReferenced = exists(conditions(all));
    const lasting = Object.assign({}, ...all.map((each) => each.lasting)) as Record<string, string>;
    this.isLasting = exists(lasting);
    const never = Object.keys(conditionsOf('mirrored')).map((table) => [table, '0 = 1']);
    this.lasting = { ...(Object.fromEntries(never) as Record<string, string>), ...lasting };
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

/** For each table the condition on its rows that are references. */
function conditions(all: readonly BlobReferences[]): Record<string, string> {
  const pairs = all.flatMap(({ tables, sparse = [] }) =>
    tables.map((table) => [table, sparse.includes(table) ? 'absent = 0' : '']),
  );
  return Object.fromEntries(pairs) as Record<string, string>;
}

/** Whether rows of the tables refer to a blob and fulfil the condition of their table. */
function exists(rows: Readonly<Record<string, string>>): string {
  const each = Object.entries(rows).map(([table, condition]) => {
    const and = condition && ` AND (${condition})`;
    return `EXISTS (SELECT 1 FROM ${table} WHERE ${table}.digest = blobs.digest${and})`;
  });
  return `(${each.join(' OR ') || '0 = 1'})`;
}

/** The last digest of the next `limit` blobs after `after`; undefined when there are fewer. Fast, because it reads only the key. */
export async function pageEnd(from: Queryable, after: string, limit: number): Promise<string | undefined> {
  const last = await from.get<{ digest: string }>(
    'SELECT digest FROM blobs WHERE digest > ? ORDER BY digest LIMIT 1 OFFSET ?',
    [after, limit - 1],
  );
  return last?.digest;
}
