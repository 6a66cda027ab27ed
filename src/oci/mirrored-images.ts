import type { NameSet } from '../accounts/names.ts';
import type { NameOwner } from '../history/history.ts';
import type { Database } from '../database/database.ts';
import { entryNames, taggedEntries, totalsOfName, type ListedEntry } from '../mirror/listing.ts';
import { mirroredDownloads } from '../usage/mirrored.ts';
import { tagsShown, type TagSummary } from './images.ts';
import { claimsAmong } from './repositories.ts';
import { imageBytesOf, manifestTypeOf, type ImageMirror } from './image-mirror.ts';

/** A repository with mirrored content. Its name is the one by which a client pulls it: `<upstream>/<name>`. */
export interface MirroredSummary {
  name: string;
  upstream: string;
  /** The size of its distinct stored blobs and manifests. */
  sizeBytes: number;
  tagCount: number;
  pullCount: number;
  lastPulledAt: number;
  /** In byte order, at most `tagsShown`. */
  tags: TagSummary[];
}

/** Names read in one query; some of them may be hidden because the account hosts them. */
const namesAtATime = 200;

/** The stored images of the mirror, for the management API. They belong to no account, so every account sees them. */
export class MirroredImages {
  readonly #database: Database;
  readonly #mirror: ImageMirror;

  constructor(database: Database, mirror: ImageMirror) {
    this.#database = database;
    this.#mirror = mirror;
  }

  /** Up to `limit` repositories that the account can pull from the mirror, by name, after the name `cursor`; `only` of these if given. */
  async list(accountId: number, limit: number, cursor = '', only?: NameSet): Promise<MirroredSummary[]> {
    const found: MirroredSummary[] = [];
    // No upstream's name contains a slash, so sorted by prefix the names of two upstreams never mix.
    const prefixes = this.#mirror.upstreams.map(({ name }) => `${name}/`).sort();
    for (const prefix of prefixes) {
      if (cursor > prefix && !cursor.startsWith(prefix)) continue;
      let after = cursor.startsWith(prefix) ? cursor.slice(prefix.length) : '';
      const upstream = prefix.slice(0, -1);
      for (;;) {
        const names = await entryNames(this.#database, { kind: 'manifest', upstream }, after, namesAtATime);
        for (const name of await this.#visible(accountId, prefix, names, only)) {
          if (found.length === limit) return found;
          found.push(await this.#summary(accountId, upstream, name));
        }
        if (names.length < namesAtATime) break;
        after = names.at(-1)!;
      }
    }
    return found;
  }

  /** The names under which the history of an image is recorded, as the account hosts it and as its upstream has it. */
  historyOwners(accountId: number, name: string): NameOwner[] {
    const { hosted, place } = this.#mirror.locate(name, undefined);
    const mirrored = place ? [{ accountId: 0, upstream: place.upstream.name, name: place.name }] : [];
    return [...hosted.map((each) => ({ accountId, upstream: '', name: each })), ...mirrored];
  }

  /**
   * Drops a mirrored tag, but not its manifest. Resolves to whether the account could see the tag. If it could, calls
   * `mayDelete` first, which throws if the principal may not delete what all accounts share.
   */
  async deleteTag(accountId: number, name: string, tag: string, mayDelete: () => void): Promise<boolean> {
    const { hosted, place } = this.#mirror.locate(name, undefined);
    if (!place || [...(await claimsAmong(this.#database, accountId, hosted)).values()].some(Boolean)) return false;
    if (!(await this.#mirror.isStored(place, 'manifest', tag))) return false;
    mayDelete();
    return this.#mirror.forgetTag(place, tag);
  }

  /** Names that the account can pull: not hosted by it under any spelling, and allowed at the upstream by the settings. */
  async #visible(
    accountId: number,
    prefix: string,
    names: readonly string[],
    only: NameSet | undefined,
  ): Promise<string[]> {
    const places = names.map((name) => ({ name, ...this.#mirror.locate(prefix + name, undefined) }));
    const claimed = await claimsAmong(
      this.#database,
      accountId,
      places.flatMap(({ hosted }) => hosted),
    );
    return places
      .filter(({ place, hosted }) => place && !hosted.some((spelling) => claimed.get(spelling)))
      .filter(({ place }) => !only || this.#mirror.namesOf(place!).some((each) => only.includes(each)))
      .map(({ name }) => name);
  }

  async #summary(accountId: number, upstream: string, name: string): Promise<MirroredSummary> {
    const tags = await taggedEntries(this.#database, { kind: 'manifest', upstream }, name, tagsShown);
    const totals = await totalsOfName(this.#database, upstream, ['manifest', 'blob'], name);
    const listed = `${upstream}/${name}`;
    const downloadsOf = await mirroredDownloads(this.#database, accountId, 'container', [listed]);
    return {
      name: listed,
      upstream,
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
