import { pagesOf } from '../../runtime/pages.ts';
import { allow } from '../../accounts/allow.ts';
import type { NameSet } from '../../accounts/names.ts';
import { ownerOf } from '../../accounts/owner.ts';
import type { Principal } from '../../accounts/principal.ts';
import type { MirroredOwner, NameOwner } from '../../history/history.ts';
import type { Database, Transaction } from '../../database/database.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { recordEvent } from '../../events/record.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import {
  entriesOfName,
  entryNames,
  namesWithDigest,
  taggedEntries,
  totalsOfName,
  type ListedEntry,
} from '../../mirror/store/listing.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { Content } from '../../storage/files/content.ts';
import { nameQuery, placeOf, storedNames, takeFrom } from '../../mirror/store/words.ts';
import { mirroredDownloads } from '../../usage/mirrored.ts';
import type { Descriptor } from '../format/manifest.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import { naturalKey } from '../hosted/natural-order.ts';
import { claimsAmong } from '../hosted/repositories.ts';
import { imageBytesOf, manifestTypeOf } from '../mirrored/image-entries.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { readParsedList, referrerLists } from '../mirrored/parsed-lists.ts';
import { listedName, type UpstreamRepository } from '../mirrored/upstream-repository.ts';
import {
  maxAliases,
  tagsShown,
  type DescribedManifest,
  type FoundRepository,
  type ImageList,
  type ListedManifest,
  type ListedTag,
  type RepositorySummary,
  type StoredRepository,
  type TagQuery,
} from './repository.ts';

/** Names read in one query; some of them may be hidden because the account hosts them. */
const namesAtATime = 200;
/** Most tags of a repository that are sorted; further ones are not listed. */
const maxTags = 10_000;
/** Most tags of one manifest that are shown. */
const maxTagsOfManifest = 100;

interface MirroredParts {
  database: Database;
  blobs: BlobStore;
  mirrors: AccountViews<ImageMirror>;
  now: () => number;
}

/** The stored images of the mirror. An account sees those of the upstreams that serve it. */
export class MirroredImages implements ImageList {
  readonly origin = 'mirrored';
  readonly #parts: MirroredParts;

  constructor(parts: MirroredParts) {
    this.#parts = parts;
  }

  async list(accountId: number, limit: number, after: string, only?: NameSet, tags = tagsShown) {
    const found: RepositorySummary[] = [];
    const { database, mirrors } = this.#parts;
    const mirror = await mirrors.of(accountId);
    // No upstream's name contains a slash, so sorted by prefix the names of two upstreams never mix.
    const prefixes = mirror.upstreams.map((upstream) => ({ upstream, prefix: `${upstream.name}/` }));
    for (const { upstream, prefix } of prefixes.sort((a, b) => (a.prefix < b.prefix ? -1 : 1))) {
      if (after > prefix && !after.startsWith(prefix)) continue;
      const first = after.startsWith(prefix) ? after.slice(prefix.length) : '';
      const selection = { kind: 'manifest', upstreams: [upstream.id] };
      const read = (name: string) => entryNames(database, selection, name, namesAtATime);
      for await (const names of pagesOf(first, namesAtATime, read, String)) {
        for (const name of await this.#visible(mirror, accountId, prefix, names, only)) {
          if (found.length === limit) return found;
          found.push(await this.repository(accountId, mirror, { upstream, name }).withTags(tags));
        }
      }
    }
    return found;
  }

  /** A text that begins with an upstream's name and a slash finds only what is mirrored from it. */
  async find(
    accountId: number,
    text: string,
    limit: number,
    after: string,
    only?: NameSet,
  ): Promise<FoundRepository[]> {
    const { database, mirrors } = this.#parts;
    const mirror = await mirrors.of(accountId);
    if (isDigest(text.trim())) return this.#withDigest(accountId, mirror, text.trim() as Digest, after, only);
    const named = mirror.upstreams.find(({ name }) => text.trim().toLowerCase().startsWith(`${name}/`));
    const query = nameQuery(named ? text.trim().slice(named.name.length + 1) : text);
    if (!query) return [];
    const upstreams = new Map((named ? [named] : mirror.upstreams).map((each) => [each.id, each]));
    const options = { upstreams: [...upstreams.keys()], place: placeOf(after) };
    const found = await takeFrom(storedNames(database, 'manifest', query, options), limit, async (rows) => {
      const visible = new Set<string>();
      for (const [id, some] of Map.groupBy(rows, (each) => each.upstream)) {
        const prefix = `${upstreams.get(id)!.name}/`;
        const own = some.map(({ name }) => name);
        for (const name of await this.#visible(mirror, accountId, prefix, own, only)) visible.add(prefix + name);
      }
      return rows
        .map(({ suffix, upstream: id, name }) => ({
          position: JSON.stringify([suffix, id, name]),
          name: listedName({ upstream: upstreams.get(id)!, name }),
          upstream: upstreams.get(id)!.name,
        }))
        .filter(({ name }) => visible.has(name));
    });
    const names = found.map(({ name }) => name);
    const downloadsOf = await mirroredDownloads(database, accountId, 'container', names);
    return found.map((each) => ({ ...each, pulls: downloadsOf(each.name).total }));
  }

  /**
   * The names under which the history of an image is recorded, as the account hosts it and as its upstream has it. A token with
   * name patterns gets those that it may read, because one spelling can mean names that are recorded apart. Throws
   * `NameDenied` if it may read none of them.
   */
  async historyOwners(principal: Principal, name: string): Promise<(NameOwner | MirroredOwner)[]> {
    const accountId = ownerOf(principal, 'container', name);
    const only = principal.names?.of('container');
    const mirror = await this.#parts.mirrors.of(accountId);
    const { hosted, place } = mirror.names.locate(name, undefined);
    const mirrored = place ? mirror.names.namesOf(place) : [];
    allow(principal, 'read', 'container', [...hosted, ...mirrored]);
    const owners: (NameOwner | MirroredOwner)[] = hosted
      .filter((each) => !only || only.includes(each))
      .map((each) => ({ accountId, upstream: '', name: each }));
    if (!place || (only && !mirrored.some((each) => only.includes(each)))) return owners;
    const { upstream } = place;
    const listed: MirroredOwner['listed'] = (entries) => mirror.listedEntries(place, entries);
    return [...owners, { accountId: 0, upstream: upstream.id, name: place.name, upstreamName: upstream.name, listed }];
  }

  repository(accountId: number, mirror: ImageMirror, place: UpstreamRepository): MirroredRepository {
    return new MirroredRepository(this.#parts, accountId, mirror, place);
  }

  /** The stored repositories with this manifest, on one page: few have the same. */
  async #withDigest(accountId: number, mirror: ImageMirror, digest: Digest, after: string, only?: NameSet) {
    if (after !== '') return [];
    const found: FoundRepository[] = [];
    for (const upstream of mirror.upstreams) {
      const names = await namesWithDigest(this.#parts.database, { upstream: upstream.id, kind: 'manifest' }, digest);
      for (const name of await this.#visible(mirror, accountId, `${upstream.name}/`, names, only)) {
        if ((await mirror.listed({ upstream, name }, [digest], String)).length === 0) continue;
        const listed = listedName({ upstream, name });
        found.push({ position: listed, name: listed, upstream: upstream.name, pulls: 0 });
      }
    }
    return found;
  }

  /** Names that the account can pull: not hosted by it under any spelling, and allowed at the upstream by the settings. */
  async #visible(
    mirror: ImageMirror,
    accountId: number,
    prefix: string,
    names: readonly string[],
    only: NameSet | undefined,
  ): Promise<string[]> {
    const places = names.map((name) => ({ name, ...mirror.names.locate(prefix + name, undefined) }));
    const claimed = await claimsAmong(
      this.#parts.database,
      accountId,
      places.flatMap(({ hosted }) => hosted),
    );
    return places
      .filter(({ place, hosted }) => place && !hosted.some((spelling) => claimed.get(spelling)))
      .filter(({ place }) => !only || mirror.names.namesOf(place!).some((each) => only.includes(each)))
      .map(({ name }) => name);
  }
}

class MirroredRepository implements StoredRepository {
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
    const totals = await totalsOfName(database, upstream.id, ['manifest', 'blob'], name);
    return {
      name: this.name,
      upstream: this.upstream,
      sizeBytes: totals.bytes,
      tagCount: totals.tags,
      pullCount: (await this.#downloads()).total,
      lastPulledAt: totals.usedAt,
      tags: tagged.map((entry) => {
        const { pullCount: _pullCount, lastPulledAt: _lastPulledAt, ...row } = rowOf(entry);
        return { ...row, name: entry.reference };
      }),
    };
  }

  async #tagged(limit: number): Promise<readonly ListedEntry[]> {
    const { upstream, name } = this.#place;
    const selection = { kind: 'manifest', upstream: upstream.id };
    return this.#mirror.listedEntries(this.#place, await taggedEntries(this.#parts.database, selection, name, limit));
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

  async tags({ text, order }: TagQuery, limit: number, after: ListedTag['key'] | undefined): Promise<ListedTag[]> {
    const sign = order === 'asc' ? 1 : -1;
    const sortKey = ({ reference, storedAt }: ListedEntry) => (order === 'newest' ? storedAt : naturalKey(reference));
    const tagged = await this.#tagged(maxTags);
    const byDigest = Map.groupBy(tagged, ({ digest }) => digest);
    return tagged
      .map((entry) => ({ entry, key: [sortKey(entry), entry.reference] as const }))
      .filter(({ key }) => key[1].toLowerCase().includes(text) && (!after || sign * compare(key, after) > 0))
      .sort((a, b) => sign * compare(a.key, b.key))
      .slice(0, limit)
      .map(({ entry, key }) => ({
        ...rowOf(entry),
        key,
        name: entry.reference,
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
    return { ...rowOf({ ...entry, usedAt: null }), tags, indexes: [] };
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
      const list = await readParsedList({ metadata, content, complete: Promise.resolve(metadata) }, referrerLists);
      return await this.#mirror.listed(this.#place, list, (each) => each.digest);
    } catch (error) {
      if (isDomainError(error)) return undefined;
      throw error;
    }
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
    for (const tag of await mirror.tagsOf(place, digest)) await mirror.forgetTag(place, tag, async () => undefined);
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
