import { createHash, randomUUID } from 'node:crypto';
import type { Cache } from '../../cache/cache.ts';
import { placeholders, type Database, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { record, type NameOwner, type SeenReference } from '../../history/history.ts';
import { BackgroundTask } from '../../runtime/background-task.ts';
import { noteRepublished } from './republished.ts';
import { addWords } from './words.ts';

/** The key of an entry. `kind`, `name` and `reference` are defined by the protocol. */
export interface EntryKey {
  /** The upstream's ID. */
  upstream: string;
  kind: string;
  name: string;
  reference: string;
}

/** The metadata of a stored entry. */
export interface EntryMetadata {
  digest: Digest;
  size: number;
  type: string;
  etag: string | null;
  lastModified: string | null;
  /** The result of the protocol's `verify`, stored with the entry. */
  attributes: Record<string, string>;
  storedAt: number;
  /** When the upstream last confirmed this content; milliseconds since 1970 UTC, as `storedAt`. */
  validatedAt: number;
}

type EntryRow = Omit<EntryMetadata, 'attributes'> & { attributes: string };

const columns = `digest, size_bytes AS size, content_type AS type, etag, last_modified AS lastModified, attributes,
  stored_at AS storedAt, validated_at AS validatedAt`;

/** How long an entry's metadata stays in the cache, in milliseconds. Every change of it also writes it to the cache. */
const keepFor = 3_600_000;
/** Entries in one statement. */
const batch = 500;
/** Without Redis, other instances on MySQL serve what a person has dropped for this long at most; milliseconds. */
const lag = 200;

/** The mark of the latest drop by a person; null before the first one. */
export type DropMark = string | null;

/** An entry in the cache, as it was under this mark. Older versions of the program wrote no mark, and ignore it. */
type CachedEntry = EntryMetadata & { mark?: DropMark };

/** The identity of an entry. */
export function entryId({ upstream, kind, name, reference }: EntryKey): string {
  return createHash('sha256')
    .update(JSON.stringify([upstream, kind, name, reference]))
    .digest('hex');
}

/** The name of an entry in the history. */
export function nameOwner({ upstream, name }: EntryKey): NameOwner {
  return { accountId: 0, upstream, name };
}

/** The row of an entry. `usedAt` is in milliseconds since 1970 UTC. */
export function rowOf(key: EntryKey, metadata: EntryMetadata, usedAt: number) {
  return {
    id: entryId(key),
    upstream: key.upstream,
    kind: key.kind,
    name: key.name,
    reference: key.reference,
    digest: metadata.digest,
    size_bytes: metadata.size,
    content_type: metadata.type,
    etag: metadata.etag,
    last_modified: metadata.lastModified,
    attributes: JSON.stringify(metadata.attributes),
    stored_at: metadata.storedAt,
    validated_at: metadata.validatedAt,
    used_at: usedAt,
  };
}

/**
 * The entries in the database, with a cache in front of it. A person's drop of one entry makes all cached ones invalid, because another
 * instance may have it in memory, or may be about to write it to the cache.
 */
export class Entries {
  readonly #database: Database;
  readonly #cache: Cache;
  readonly #now: () => number;
  readonly #used = new Set<string>();

  constructor(database: Database, cache: Cache, now: () => number) {
    this.#database = database;
    this.#cache = cache;
    this.#now = now;
  }

  /**
   * The mark of now. Read it before you read or write the entry that `remember` gets. All entries share this row, so it is
   * in memory while no person drops anything.
   */
  async mark(): Promise<DropMark> {
    const row = await this.#database.getCached<{ mark: string }>('SELECT mark FROM mirror_drops', [], { lag });
    return row?.mark ?? null;
  }

  /** The metadata, if it is in the cache, and nothing was dropped by a person since. */
  async getCached(id: string): Promise<EntryMetadata | undefined> {
    const [cached, current] = await Promise.all([this.#cache.get<CachedEntry>(`entry:${id}`), this.mark()]);
    if (!cached) return undefined;
    const { mark, ...metadata } = cached;
    return mark === current ? metadata : undefined;
  }

  async find(id: string): Promise<EntryMetadata | undefined> {
    return (await this.getCached(id)) ?? this.read(id);
  }

  /** The metadata from the database, without a look at the cache; writes it to the cache. */
  async read(id: string): Promise<EntryMetadata | undefined> {
    const row = await this.#database.get<EntryRow & { mark: DropMark }>(
      `SELECT ${columns}, (SELECT mark FROM mirror_drops) AS mark FROM mirror_entries WHERE id = ?`,
      [id],
    );
    if (!row) return undefined;
    const { mark, attributes, ...stored } = row;
    const metadata = { ...stored, attributes: JSON.parse(attributes) as EntryMetadata['attributes'] };
    await this.remember(id, metadata, mark);
    return metadata;
  }

  /** Whether anything is stored of an upstream. */
  async hasAny(upstream: string): Promise<boolean> {
    return (
      (await this.#database.get('SELECT 1 AS one FROM mirror_entries WHERE upstream = ? LIMIT 1', [upstream])) !==
      undefined
    );
  }

  /** The references stored under an upstream's `kind` and `name` that were used last, the latest first. */
  async latest({ upstream, kind, name }: Omit<EntryKey, 'reference'>, limit: number): Promise<string[]> {
    const rows = await this.#database.select<{ reference: string }>(
      `SELECT reference FROM mirror_entries WHERE upstream = ? AND kind = ? AND name = ?
       ORDER BY used_at DESC, stored_at DESC LIMIT ?`,
      [upstream, kind, name, limit],
    );
    return rows.map(({ reference }) => reference);
  }

  /** Those of `references` that are stored under an upstream's `kind` and `name`. */
  async among(key: Omit<EntryKey, 'reference'>, references: readonly string[]): Promise<Set<string>> {
    const found = new Set<string>();
    for (let start = 0; start < references.length; start += batch) {
      const ids = references.slice(start, start + batch).map((reference) => entryId({ ...key, reference }));
      const rows = await this.#database.select<{ reference: string }>(
        `SELECT reference FROM mirror_entries WHERE id IN (${placeholders(ids)})`,
        ids,
      );
      for (const { reference } of rows) found.add(reference);
    }
    return found;
  }

  /** Up to 100 references other than digests under which content is stored, in byte order. */
  async referencesOf({ upstream, kind, name }: Omit<EntryKey, 'reference'>, digest: Digest): Promise<string[]> {
    const rows = await this.#database.select<{ reference: string }>(
      `SELECT reference FROM mirror_entries WHERE digest = ? AND upstream = ? AND kind = ? AND name = ?
       AND reference NOT LIKE '%:%' ORDER BY reference LIMIT 100`,
      [digest, upstream, kind, name],
    );
    return rows.map(({ reference }) => reference);
  }

  /** The references stored under an upstream's `kind` and `name`, in byte order, after `after` if given, `limit` at most. */
  async references(
    { upstream, kind, name }: Omit<EntryKey, 'reference'>,
    limit: number,
    after?: string,
  ): Promise<string[]> {
    // A document of a package has the empty reference.
    const [condition, place] = after === undefined ? ['', []] : ['AND reference > ?', [after]];
    const rows = await this.#database.select<{ reference: string }>(
      `SELECT reference FROM mirror_entries WHERE kind = ? AND name = ? ${condition} AND upstream = ?
       ORDER BY reference LIMIT ?`,
      [kind, name, ...place, upstream, limit],
    );
    return rows.map(({ reference }) => reference);
  }

  /**
   * Writes `metadata` under each of `keys`, in the transaction that makes the bytes visible, and `sightings` to the history
   * of their name.
   */
  async write(
    tx: Transaction,
    keys: readonly EntryKey[],
    metadata: EntryMetadata,
    sightings: readonly SeenReference[] = [],
  ): Promise<void> {
    const rows = keys.map((key) => rowOf(key, metadata, this.#now()));
    // A background task does not count as a use: an entry that exists keeps its time of last use.
    const kept = BackgroundTask.current ? ['id', 'used_at'] : ['id'];
    const changed = Object.keys(rows[0]!).filter((column) => !kept.includes(column));
    await tx.upsert('mirror_entries', ['id'], rows, changed.map((column) => `${column} = new.${column}`).join(', '));
    await this.#see(tx, keys[0]!, sightings);
    // Content with a history is what people look for by name.
    if (sightings.length > 0) await addWords(tx, keys[0]!);
  }

  /** Records `sightings` of content that is not stored. */
  async record(key: EntryKey, sightings: readonly SeenReference[]): Promise<void> {
    await this.#database.transaction((tx) => this.#see(tx, key, sightings));
  }

  async #see(tx: Transaction, key: EntryKey, sightings: readonly SeenReference[]): Promise<void> {
    const now = this.#now();
    for (const changed of await record(tx, nameOwner(key), sightings, now))
      await noteRepublished(tx, { ...key, id: entryId(key) }, changed, now);
  }

  /** Records that the upstream still has the stored content. */
  async validated(id: string, metadata: EntryMetadata): Promise<EntryMetadata> {
    const validatedAt = this.#now();
    const mark = await this.mark();
    const found = await this.#database.transaction((tx) =>
      tx.run('UPDATE mirror_entries SET validated_at = ? WHERE id = ?', [validatedAt, id]),
    );
    const renewed = { ...metadata, validatedAt };
    if (found > 0) await this.remember(id, renewed, mark);
    return renewed;
  }

  /** Writes an entry to the cache. `mark` is that of before the entry was read or written. */
  async remember(id: string, metadata: EntryMetadata, mark: DropMark): Promise<void> {
    await this.#cache.set(`entry:${id}`, { ...metadata, mark } satisfies CachedEntry, keepFor);
  }

  /** Drops an entry, unless it was stored again meanwhile. If it drops it, `also` runs in the same transaction. */
  async forget(id: string, { storedAt }: EntryMetadata, also?: (tx: Transaction) => Promise<void>): Promise<void> {
    await this.#database.transaction(async (tx) => {
      const dropped = await tx.run('DELETE FROM mirror_entries WHERE id = ? AND stored_at = ?', [id, storedAt]);
      if (dropped === 0) return;
      await tx.run('DELETE FROM mirror_withdrawn WHERE id = ?', [id]);
      await also?.(tx);
    });
    if ((await this.#cache.get<CachedEntry>(`entry:${id}`))?.storedAt === storedAt)
      await this.#cache.delete(`entry:${id}`);
  }

  /** As `forget`, for a person: from the next request on, no instance serves the entry, whatever it has in memory. */
  async forgetEverywhere(
    id: string,
    metadata: EntryMetadata,
    also: ((tx: Transaction) => Promise<void>) | undefined,
  ): Promise<void> {
    await this.forget(id, metadata, async (tx) => {
      // Not a count: after a failover that loses commits, a count would repeat.
      await tx.upsert('mirror_drops', ['id'], [{ id: 1, mark: randomUUID() }], 'mark = new.mark');
      await also?.(tx);
    });
  }

  /**
   * Drops the entries that have not been used since their `used_at`, and that meanwhile neither `upstreams` have withdrawn nor a receipt
   * has named; resolves to the ids of those.
   */
  async drop(rows: readonly { id: string; used_at: number }[], upstreams: readonly string[]): Promise<Set<string>> {
    const withdrawn = 'SELECT 1 FROM mirror_withdrawn w WHERE w.id = mirror_entries.id';
    const statement = `DELETE FROM mirror_entries WHERE id = ? AND used_at = ?
      AND NOT EXISTS (${withdrawn} AND w.upstream IN (${placeholders(['', ...upstreams])}))
      AND NOT EXISTS (SELECT 1 FROM mirror_counted_on c WHERE c.digest = mirror_entries.digest)`;
    const dropped = await this.#database.transaction(async (tx) => {
      const deleted = new Set<string>();
      for (const { id, used_at: usedAt } of rows) {
        if (this.#used.has(id) || (await tx.run(statement, [id, usedAt, '', ...upstreams])) === 0) continue;
        await tx.run('DELETE FROM mirror_withdrawn WHERE id = ?', [id]);
        deleted.add(id);
      }
      return deleted;
    });
    for (const id of dropped) await this.#cache.delete(`entry:${id}`);
    return dropped;
  }

  /** Records for `milliseconds` that the upstream answered "not found"; with `isKept`, that the stored entry is served all the same. */
  async setAbsent(id: string, milliseconds: number, isKept: boolean): Promise<void> {
    await this.#cache.set(`absent:${id}`, isKept ? 'kept' : true, milliseconds);
  }

  async forgetAbsent(id: string): Promise<void> {
    await this.#cache.delete(`absent:${id}`);
  }

  /** What `setAbsent` has recorded; undefined for nothing. */
  async absence(id: string): Promise<'kept' | true | undefined> {
    return this.#cache.get<'kept' | true>(`absent:${id}`);
  }

  /** Records in memory that an entry was served. The reads of a background task do not count. */
  used(id: string): void {
    if (!BackgroundTask.current) this.#used.add(id);
  }

  /** Writes the recorded uses to the database, many entries in one statement. Keeps them if that fails. */
  async flushUses(): Promise<void> {
    const ids = [...this.#used].sort();
    this.#used.clear();
    const usedAt = this.#now();
    for (let start = 0; start < ids.length; start += batch) {
      const some = ids.slice(start, start + batch);
      try {
        await this.#database.transaction((tx) =>
          tx.run(`UPDATE mirror_entries SET used_at = ? WHERE id IN (${placeholders(some)})`, [usedAt, ...some]),
        );
      } catch (error) {
        for (const id of ids.slice(start)) this.#used.add(id);
        throw error;
      }
    }
  }
}
