import type { NameSet } from '../accounts/names.ts';
import { placeholders, type Database } from '../database/database.ts';
import type { Digest } from '../digest.ts';
import type { Facts } from '../mirror/entries.ts';
import { mirroredDownloads } from '../usage/mirrored.ts';
import { tagsShown, type TagSummary } from './images.ts';
import { claimsAmong } from './repositories.ts';
import { imageBytesOf, manifestTypeOf, type ImageMirror } from './upstream.ts';

/** A repository of which something was mirrored, under the name by which a client pulls it: `<upstream>/<name>`. */
export interface MirroredSummary {
  name: string;
  upstream: string;
  /** Every distinct blob and manifest that is stored of it. */
  sizeBytes: number;
  tagCount: number;
  pullCount: number;
  lastPulledAt: number;
  /** In byte order, at most `tagsShown`. */
  tags: TagSummary[];
}

interface TagRow {
  reference: string;
  digest: Digest;
  content_type: string;
  size_bytes: number;
  attributes: string;
  stored_at: number;
}

/** Names read at a time: some may be hidden by what an account hosts. */
const namesAtATime = 200;
/** A digest has a colon and a tag has none. */
const isTag = "reference NOT LIKE '%:%'";

/** What the mirror has stored of images, for the management API. It is nobody's own, so every account sees it. */
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
    // A slash is in no upstream's name, so that the names of one never lie among those of another.
    const prefixes = this.#mirror.upstreams.map(({ name }) => `${name}/`).sort();
    for (const prefix of prefixes) {
      if (cursor > prefix && !cursor.startsWith(prefix)) continue;
      let after = cursor.startsWith(prefix) ? cursor.slice(prefix.length) : '';
      const upstream = prefix.slice(0, -1);
      for (;;) {
        const names = await this.#names(upstream, after);
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

  /** Drops a tag that was mirrored; its manifest stays. Resolves to whether the account could see it. */
  async deleteTag(accountId: number, name: string, tag: string): Promise<boolean> {
    const { hosted, place } = this.#mirror.locate(name, undefined);
    if (!place || [...(await claimsAmong(this.#database, accountId, hosted)).values()].some(Boolean)) return false;
    return this.#mirror.forgetTag(place, tag);
  }

  async #names(upstream: string, after: string): Promise<string[]> {
    const rows = await this.#database.select<{ name: string }>(
      `SELECT DISTINCT name FROM mirror_entries WHERE upstream = ? AND kind = 'manifest' AND name > ?
       ORDER BY name LIMIT ${namesAtATime}`,
      [upstream, after],
    );
    return rows.map(({ name }) => name);
  }

  /** Without what the account hosts under one of its names, and what is asked upstream no more. */
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
    const key = [name, upstream];
    const tags = await this.#database.select<TagRow>(
      `SELECT reference, digest, content_type, size_bytes, attributes, stored_at FROM mirror_entries
       WHERE kind = 'manifest' AND name = ? AND upstream = ? AND ${isTag} ORDER BY reference LIMIT ${tagsShown}`,
      key,
    );
    const uses = await this.#database.get<{ tags: number; used_at: number }>(
      `SELECT SUM(CASE WHEN ${isTag} THEN 1 ELSE 0 END) AS tags, MAX(used_at) AS used_at FROM mirror_entries
       WHERE kind = 'manifest' AND name = ? AND upstream = ?`,
      key,
    );
    const kinds = ['manifest', 'blob'];
    const stored = await this.#database.get<{ bytes: number | null }>(
      `SELECT SUM(size_bytes) AS bytes FROM (
         SELECT DISTINCT digest, size_bytes FROM mirror_entries
         WHERE kind IN (${placeholders(kinds)}) AND name = ? AND upstream = ?
       ) AS stored`,
      [...kinds, ...key],
    );
    const listed = `${upstream}/${name}`;
    const downloadsOf = await mirroredDownloads(this.#database, accountId, 'container', [listed]);
    return {
      name: listed,
      upstream,
      sizeBytes: stored?.bytes ?? 0,
      tagCount: uses?.tags ?? 0,
      pullCount: downloadsOf(listed).total,
      lastPulledAt: uses?.used_at ?? 0,
      tags: tags.map(summaryOf),
    };
  }
}

function summaryOf({ reference, digest, content_type, size_bytes, attributes, stored_at }: TagRow): TagSummary {
  const facts = { type: content_type, size: size_bytes, attributes: JSON.parse(attributes) as Facts['attributes'] };
  return {
    name: reference,
    digest,
    mediaType: manifestTypeOf(facts),
    sizeBytes: imageBytesOf(facts),
    updatedAt: stored_at,
  };
}
