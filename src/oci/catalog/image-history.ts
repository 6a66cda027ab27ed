import type { Database } from '../../database/database.ts';
import { digestsOf, type NameOwner } from '../../history/history.ts';
import { tagMoves, type TagMove, type TagMovesRange } from '../../history/tag-moves.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { Descriptor } from '../format/manifest.ts';
import { describedManifests } from '../hosted/manifests.ts';
import { manifestTypeOf } from '../mirrored/image-entries.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import type { LocatedRepository } from './image-source.ts';

/** A page of a tag's history, and the line after which the next page starts. */
interface TagHistoryPage {
  descriptors: Descriptor[];
  next: number | undefined;
}

/** Lines that are read before those are left out that lists do not show. */
const linesAtATime = 100;

/** Which manifests the tags of a repository have had. Nothing is sent to an upstream. */
export class ImageHistory {
  readonly #database: Database;
  readonly #mirrors: AccountViews<ImageMirror>;

  constructor(database: Database, mirrors: AccountViews<ImageMirror>) {
    this.#database = database;
    this.#mirrors = mirrors;
  }

  /**
   * Up to `limit` lines of a tag, the latest first, also of a tag that was deleted. Lines of versions of this server that kept no
   * size are left out if the manifest is not stored any more.
   */
  async page(repository: LocatedRepository, tag: string, range: TagMovesRange, limit: number): Promise<TagHistoryPage> {
    const descriptors: Descriptor[] = [];
    const owner = historyOwner(repository);
    if (!owner || limit === 0) return { descriptors, next: undefined };
    let [moves, last]: [TagMove[], number | undefined] = [[], undefined];
    for await (const move of tagMoves(this.#database, owner, tag, range)) {
      if (descriptors.length + moves.length === limit) {
        descriptors.push(...(await this.#describe(repository, tag, moves)));
        moves = [];
        if (descriptors.length === limit) return { descriptors, next: last };
      }
      moves.push(move);
      last = move.id;
      if (moves.length === linesAtATime) {
        descriptors.push(...(await this.#describe(repository, tag, moves)));
        moves = [];
      }
    }
    descriptors.push(...(await this.#describe(repository, tag, moves)));
    return { descriptors, next: undefined };
  }

  /** Up to `limit` digests that a tag has had, the latest first. */
  async digestsOf(repository: LocatedRepository, tag: string, limit: number): Promise<string[]> {
    const owner = historyOwner(repository);
    return owner ? ((await digestsOf(this.#database, owner, [tag], limit)).get(tag) ?? []) : [];
  }

  /** Those of `moves` that lists show. */
  async #describe(repository: LocatedRepository, tag: string, moves: readonly TagMove[]): Promise<Descriptor[]> {
    const shown = await this.#listed(repository, tag, moves);
    const unknown = shown.filter(({ content }) => !content).map(({ digest }) => digest as Digest);
    const stored = unknown.length === 0 ? new Map() : await this.#stored(repository, unknown);
    return shown.flatMap(({ digest, content = stored.get(digest), seenAt, isDeletion }) =>
      content ? [descriptorOf(digest as Digest, content, seenAt, isDeletion)] : [],
    );
  }

  async #listed({ accountId, place }: LocatedRepository, tag: string, moves: readonly TagMove[]) {
    if (!place) return moves;
    const mirror = await this.#mirrors.of(accountId);
    return mirror.listedEntries(
      place,
      moves.map((each) => ({ ...each, reference: tag })),
    );
  }

  async #stored({ accountId, hosted, place }: LocatedRepository, digests: readonly Digest[]) {
    if (!place) return describedManifests(this.#database, accountId, hosted!, digests);
    const mirror = await this.#mirrors.of(accountId);
    const found = new Map<string, NonNullable<TagMove['content']>>();
    for (const digest of digests) {
      const stored = await mirror.stored(place, 'manifest', digest);
      if (stored) found.set(digest, { mediaType: manifestTypeOf(stored), size: stored.size });
    }
    return found;
  }
}

/** The name under which the history of a repository is recorded, at the place from which it is read; undefined if there is none. */
export function historyOwner({ accountId, hosted, place }: LocatedRepository): NameOwner | undefined {
  if (place) return { accountId: 0, upstream: place.upstream.id, name: place.name };
  return hosted === undefined ? undefined : { accountId, upstream: '', name: hosted };
}

/** As the draft of the extension says (distribution-spec, pull request 606). */
function descriptorOf(
  digest: Digest,
  { mediaType, size }: NonNullable<TagMove['content']>,
  seenAt: number,
  isDeletion: boolean,
): Descriptor {
  const annotations = {
    'org.opencontainers.distribution.tag.timestamp': new Date(seenAt).toISOString(),
    'org.opencontainers.distribution.tag.event': isDeletion ? 'deleted' : 'created',
  };
  return { mediaType, size, digest, annotations };
}
