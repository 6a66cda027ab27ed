import type { Config } from '../../config/schema.ts';
import type { Transaction } from '../../database/database.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import type { EntryMetadata } from '../../mirror/store/entries.ts';
import { fetchFrom } from '../../mirror/fetch/fetch.ts';
import { isUpstreamFailure, type MirrorEntry, type ServedOutcome } from '../../mirror/mirror.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import {
  isHidden,
  isServed,
  type Admission,
  type MirroredName,
  type ReferenceFacts,
  type Verdict,
} from '../../mirror/policy/admission.ts';
import type { Sightings } from '../../mirror/store/sightings.ts';
import type { UpstreamPolicy } from '../../mirror/policy/upstream-policy.ts';
import type { Fetched } from '../../mirror/fetch/resource.ts';
import { discard } from '../../upstream/body.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { manifestTypes, type Descriptor } from '../format/manifest.ts';
import { servedBlobs } from './blob-admission.ts';
import { EarlierDigests } from './earlier-digests.ts';
import { blobEntry, manifestEntry } from './image-entries.ts';
import { pastName } from './past-name.ts';
import { RepositoryNames } from './repository-names.ts';
import { StoredManifests } from './stored-manifests.ts';
import { pullScope, resource, urlOf, type UpstreamRepository } from './upstream-repository.ts';
import { openList, tagLists, type Listed } from './parsed-lists.ts';
import { ReferrerLists } from './referrer-lists.ts';
import { pageOfNames, type NamePage } from '../hosted/repositories.ts';
import { inOrder, positionAfter } from '../format/in-order.ts';
import { collect, copyOf, firstTags, readTags } from './upstream-lists.ts';

/** Stored references that one statement reads. */
const referencesAtATime = 500;
/** The most manifests that are searched for blobs, and the most bytes of them together. */
const manifestsSearched = 50;
const manifestBytesSearched = 8 * 2 ** 20;

/** Images of the upstream registries that serve an account, through the mirror. */
export class ImageMirror {
  readonly names: RepositoryNames;
  readonly #mirror: MirrorReader;
  readonly #policy: UpstreamPolicy;
  readonly #admission: Admission;
  readonly #manifests: StoredManifests;
  readonly #earlier: EarlierDigests;
  readonly #referrers: ReferrerLists;
  readonly #limits: Config['limits'];

  constructor(
    mirror: MirrorReader,
    policy: UpstreamPolicy,
    { admission, sightings, accountId }: { admission: Admission; sightings: Sightings; accountId: number },
    limits: Config['limits'],
  ) {
    this.#mirror = mirror;
    this.#policy = policy;
    this.#admission = admission;
    this.#manifests = new StoredManifests(mirror, sightings, accountId);
    this.#earlier = new EarlierDigests(admission, this.#manifests);
    this.#referrers = new ReferrerLists(mirror, admission, this.#manifests);
    this.#limits = limits;
    this.names = new RepositoryNames(policy);
  }

  /** The upstream registries, in the order of the configuration. */
  get upstreams(): readonly Upstream[] {
    return this.#policy.all;
  }

  /**
   * The complete manifest of a tag or digest. A stored tag is revalidated by HEAD, which upstreams do not count as a pull.
   * If it has moved, the new manifest is opened by its digest, so that a stored one is not fetched again.
   */
  async openManifest(place: UpstreamRepository, reference: string): Promise<MirrorEntry | undefined> {
    const name = this.#manifests.nameOf(place);
    const before = await this.#admission.decided(name, [reference]);
    return before ? this.#openDecided(place, name, reference, before[0]!) : this.#openManifest(place, reference);
  }

  /**
   * The manifest of a name that a policy limits. What is held is fetched all the same: its age counts from then on, and the
   * upstream may delete it. With it begins the age of what refers to it. A tag that moved to a digest that is held answers its
   * latest digest that is not. A tag that is denied for the digest that it has here may have moved: its upstream is asked.
   */
  async #openDecided(
    place: UpstreamRepository,
    name: MirroredName,
    reference: string,
    before: Verdict,
  ): Promise<MirrorEntry | undefined> {
    const isDenied = before !== 'allow' && !isHidden(before);
    if (isDenied && (isDigest(reference) || (await this.#earlier.isRefusedAnyway(name, reference))))
      return (await this.#admission.serves(name, reference), undefined);
    const entry = await this.#openManifest(place, reference);
    if (!entry) return undefined;
    let isOpen = false;
    try {
      const { digest } = entry.metadata ?? (await entry.complete);
      const verdicts = (await this.#admission.decided(name, [reference, digest], 'request')) ?? [];
      isOpen = verdicts.every((each) => each === 'allow');
      if (isOpen) return entry;
      const isNew = entry.outcome === 'miss' && verdicts.some(isHidden);
      if (isNew) await unlessUpstreamFails(() => this.#referrers.of(place, digest));
      const mayBeEarlier = !isDigest(reference) && verdicts.some(isHidden);
      const earlier = mayBeEarlier ? (await this.#earlier.of(place, [reference])).get(reference) : undefined;
      if (earlier !== undefined) return await this.#openManifest(place, earlier);
      isServed(verdicts);
      return undefined;
    } finally {
      if (!isOpen) entry.content.close();
    }
  }

  /** When a manifest was stored here first; milliseconds since 1970 UTC. */
  firstSeenAt(place: UpstreamRepository, digest: Digest): Promise<number | undefined> {
    return this.#manifests.firstSeenAt(place, digest);
  }

  /** The digest that a tag has now, also of one that a policy refuses; undefined if the upstream has no such tag. */
  async digestOf(place: UpstreamRepository, tag: string): Promise<Digest | undefined> {
    const entry = await this.#openManifest(place, tag);
    if (!entry) return undefined;
    try {
      return (entry.metadata ?? (await entry.complete)).digest;
    } finally {
      entry.content.close();
    }
  }

  #openManifest(place: UpstreamRepository, reference: string): Promise<MirrorEntry | undefined> {
    return this.#mirror.open({
      ...manifestEntry(place, reference, this.#limits.manifest),
      keeps: true,
      fetch: async (known, signal) => {
        const fetched = await this.#fetchManifest(place, reference, known, signal);
        if (known) await this.#manifests.withdrawn.sight(place, reference, fetched.kind !== 'absent', signal);
        return fetched;
      },
    });
  }

  /** A repository as policies see it. */
  nameOf(place: UpstreamRepository): MirroredName {
    return this.#manifests.nameOf(place);
  }

  async #fetchManifest(
    place: UpstreamRepository,
    reference: string,
    known: EntryMetadata | undefined,
    signal: AbortSignal,
  ): Promise<Fetched> {
    const url = urlOf(place, 'manifests', reference);
    const headers = { accept: manifestTypes.join(', ') };
    const request = { url, headers, subject: place.name, scope: pullScope(place), isDocument: true, signal };
    if (known) {
      const head = await place.upstream.send({ ...request, method: 'HEAD' });
      discard(head.body);
      if (head.status === 404 || head.status === 410) return { kind: 'absent' };
      if (head.digest === known.digest) return { kind: 'not-modified' };
      const moved =
        head.digest &&
        (await this.#openManifest(place, head.digest).catch((error: unknown) => {
          // It counts for the client that came first, which may fetch no more, or has left. Others wait, too.
          const isOfClient = isDomainError(error, 'TooManyRequests') || isDomainError(error, 'Aborted');
          if (!isOfClient || signal.aborted) throw error;
          return undefined;
        }));
      if (moved) return copyOf(moved);
    }
    const fetched = await fetchFrom(place.upstream, { ...request, known });
    return fetched.kind === 'fetched' ? { ...fetched, type: mediaTypeOf(fetched.type) } : fetched;
  }

  /** Those of blobs that a client may get. Throws `Denied`. */
  readonly servedBlobs = (place: UpstreamRepository, digests: Iterable<Digest>) =>
    servedBlobs(this.#admission, this.#manifests, place, digests);

  /** A blob. Once stored, it is never requested again. Its size is limited to the one in a stored manifest, if any. */
  async openBlob(place: UpstreamRepository, digest: Digest): Promise<MirrorEntry | undefined> {
    if ((await this.servedBlobs(place, [digest])).size === 0) return undefined;
    const blob = blobEntry(place, digest, this.#limits.blob);
    const stored = await this.#mirror.openStored(blob);
    if (stored) return stored;
    const known = await this.#sizeOf(place, digest);
    return this.#mirror.open({
      ...blob,
      limit: Math.min(known ?? blob.limit, blob.limit),
      fetch: (_known, signal) => {
        const url = urlOf(place, 'blobs', digest);
        return fetchFrom(place.upstream, { url, subject: place.name, scope: pullScope(place), signal, plain: true });
      },
    });
  }

  /** The size of a blob in the repository's stored manifests, of which the most recently used are searched. */
  async #sizeOf(place: UpstreamRepository, digest: Digest): Promise<number | undefined> {
    for await (const [, { blobs }] of this.#manifests.latestContent(place, manifestsSearched, manifestBytesSearched)) {
      const found = blobs.find((each) => each.digest === digest && each.size !== undefined);
      if (found) return found.size;
    }
    return undefined;
  }

  /** The configs and layers of the repository's stored images, of which the most recently used are searched. */
  async blobsOfImages(place: UpstreamRepository): Promise<Set<string>> {
    const blobs = new Set<string>();
    const latest = this.#manifests.latestContent(place, manifestsSearched, manifestBytesSearched);
    for await (const [, some] of latest) for (const { digest } of some.blobs) blobs.add(digest);
    return blobs;
  }

  /** The facts of the repository's stored indexes that name a manifest, by the digest of each. */
  indexesNaming(place: UpstreamRepository, digest: Digest): Promise<ReadonlyMap<string, ReferenceFacts>> {
    return this.#manifests.indexesNaming(place, digest);
  }

  /** Whether clients get a tag with the digest that it had in the past. Throws `Denied`. */
  servesPast(place: UpstreamRepository, tag: string, digest: Digest): Promise<boolean> {
    return this.#admission.serves(pastName(this.nameOf(place), new Map([[tag, digest]])), tag, digest);
  }

  /** Those of `tags` that lists show with the digests that they had in the past. */
  async listedPast<T extends { reference: string; digest: string }>(place: UpstreamRepository, tags: readonly T[]) {
    const name = pastName(this.nameOf(place), new Map(tags.map(({ reference, digest }) => [reference, digest])));
    const shown = await this.#admission.listed(name, tags, ({ reference }) => reference);
    return this.#admission.listed(name, shown, ({ digest }) => digest);
  }

  /** Whether a manifest of the repository has been mirrored. */
  async isMirrored(place: UpstreamRepository): Promise<boolean> {
    return (await this.#mirror.references(resource(place, 'manifest', '').key, 1)).length > 0;
  }

  /** Whether the repository's blob or manifest with that digest, or manifest with that tag, is stored. */
  async isStored(place: UpstreamRepository, kind: 'blob' | 'manifest', reference: string): Promise<boolean> {
    return (await this.storedAmong(place, kind, [reference])).size > 0;
  }

  /** Those of `digests` whose blobs are stored, whatever a policy says of them: `servedBlobs` tells that. */
  blobsAmong(place: UpstreamRepository, digests: readonly Digest[]): Promise<Set<string>> {
    return this.#mirror.among(resource(place, 'blob', '').key, digests);
  }

  /**
   * What is stored of the repository under `reference`. A tag whose newest digest is held has the digest that clients get. Sends
   * no request, and does not count as a use.
   */
  async stored(
    place: UpstreamRepository,
    kind: 'blob' | 'manifest' | 'referrers',
    reference: string,
  ): Promise<EntryMetadata | undefined> {
    const stored = await this.#mirror.stored(resource(place, kind, reference).key);
    const [shown] = stored ? await this.listed(place, [stored], () => reference) : [];
    if (!stored || shown || kind !== 'manifest' || isDigest(reference)) return shown;
    const earlier = (await this.earlierDigests(place, [reference])).get(reference);
    return earlier && this.#mirror.stored(resource(place, kind, earlier).key);
  }

  /** The latest digest that clients get of each of `tags`, whose newest digest is held. */
  earlierDigests(place: UpstreamRepository, tags: readonly string[]): Promise<ReadonlyMap<string, Digest>> {
    return this.#earlier.of(place, tags);
  }

  /** Those of stored `entries`, of tags or digests, that lists show. */
  async listedEntries<T extends { reference: string; digest: string }>(
    place: UpstreamRepository,
    entries: readonly T[],
  ) {
    const shown = await this.listed(place, entries, ({ reference }) => reference);
    return this.listed(place, shown, ({ digest }) => digest);
  }

  /** Those of `items`, which have tags or digests of the repository, that lists show. */
  listed<T>(place: UpstreamRepository, items: readonly T[], referenceOf: (item: T) => string) {
    return this.#admission.listed(this.#manifests.nameOf(place), items, referenceOf);
  }

  /** The stored tags with this digest that lists show, in byte order; at most 100. */
  async tagsOf(place: UpstreamRepository, digest: Digest): Promise<string[]> {
    const tags = await this.#mirror.referencesOf(resource(place, 'manifest', '').key, digest);
    return [...(await this.listed(place, tags, String))];
  }

  /** Those of `references` that are stored blobs, or manifests, of the repository. */
  async storedAmong(
    place: UpstreamRepository,
    kind: 'blob' | 'manifest' | 'referrers',
    references: readonly string[],
  ): Promise<Set<string>> {
    const stored = await this.#mirror.among(resource(place, kind, '').key, references);
    return new Set(await this.listed(place, [...stored], String));
  }

  /** The stored tags that the upstream has certainly withdrawn, and since when. */
  withdrawn(place: UpstreamRepository): Promise<ReadonlyMap<string, number>> {
    return this.#manifests.withdrawn.times(place);
  }

  /** Drops the stored entry of a tag, not that of its digest, or of a digest, and runs `also` with it; resolves to whether there was one. */
  forgetTag(place: UpstreamRepository, tag: string, also: (tx: Transaction) => Promise<void>): Promise<boolean> {
    return this.#mirror.remove(resource(place, 'manifest', tag).key, also);
  }

  /** Drops the stored entries of all tags with this digest, also of those that lists do not show. */
  async forgetTagsOf(place: UpstreamRepository, digest: Digest): Promise<void> {
    for (let isMore = true; isMore;) {
      isMore = false;
      for (const tag of await this.#mirror.referencesOf(resource(place, 'manifest', '').key, digest))
        isMore = (await this.forgetTag(place, tag, async () => undefined)) || isMore;
    }
  }

  /** Up to `limit` valid tags after `last`, in byte order; undefined if the upstream has no such repository. */
  async listTags(
    place: UpstreamRepository,
    limit = Infinity,
    last = '',
  ): Promise<(NamePage & { served: ServedOutcome }) | undefined> {
    try {
      const list = await openList(this.#mirror, place, tagLists, '', (signal) => this.#fetchTags(place, signal));
      const kept =
        list?.items.length === 0
          ? await this.#manifests.withdrawn.stored(place)
          : await this.#manifests.withdrawn.tags(place);
      if (!list && kept.length === 0) return undefined;
      const items = kept.length === 0 ? list!.items : await inOrder([...(list?.items ?? []), ...kept], String);
      const shown = await this.#earlier.listed(place, items);
      const start = positionAfter(shown, last);
      return {
        served: list?.served ?? 'withdrawn',
        items: shown.slice(start, start + limit),
        more: start + limit < shown.length,
      };
    } catch (error) {
      // The upstream fails, or too much waits: list the stored tags, because those can still be pulled.
      if (!isUpstreamFailure(error) && !isDomainError(error, 'TooManyRequests')) throw error;
      const stored = await this.#storedTags(place, limit + 1, last);
      const isEmpty = stored.length === 0 && (last === '' || (await this.#storedTags(place, 1, '')).length === 0);
      if (isEmpty) throw error;
      return { served: 'stale', ...pageOfNames(stored, limit) };
    }
  }

  async #fetchTags(place: UpstreamRepository, signal: AbortSignal): Promise<Fetched> {
    const tags = new Set<string>();
    const read = (items: readonly unknown[]) => {
      const some = readTags(items);
      for (const tag of some) tags.add(tag);
      return some;
    };
    const fetched = await collect(place, { url: firstTags(place) }, 'tags', read, signal);
    await this.#manifests.withdrawn.compare(place, fetched.kind === 'absent' ? undefined : tags, signal);
    return fetched;
  }

  /** Up to `limit` stored tags after `last`, in byte order. */
  async #storedTags(place: UpstreamRepository, limit: number, last: string): Promise<string[]> {
    const tags: string[] = [];
    for (let after = last; tags.length < limit;) {
      const references = await this.#mirror.references(resource(place, 'manifest', '').key, referencesAtATime, after);
      tags.push(...(await this.#earlier.listed(place, readTags(references))));
      if (references.length < referencesAtATime) break;
      after = references.at(-1)!;
    }
    return tags.slice(0, limit);
  }

  /** See `ReferrerLists.of`. */
  listReferrers(place: UpstreamRepository, digest: Digest): Promise<Listed<Descriptor>> {
    return this.#referrers.of(place, digest);
  }
}

/** The media type without parameters, because some registries send a charset. */
function mediaTypeOf(header: string): string {
  return header.split(';', 1)[0]!.trim().toLowerCase();
}
