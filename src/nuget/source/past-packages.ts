import { LRUCache } from 'lru-cache';
import { dayText } from '../../runtime/past-day.ts';
import type { Judge } from '../../mirror/policy/admission.ts';
import { withPauses } from '../../runtime/event-loop.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { firstPublished } from '../hosted/versions.ts';
import { existedAt, existenceOf } from '../upstream/existence.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import type { PackageSource } from './package-source.ts';

interface PastParts {
  feed: FeedContext;
  /** All packages of today. */
  source: PackageSource;
  views: FeedViews;
  /** The packages that were published by a time, without what a judge holds. */
  open: (until: number, judge: Judge) => PackageSource;
}

/** Days whose sources are kept. They keep no content. */
const maxDays = 100;

/**
 * The packages that could be seen at a time: of those that clients get today, the versions that existed then. What is claimed, held
 * and refused is that of today.
 */
export class PastPackages {
  readonly #parts: PastParts;
  readonly #sources = new LRUCache<number, PackageSource>({ max: maxDays });

  constructor(parts: PastParts) {
    this.#parts = parts;
  }

  /** The packages as they were at `until`. */
  at(until: number): PackageSource {
    const known = this.#sources.get(until);
    if (known) return known;
    const source = this.#parts.open(until, existedAt(until, this.#parts.feed.now));
    this.#sources.set(until, source);
    return source;
  }

  /** The day since when a package, or one version of it, is known. Undefined if clients do not get it today either. */
  async knownSince(
    { accountId, isShared }: { accountId: number; isShared: boolean },
    id: string,
    version: string | undefined,
  ): Promise<string | undefined> {
    const { feed, views } = this.#parts;
    const source = isShared ? this.#parts.source.hostedOnly : this.#parts.source;
    const shown = await source.versionKeys(accountId, id);
    const key = version === undefined ? undefined : keyOfVersion(version);
    const keys = (shown?.value ?? []).filter((each) => version === undefined || each === key);
    if (keys.length === 0) return undefined;
    const hosted = await firstPublished(feed.database, accountId, id, key);
    let first = hosted ?? Infinity;
    const { mirror } = await views.of(accountId);
    const owner = hosted === undefined || source.isMerged(id) ? await mirror.owner(id) : undefined;
    if (owner) {
      const name = mirror.nameOf(owner.upstream, packageKey(id));
      const published = async () => name.facts.published?.(-Infinity);
      const since = await existenceOf(name, keys, feed.now(), published);
      for await (const each of withPauses(keys)) first = Math.min(first, since(each));
    }
    return first === Infinity ? undefined : dayText(first);
  }
}
