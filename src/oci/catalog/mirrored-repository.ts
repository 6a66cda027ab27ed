import type { Database, Transaction } from '../../database/database.ts';
import { type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { recordEvent } from '../../events/record.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import {
  entriesOf,
  entriesOfName,
  entryNames,
  lastUseOf,
  taggedEntries,
  totalsOfNames,
  type ListedEntry,
} from '../../mirror/store/listing.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { Content } from '../../storage/files/content.ts';
import { mirroredDownloads } from '../../usage/mirrored.ts';
import type { Descriptor } from '../format/manifest.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import { naturalKey } from '../hosted/natural-order.ts';
import { imageBytesOf, manifestTypeOf } from '../mirrored/image-entries.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { readParsedList, referrerLists } from '../mirrored/parsed-lists.ts';
import { listedName, type UpstreamRepository } from '../mirrored/upstream-repository.ts';
import { attachedKind, predicateKey, type AttachedKind } from './attached.ts';
import { attachedTags } from '../format/reference.ts';
import {
  cannotSort,
  maxAliases,
  type DescribedManifest,
  type ListedManifest,
  type ListedTag,
  type RepositorySummary,
  type StoredRepository,
  type TagQuery,
} from './repository.ts';

/** The entries whose bytes an image has; those of the first have its references. */
export const countedKinds = ['manifest', 'blob'] as const;
/** Most tags of a repository that are sorted; further ones are not listed. */
const maxTags = 10_000;
/** Most tags of one manifest that are shown. */
const maxTagsOfManifest = 100;

export interface MirroredParts {
  database: Database;
  blobs: BlobStore;
  mirrors: AccountViews<ImageMirror>;
  now: () => number;
}

/** A stored repository of an upstream, as an account sees it. */
export class MirroredRepository implements StoredRepository {
  readonly name: string;
  readonly upstream: string;
  readonly #parts: MirroredParts;
  readonly #accountId: number;
  readonly #mirror: ImageMirror;
  readonly #place: UpstreamRepository;

  constructor(parts: MirroredParts, accountId: number, mirror: ImageMirror, place: UpstreamRepository) {
    this.#parts = parts;
    this.#accountId = accountId;
    this.#mirror = mirror;
    this.#place = place;
    this.name = listedName(place);
    this.upstream = place.upstream.name;
  }

  async summary(): Promise<RepositorySummary | undefined> {
    const { upstream, name } = this.#place;
    const among = { sql: 'name = ?', values: [name] };
    const selection = { kind: 'manifest', upstreams: [upstream.id], among };
    const names = await entryNames(this.#parts.database, selection, '', 1);
    return names.length === 0 ? undefined : this.withTags(0);
  }

  /** The summary of a repository with a manifest, with up to `limit` tags. */
  async withTags(limit: number): Promise<RepositorySummary> {
    const { database } = this.#parts;
    const { upstream, name } = this.#place;
    const tagged = limit > 0 ? await this.#tagged(limit) : [];
    const withdrawn = await this.#mirror.withdrawn(this.#place);
    const all = await totalsOfNames(database, countedKinds, [name]);
    const totals = all.find((each) => each.upstream === upstream.id);
    return {
      name: this.name,
      upstream: this.upstream,
      sizeBytes: totals?.bytes ?? 0,
      tagCount: totals?.refs ?? 0,
      pullCount: (await this.#downloads()).total,
      lastPulledAt: totals?.usedAt ?? 0,
      tags: tagged.map((entry) => {
        const { pullCount: _pullCount, lastPulledAt: _lastPulledAt, ...row } = rowOf(entry);
        return { ...row, name: entry.reference, withdrawnAt: withdrawn.get(entry.reference) ?? null };
      }),
    };
  }

  /** The entries of tags. One whose newest digest is held has the content that clients get. */
  async #tagged(limit: number): Promise<readonly ListedEntry[]> {
    const { upstream, name } = this.#place;
    const { database } = this.#parts;
    const selection = { kind: 'manifest', upstream: upstream.id };
    const entries = await taggedEntries(database, selection, name, limit);
    const shown = await this.#mirror.listedEntries(this.#place, entries);
    if (shown.length === entries.length) return shown;
    const visible = new Set(shown);
    const hidden = entries.filter((each) => !visible.has(each));
    const earlier = await this.#mirror.earlierDigests(
      this.#place,
      hidden.map(({ reference }) => reference),
    );
    const stored = await entriesOf(database, selection, name, [...new Set(earlier.values())]);
    const contents = new Map(stored.map((each) => [each.reference, each]));
    return entries.flatMap((entry) => {
      if (visible.has(entry)) return [entry];
      const content = contents.get(earlier.get(entry.reference) ?? '');
      return content ? [{ ...content, reference: entry.reference }] : [];
    });
  }

  async #downloads() {
    return (await mirroredDownloads(this.#parts.database, this.#accountId, 'container', [this.name]))(this.name);
  }

  async digestOf(tag: string): Promise<Digest | undefined> {
    return (await this.#mirror.stored(this.#place, 'manifest', tag))?.digest;
  }

  async open(kind: 'manifest' | 'blob', digest: Digest): Promise<Content | undefined> {
    const entry = await this.#mirror.stored(this.#place, kind, digest);
    return entry && this.#parts.blobs.open(entry.digest, entry.size);
  }

  async tags(
    { text, order, hidesAttached }: TagQuery,
    limit: number,
    after: ListedTag['key'] | undefined,
  ): Promise<ListedTag[]> {
    if (order === 'pulls') throw cannotSort('the pulls of mirrored tags are counted by image, and not by tag');
    const sign = order === 'asc' || order === 'oldest' ? 1 : -1;
    const sortKey = (entry: ListedEntry) => {
      if (order === 'newest' || order === 'oldest') return entry.storedAt;
      return order === 'size' ? imageBytesOf(entry) : naturalKey(entry.reference);
    };
    const tagged = await this.#tagged(maxTags);
    const withdrawn = await this.#mirror.withdrawn(this.#place);
    const byDigest = Map.groupBy(tagged, ({ digest }) => digest);
    return tagged
      .map((entry) => ({ entry, key: [sortKey(entry), entry.reference] as const }))
      .filter(({ key }) => !hidesAttached || !attachedTags.some((each) => key[1].startsWith(each)))
      .filter(({ key }) => key[1].toLowerCase().includes(text) && (!after || sign * compare(key, after) > 0))
      .sort((a, b) => sign * compare(a.key, b.key))
      .slice(0, limit)
      .map(({ entry, key }) => ({
        ...rowOf(entry),
        key,
        name: entry.reference,
        withdrawnAt: withdrawn.get(entry.reference) ?? null,
        aliases: byDigest
          .get(entry.digest)!
          .map(({ reference }) => reference)
          .filter((name) => name !== entry.reference)
          .slice(0, maxAliases),
      }));
  }

  /** What a mirrored manifest belongs to is not stored: it is shown as one that no index lists. */
  async manifests(limit: number, after: string) {
    const { upstream, name } = this.#place;
    const selection = { kind: 'manifest', upstream: upstream.id };
    const entries = await entriesOfName(this.#parts.database, selection, name, after, limit);
    const shown = await this.#mirror.listed(this.#place, entries, ({ digest }) => digest);
    const items = shown.map((entry) => ({
      ...rowOf(entry),
      artifactType: null,
      subject: null,
      isChild: false,
      isTagged: entry.isTagged,
    }));
    return { items, next: entries.length < limit ? undefined : entries.at(-1)!.digest };
  }

  async manifest(digest: Digest): Promise<DescribedManifest | undefined> {
    const entry = await this.#mirror.stored(this.#place, 'manifest', digest);
    if (!entry) return undefined;
    const tags = (await this.#mirror.tagsOf(this.#place, digest)).slice(0, maxTagsOfManifest);
    const { upstream, name } = this.#place;
    const usedAt = await lastUseOf(this.#parts.database, { upstream: upstream.id, kind: 'manifest', name }, digest);
    const withdrawn = await this.#mirror.withdrawn(this.#place);
    const withdrawnTags = tags.flatMap((name) => {
      const withdrawnAt = withdrawn.get(name);
      return withdrawnAt === undefined ? [] : [{ name, withdrawnAt }];
    });
    return { ...rowOf({ ...entry, usedAt }), tags, withdrawnTags, indexes: [] };
  }

  /** The pulls by this account. */
  async withPulls<T extends ListedManifest>(rows: readonly T[], childrenOf: (digest: Digest) => readonly Digest[]) {
    const { versions } = await this.#downloads();
    return rows.map((row) => {
      const images = [row.digest, ...childrenOf(row.digest)];
      return { ...row, pullCount: images.reduce((sum, digest) => sum + (versions.get(digest) ?? 0), 0) };
    });
  }

  storedAmong(digests: readonly Digest[]): Promise<Set<string>> {
    return this.#mirror.storedAmong(this.#place, 'manifest', digests);
  }

  async referrers(digest: Digest): Promise<readonly Descriptor[] | undefined> {
    try {
      const metadata = await this.#mirror.stored(this.#place, 'referrers', digest);
      if (!metadata) return undefined;
      const content = await this.#parts.blobs.open(metadata.digest, metadata.size);
      const entry = { metadata, content, complete: Promise.resolve(metadata) };
      const list = await readParsedList(entry, referrerLists, this.#place.upstream.id);
      return await this.#mirror.listed(this.#place, list, (each) => each.digest);
    } catch (error) {
      if (isDomainError(error)) return undefined;
      throw error;
    }
  }

  async attachedTo(digests: readonly Digest[]): Promise<Map<Digest, Set<AttachedKind>>> {
    const listed = await this.#mirror.storedAmong(this.#place, 'referrers', digests);
    const found = new Map<Digest, Set<AttachedKind>>();
    for (const digest of digests.filter((each) => listed.has(each))) {
      const kinds = (await this.referrers(digest))?.flatMap(
        ({ artifactType, mediaType, annotations }) =>
          attachedKind(artifactType ?? mediaType, annotations?.[predicateKey]) ?? [],
      );
      found.set(digest, new Set(kinds));
    }
    return found;
  }

  async deleteTag(tag: string, mayDeleteShared: () => void): Promise<boolean> {
    if (!(await this.#mirror.isStored(this.#place, 'manifest', tag))) return false;
    mayDeleteShared();
    return this.#mirror.forgetTag(this.#place, tag, (tx) => this.#record(tx, 'tag.deleted', tag));
  }

  async deleteManifest(digest: Digest, mayDeleteShared: () => void): Promise<void> {
    const mirror = this.#mirror;
    const place = this.#place;
    if (!(await mirror.isStored(place, 'manifest', digest))) throw manifestUnknown({ digest });
    mayDeleteShared();
    await mirror.forgetTagsOf(place, digest);
    const isDeleted = await mirror.forgetTag(place, digest, (tx) => this.#record(tx, 'manifest.deleted', digest));
    if (!isDeleted) throw manifestUnknown({ digest });
  }

  #record(tx: Transaction, type: 'tag.deleted' | 'manifest.deleted', reference: string): Promise<void> {
    const subject = { kind: 'container', name: this.name, reference } as const;
    const details = { origin: 'mirrored', upstream: this.upstream };
    return recordEvent(tx, { type, accountId: this.#accountId, subject, details }, this.#parts.now());
  }
}

function rowOf(
  entry: Pick<ListedEntry, 'digest' | 'type' | 'size' | 'attributes' | 'storedAt'> & { usedAt: number | null },
) {
  return {
    digest: entry.digest,
    mediaType: manifestTypeOf(entry),
    sizeBytes: imageBytesOf(entry),
    updatedAt: entry.storedAt,
    pullCount: 0,
    lastPulledAt: entry.usedAt,
  };
}

function compare(a: ListedTag['key'], b: ListedTag['key']): number {
  if (a[0] !== b[0]) return a[0] < b[0] ? -1 : 1;
  if (a[1] === b[1]) return 0;
  return a[1] < b[1] ? -1 : 1;
}
