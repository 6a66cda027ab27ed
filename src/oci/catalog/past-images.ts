import type { Database } from '../../database/database.ts';
import { firstSeen } from '../../history/history.ts';
import { tagAt, tagsAt } from '../../history/past-tags.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { DomainError } from '../../runtime/errors.ts';
import { dayText } from '../../runtime/past-day.ts';
import type { Reference } from '../format/reference.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import { nameUnknown } from '../hosted/repositories.ts';
import type { ReferrersQuery } from '../hosted/referrers.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { historyOwner } from './image-history.ts';
import type { ImageSource, LocatedRepository, ReadableImages } from './image-source.ts';

interface PastImagesParts {
  database: Database;
  mirrors: AccountViews<ImageMirror>;
  /** All images of today. */
  source: ImageSource;
}

/** Tags that are read before those are left out that were deleted, or that lists do not show. */
const tagsAtATime = 500;

/**
 * The images as they were at `until`: tags have the digests that they had then, and manifests that were seen later do not exist. What
 * clients may get of them is decided as today.
 */
export class PastImages implements ReadableImages {
  readonly #parts: PastImagesParts;
  readonly #until: number;

  constructor(parts: PastImagesParts, until: number) {
    this.#parts = parts;
    this.#until = until;
  }

  /** As `ImageSource.openManifest`. A message says since when the tag or manifest is known. */
  async openManifest(asked: LocatedRepository, reference: Reference) {
    const digest = reference.digest ?? (await this.#digestOf(asked, reference.tag));
    if (reference.digest !== undefined && !(await this.#existed(asked, digest))) {
      throw await this.#unknown(asked, reference);
    }
    return this.#parts.source.openManifest(asked, { digest });
  }

  /** Blobs have no history: clients know their digests from manifests. */
  openBlob(asked: LocatedRepository, digest: Digest, head?: boolean) {
    return this.#parts.source.openBlob(asked, digest, head);
  }

  /** Up to `limit` tags after `last`; of a mirrored repository those that were pulled here. Throws `NameUnknown`. */
  async listTags(asked: LocatedRepository, limit: number, last: string) {
    const owner = historyOwner(asked);
    if (!owner) throw nameUnknown(asked.name);
    const { database } = this.#parts;
    const tags: string[] = [];
    for (let after = last; tags.length <= limit;) {
      const some = await tagsAt(database, owner, this.#until, tagsAtATime, after);
      for (const { reference } of await this.#listed(asked, some)) tags.push(reference);
      if (some.length < tagsAtATime) break;
      after = some.at(-1)!.reference;
    }
    if (tags.length === 0 && (await tagsAt(database, owner, this.#until, 1, '')).length === 0) {
      throw nameUnknown(asked.name);
    }
    const served = asked.place ? ('hit' as const) : ('hosted' as const);
    return { served, items: tags.slice(0, limit), more: tags.length > limit };
  }

  /** A page of today's referrers without those that were seen later. */
  async listReferrers(asked: LocatedRepository, subject: Digest, query: ReferrersQuery) {
    const page = await this.#parts.source.listReferrers(asked, subject, query);
    const there = await this.#existing(
      asked,
      page.descriptors.map(({ digest }) => digest),
    );
    return { ...page, descriptors: page.descriptors.filter(({ digest }) => there.has(digest)) };
  }

  async #digestOf(asked: LocatedRepository, tag: string): Promise<Digest> {
    const owner = historyOwner(asked);
    const found = owner && (await tagAt(this.#parts.database, owner, tag, this.#until));
    if (!found || found.digest === '') throw await this.#unknown(asked, { tag });
    const digest = found.digest as Digest;
    const { accountId, place } = asked;
    const isServed = !place || (await (await this.#parts.mirrors.of(accountId)).servesPast(place, tag, digest));
    if (!isServed) throw manifestUnknown({ tag });
    return digest;
  }

  /** Whether a manifest was seen by then, or an image index of then names it: clients pull the images of an index when they need them. */
  async #existed(asked: LocatedRepository, digest: Digest): Promise<boolean> {
    const { accountId, place } = asked;
    if ((await this.#existing(asked, [digest])).has(digest)) return true;
    const indexes = place && (await (await this.#parts.mirrors.of(accountId)).indexesNaming(place, digest));
    return [...(indexes?.values() ?? [])].some(({ firstSeenAt = Infinity }) => firstSeenAt <= this.#until);
  }

  /** Those of `digests` that were seen by then. */
  async #existing(asked: LocatedRepository, digests: readonly Digest[]): Promise<ReadonlySet<Digest>> {
    const owner = historyOwner(asked);
    if (!owner) return new Set();
    const seen = await firstSeen(this.#parts.database, owner, 'manifest', digests);
    return new Set(digests.filter((each) => (seen.get(each) ?? Infinity) <= this.#until));
  }

  /** Those of `tags` that had not been deleted, and that lists may show. */
  async #listed<T extends { reference: string; digest: string }>({ accountId, place }: LocatedRepository, tags: T[]) {
    const there = tags.filter(({ digest }) => digest !== '');
    return place ? (await this.#parts.mirrors.of(accountId)).listedPast(place, there) : there;
  }

  /** `ManifestUnknown`, with the day since when it is known, unless it is held today. */
  async #unknown(asked: LocatedRepository, reference: Reference): Promise<DomainError> {
    const owner = historyOwner(asked);
    const [kind, text] =
      reference.tag === undefined ? (['manifest', reference.digest] as const) : (['tag', reference.tag] as const);
    const seenAt = owner && (await firstSeen(this.#parts.database, owner, kind, [text])).get(text);
    const shown = seenAt === undefined || seenAt <= this.#until ? [] : await this.#shownNow(asked, text);
    return manifestUnknown(
      reference,
      shown.length > 0 ? { since: dayText(seenAt!), date: dayText(this.#until) } : undefined,
    );
  }

  async #shownNow({ accountId, place }: LocatedRepository, reference: string): Promise<readonly string[]> {
    return place ? (await this.#parts.mirrors.of(accountId)).listed(place, [reference], String) : [reference];
  }
}
