import type { Database } from '../../database/database.ts';
import { digestsOf, firstSeen, latestDigests, record, type ReferenceKind } from '../../history/history.ts';
import { Recent } from '../../runtime/recent.ts';
import { entryId, type EntryKey } from './entries.ts';
import { republishedAt, republishedOf } from './republished.ts';

/** A name of an upstream. */
type Name = Pick<EntryKey, 'upstream' | 'name'>;

/** Manifests whose time is kept in memory. */
const maxManifests = 10_000;

/** When mirrored content was first seen here. Times are in milliseconds since 1970 UTC. */
export class Sightings {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #manifests = new Recent<string, number>(maxManifests);

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** When each of `references` of a name was first recorded. */
  firstSeen(name: Name, kind: ReferenceKind, references: readonly string[]): Promise<Map<string, number>> {
    return firstSeen(this.#database, ownerOf(name), kind, references);
  }

  /** When a manifest was first recorded; from memory if that is known, because it does not change. */
  async manifestSeenAt(name: Name, digest: string): Promise<number | undefined> {
    const key = `${name.upstream} ${name.name} ${digest}`;
    const known = this.#manifests.get(key);
    if (known !== undefined) return known;
    const seenAt = (await this.firstSeen(name, 'manifest', [digest])).get(digest);
    if (seenAt !== undefined) this.#manifests.set(key, seenAt);
    return seenAt;
  }

  /** When the upstream first offered each of `references`, which it offers now, without a date. Records those that are new. */
  async firstListed(name: Name, references: readonly string[]): Promise<Map<string, number>> {
    const known = await this.firstSeen(name, 'listed', references);
    const unknown = references.filter((each) => !known.has(each));
    if (unknown.length === 0) return known;
    const now = this.#now();
    const seen = unknown.map((reference) => ({ kind: 'listed' as const, reference, digest: 'none' }));
    await this.#database.transaction((tx) => record(tx, ownerOf(name), seen, now));
    for (const each of unknown) known.set(each, now);
    return known;
  }

  /** As `republishedOf`. */
  republished(name: Omit<EntryKey, 'reference'>): Promise<ReadonlyMap<string, number>> {
    return republishedOf(this.#database, name);
  }

  /** As `republishedAt`. */
  republishedAt(key: EntryKey, digest: string): Promise<number | undefined> {
    return republishedAt(this.#database, entryId(key), digest);
  }

  /** The digest that each of `tags` of a name had last. */
  latestDigests(name: Name, tags: readonly string[]): Promise<Map<string, string>> {
    return latestDigests(this.#database, ownerOf(name), tags);
  }

  /** Up to `limit` digests that each of `tags` of a name has had, the latest first. */
  digestsOf(name: Name, tags: readonly string[], limit: number): Promise<ReadonlyMap<string, readonly string[]>> {
    return digestsOf(this.#database, ownerOf(name), tags, limit);
  }
}

function ownerOf({ upstream, name }: Name) {
  return { accountId: 0, upstream, name };
}
