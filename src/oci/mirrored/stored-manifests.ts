import type { MirrorReader } from '../../mirror/stored-only.ts';
import type { EntryKey } from '../../mirror/store/entries.ts';
import type { MirroredName, ReferenceFacts, WithdrawnTimes } from '../../mirror/policy/admission.ts';
import type { Sightings } from '../../mirror/store/sightings.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { storageFull } from '../../storage/files/disk.ts';
import { contentOfEntry, knownContent, type NamedContent } from '../hosted/manifest-blobs.ts';
import { formsOf, listedName, resource, type UpstreamRepository } from './upstream-repository.ts';
import { WithdrawnTags } from './withdrawn-tags.ts';

/** The most manifests of a repository that are searched for the one that names a blob or an image, for a policy. */
export const namingSearched = 1000;

/** What is stored of repositories, and what is known of it, as policies see it. */
export class StoredManifests {
  readonly withdrawn: WithdrawnTags;
  readonly #mirror: MirrorReader;
  readonly #sightings: Sightings;
  readonly #accountId: number;

  constructor(mirror: MirrorReader, sightings: Sightings, accountId: number) {
    this.#mirror = mirror;
    this.withdrawn = new WithdrawnTags(mirror);
    this.#sightings = sightings;
    this.#accountId = accountId;
  }

  /**
   * What each of the repository's stored manifests names, the most recently used first, with its digest. At most `most`, and no
   * more after `mostBytes` were read. It does not count as a use.
   */
  async *latestContent(
    place: UpstreamRepository,
    most: number,
    mostBytes: number,
  ): AsyncGenerator<readonly [Digest, NamedContent]> {
    yield* this.#contentOf(place, await this.#latest(place, most), mostBytes);
  }

  async *#contentOf(
    place: UpstreamRepository,
    references: readonly string[],
    mostBytes: number,
  ): AsyncGenerator<readonly [Digest, NamedContent]> {
    let bytes = 0;
    for (const reference of references) {
      const known = knownContent(reference);
      if (known && mostBytes === Infinity) {
        yield [reference as Digest, known];
        await pause();
        continue;
      }
      // Without the kind of the upstream: no client has requested this manifest.
      const { key } = resource(place, 'manifest', reference);
      const entry = await this.#mirror.openStored({ key, lifetime: 'immutable' }, { isSearched: true });
      if (!entry) continue;
      bytes += entry.size ?? 0;
      yield [entry.metadata!.digest, await contentOfEntry(entry)];
      await pause();
      if (bytes > mostBytes) return;
    }
  }

  #latest(place: UpstreamRepository, most: number): Promise<string[]> {
    return this.#mirror.latest(resource(place, 'manifest', '').key, most);
  }

  /**
   * Writes which manifests this process has served, if a repository has more than a policy searches: the image that a client pulls
   * now is then among them. Resolves to whether it has.
   */
  async noteUses(place: UpstreamRepository): Promise<boolean> {
    if ((await this.#latest(place, namingSearched)).length < namingSearched) return false;
    await this.#mirror.writeUses();
    return true;
  }

  /** A repository as policies see it. */
  nameOf(place: UpstreamRepository): MirroredName {
    const { upstream, name } = place;
    return {
      accountId: this.#accountId,
      upstream,
      kind: 'image',
      name,
      shown: formsOf(place).map((form) => listedName({ upstream, name: form })),
      facts: {
        of: (references) => this.#factsOf(place, references),
        naming: () => this.#naming(place),
        withdrawn: () => this.#withdrawnOf(place),
      },
    };
  }

  /** The facts of tags and digests that were seen here. */
  async #factsOf(
    place: UpstreamRepository,
    references: readonly string[],
  ): Promise<ReadonlyMap<string, ReferenceFacts>> {
    const { key } = resource(place, 'manifest', '');
    const tags = await this.#sightings.latestDigests(
      key,
      references.filter((each) => !isDigest(each)),
    );
    const seen = await this.#timesOf(key, [...references.filter(isDigest), ...tags.values()]);
    const facts = new Map<string, ReferenceFacts>();
    for (const reference of references) {
      const digest = tags.get(reference) ?? reference;
      const times = seen.get(digest);
      if (!times) continue;
      const namedBy = () => this.indexesNaming(place, digest);
      facts.set(reference, { ...times, digest, namedBy });
    }
    return facts;
  }

  /** A digest is withdrawn with the last tag that has it. */
  async #withdrawnOf(place: UpstreamRepository): Promise<WithdrawnTimes | undefined> {
    const times = await this.withdrawn.times(place);
    if (times.size === 0) return undefined;
    return async (references) => {
      const found = new Map<string, number>();
      for (const reference of references) {
        const tags = isDigest(reference)
          ? await this.#mirror.referencesOf(resource(place, 'manifest', '').key, reference)
          : [reference];
        const gone = tags.map((tag) => times.get(tag)).filter((time) => time !== undefined);
        if (gone.length > 0 && gone.length === tags.length) found.set(reference, Math.max(...gone));
      }
      return found;
    };
  }

  /** The facts of the repository's stored indexes that name a manifest, also by way of another index. */
  async indexesNaming(place: UpstreamRepository, digest: string): Promise<ReadonlyMap<string, ReferenceFacts>> {
    const namedBy = new Map<string, Set<string>>();
    await this.noteUses(place);
    const latest = await this.#latest(place, namingSearched);
    const stored = new Set(latest);
    for await (const [index, { children }] of this.#contentOf(place, latest, Infinity)) {
      for (const { digest: child } of children) {
        if (child !== digest && !stored.has(child)) continue;
        const indexes = namedBy.get(child) ?? new Set<string>();
        namedBy.set(child, indexes.add(index));
      }
    }
    const naming = new Set(namedBy.get(digest));
    // A set also iterates over what is added meanwhile.
    for (const each of naming) for (const outer of namedBy.get(each) ?? []) naming.add(outer);
    const seen = await this.#timesOf(resource(place, 'manifest', '').key, [...naming]);
    return new Map([...seen].map(([index, times]) => [index, { ...times, digest: index }]));
  }

  /** When each of `digests` was stored here first, and when it was first listed as a referrer that was held. */
  async #timesOf(key: EntryKey, digests: readonly string[]): Promise<Map<string, ReferenceFacts>> {
    const [stored, listed] = await Promise.all([
      this.#sightings.firstSeen(key, 'manifest', digests),
      this.#sightings.firstSeen(key, 'listed', digests),
    ]);
    const times = new Map<string, ReferenceFacts>();
    for (const digest of digests) {
      const [firstSeenAt, listedAt] = [stored.get(digest), listed.get(digest)];
      if (firstSeenAt === undefined && listedAt === undefined) continue;
      times.set(digest, { firstSeenAt, ...(listedAt !== undefined && { listedAt }) });
    }
    return times;
  }

  /**
   * Notes that the upstream lists manifests with `digests` as referrers, of those that were not listed before. If that cannot be written,
   * their age begins with a later list.
   */
  async sightReferrers(place: UpstreamRepository, digests: readonly string[]): Promise<void> {
    try {
      await this.#sightings.firstListed(resource(place, 'manifest', '').key, digests);
    } catch (error) {
      if (!storageFull(error) && !isDomainError(error, 'DatabaseUnavailable')) throw error;
    }
  }

  /** Tells which of the repository's stored manifests name a manifest or blob, also by way of an index. */
  async #naming(place: UpstreamRepository): Promise<(digest: string) => ReadonlySet<string>> {
    const namedBy = new Map<string, string[]>();
    for await (const [manifest, { blobs, children }] of this.latestContent(place, namingSearched, Infinity)) {
      for (const { digest } of [...blobs, ...children]) namedBy.set(digest, [...(namedBy.get(digest) ?? []), manifest]);
    }
    return (digest) => {
      const found = new Set<string>(namedBy.get(digest));
      for (const each of found) for (const naming of namedBy.get(each) ?? []) found.add(naming);
      return found;
    };
  }

  /** When a manifest was stored here first; milliseconds since 1970 UTC. */
  firstSeenAt({ upstream, name }: UpstreamRepository, digest: Digest): Promise<number | undefined> {
    return this.#sightings.manifestSeenAt({ upstream: upstream.id, name }, digest);
  }

  /** Up to `limit` digests that each of `tags` has had here, the latest first. */
  digestsOf(
    { upstream, name }: UpstreamRepository,
    tags: readonly string[],
    limit: number,
  ): Promise<ReadonlyMap<string, readonly string[]>> {
    return this.#sightings.digestsOf({ upstream: upstream.id, name }, tags, limit);
  }
}
