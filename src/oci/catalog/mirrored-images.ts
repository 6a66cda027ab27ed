import { pagesOf } from '../../runtime/pages.ts';
import { allow } from '../../accounts/allow.ts';
import type { NameSet } from '../../accounts/names.ts';
import { ownerOf } from '../../accounts/owner.ts';
import type { Principal } from '../../accounts/principal.ts';
import type { MirroredOwner, NameOwner } from '../../history/history.ts';
import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { recordEvent } from '../../events/record.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import { entryNames, taggedEntries, totalsOfName, type ListedEntry } from '../../mirror/store/listing.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { nameQuery, placeOf, storedNames, takeFrom } from '../../mirror/store/words.ts';
import { mirroredDownloads } from '../../usage/mirrored.ts';
import { tagsShown, type TagSummary } from './images.ts';
import { claimsAmong } from '../hosted/repositories.ts';
import { imageBytesOf, manifestTypeOf } from '../mirrored/image-entries.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { listedName, type UpstreamRepository } from '../mirrored/upstream-repository.ts';

/** A repository with mirrored content. Its name is the one by which a client pulls it: `<upstream>/<name>`. */
export interface MirroredImageSummary {
  name: string;
  upstream: string;
  /** The size of its distinct stored blobs and manifests. */
  sizeBytes: number;
  tagCount: number;
  pullCount: number;
  lastPulledAt: number;
  /** In byte order, at most as many as the caller wants. */
  tags: TagSummary[];
}

/** Names read in one query; some of them may be hidden because the account hosts them. */
const namesAtATime = 200;

/** The stored images of the mirror, for the management API. An account sees those of the upstreams that serve it. */
export class MirroredImages {
  readonly #database: Database;
  readonly #mirrors: AccountViews<ImageMirror>;
  readonly #now: () => number;

  constructor(database: Database, mirrors: AccountViews<ImageMirror>, now: () => number) {
    this.#database = database;
    this.#mirrors = mirrors;
    this.#now = now;
  }

  /**
   * Up to `limit` repositories that the account can pull from the mirror, by name, after the name `cursor`, with up to `tags`
   * tags each; `only` of these repositories if given.
   */
  async list(
    accountId: number,
    limit: number,
    cursor = '',
    only?: NameSet,
    tags = tagsShown,
  ): Promise<MirroredImageSummary[]> {
    const found: MirroredImageSummary[] = [];
    const mirror = await this.#mirrors.of(accountId);
    // No upstream's name contains a slash, so sorted by prefix the names of two upstreams never mix.
    const prefixes = mirror.upstreams.map((upstream) => ({ upstream, prefix: `${upstream.name}/` }));
    for (const { upstream, prefix } of prefixes.sort((a, b) => (a.prefix < b.prefix ? -1 : 1))) {
      if (cursor > prefix && !cursor.startsWith(prefix)) continue;
      const first = cursor.startsWith(prefix) ? cursor.slice(prefix.length) : '';
      const selection = { kind: 'manifest', upstreams: [upstream.id] };
      const read = (after: string) => entryNames(this.#database, selection, after, namesAtATime);
      for await (const names of pagesOf(first, namesAtATime, read, String)) {
        for (const name of await this.#visible(mirror, accountId, prefix, names, only)) {
          if (found.length === limit) return found;
          found.push(await this.#summary(accountId, { upstream, name }, tags));
        }
      }
    }
    return found;
  }

  /**
   * Up to `limit` repositories that the account can pull from the mirror and whose name matches `text`, after a position;
   * `only` of these if given. A text that begins with an upstream's name and a slash finds only what is mirrored from it.
   */
  async find(
    accountId: number,
    text: string,
    limit: number,
    after: string,
    only?: NameSet,
  ): Promise<{ position: string; name: string; upstream: string; pulls: number }[]> {
    const mirror = await this.#mirrors.of(accountId);
    const named = mirror.upstreams.find(({ name }) => text.trim().toLowerCase().startsWith(`${name}/`));
    const query = nameQuery(named ? text.trim().slice(named.name.length + 1) : text);
    if (!query) return [];
    const upstreams = new Map((named ? [named] : mirror.upstreams).map((each) => [each.id, each]));
    const options = { upstreams: [...upstreams.keys()], place: placeOf(after) };
    const found = await takeFrom(storedNames(this.#database, 'manifest', query, options), limit, async (rows) => {
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
    const downloadsOf = await mirroredDownloads(this.#database, accountId, 'container', names);
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
    const mirror = await this.#mirrors.of(accountId);
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

  /** One repository without its tags; undefined if nothing of it is stored. */
  async get(accountId: number, place: UpstreamRepository): Promise<MirroredImageSummary | undefined> {
    const names = await entryNames(this.#database, namedOnly(place.upstream, place.name), '', 1);
    return names.length === 0 ? undefined : this.#summary(accountId, place, 0);
  }

  /**
   * Drops a mirrored tag, but not its manifest. Resolves to whether the account could see the tag. If it could, calls
   * `mayDelete` first, which throws if the principal may not delete what all accounts share.
   */
  async deleteTag(accountId: number, place: UpstreamRepository, tag: string, mayDelete: () => void): Promise<boolean> {
    const mirror = await this.#mirrors.of(accountId);
    if (!(await mirror.isStored(place, 'manifest', tag))) return false;
    mayDelete();
    return mirror.forgetTag(place, tag, (tx) => {
      const subject = { kind: 'container', name: listedName(place), reference: tag } as const;
      const details = { origin: 'mirrored', upstream: place.upstream.name };
      return recordEvent(tx, { type: 'tag.deleted', accountId, subject, details }, this.#now());
    });
  }

  /** As `deleteTag`, for a manifest with its tags. */
  async deleteManifest(
    accountId: number,
    place: UpstreamRepository,
    digest: Digest,
    mayDelete: () => void,
  ): Promise<boolean> {
    const mirror = await this.#mirrors.of(accountId);
    if (!(await mirror.isStored(place, 'manifest', digest))) return false;
    mayDelete();
    for (const tag of await mirror.tagsOf(place, digest)) await mirror.forgetTag(place, tag, async () => undefined);
    return mirror.forgetTag(place, digest, (tx) => {
      const subject = { kind: 'container', name: listedName(place), reference: digest } as const;
      const details = { origin: 'mirrored', upstream: place.upstream.name };
      return recordEvent(tx, { type: 'manifest.deleted', accountId, subject, details }, this.#now());
    });
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
      this.#database,
      accountId,
      places.flatMap(({ hosted }) => hosted),
    );
    return places
      .filter(({ place, hosted }) => place && !hosted.some((spelling) => claimed.get(spelling)))
      .filter(({ place }) => !only || mirror.names.namesOf(place!).some((each) => only.includes(each)))
      .map(({ name }) => name);
  }

  async #summary(accountId: number, place: UpstreamRepository, limit: number): Promise<MirroredImageSummary> {
    const { upstream, name } = place;
    const { id } = upstream;
    const tagged =
      limit > 0 ? await taggedEntries(this.#database, { kind: 'manifest', upstream: id }, name, limit) : [];
    const totals = await totalsOfName(this.#database, id, ['manifest', 'blob'], name);
    const tags = await (await this.#mirrors.of(accountId)).listedEntries(place, tagged);
    const listed = listedName(place);
    const downloadsOf = await mirroredDownloads(this.#database, accountId, 'container', [listed]);
    return {
      name: listed,
      upstream: upstream.name,
      sizeBytes: totals.bytes,
      tagCount: totals.tags,
      pullCount: downloadsOf(listed).total,
      lastPulledAt: totals.usedAt,
      tags: tags.map(summaryOf),
    };
  }
}

function summaryOf(entry: ListedEntry): TagSummary {
  return {
    name: entry.reference,
    digest: entry.digest,
    mediaType: manifestTypeOf(entry),
    sizeBytes: imageBytesOf(entry),
    updatedAt: entry.storedAt,
  };
}

/** Selects the manifests of one repository. */
function namedOnly({ id }: Upstream, name: string) {
  return { kind: 'manifest', upstreams: [id], among: { sql: 'name = ?', values: [name] } };
}
