import { digestOf, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pause, withPauses } from '../../runtime/event-loop.ts';
import type { Served } from '../../http/cache-status.ts';
import type { EntryMetadata } from '../../mirror/store/entries.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { UpstreamPolicy } from '../../mirror/policy/upstream-policy.ts';
import { contentOf, type Content } from '../../storage/files/content.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { claimedAmong } from '../hosted/claims.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { fileTypes, openFile, type FileKind } from '../hosted/files.ts';
import { withVersions } from '../format/merge.ts';
import { readPart } from '../format/nupkg.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { listPage, listPages, listSizes, listVersionKeys, revisionOf } from '../hosted/versions.ts';
import {
  fitIndex,
  paged,
  pagedInline,
  type RegisteredPage,
  type RegisteredVersion,
  type SizedVersion,
} from '../format/pages.ts';
import type { FeedView, FeedViews } from '../upstream/feed-view.ts';
import { statedOf } from '../upstream/package-dates.ts';
import type { Owner, UpstreamDocument } from '../upstream/package-mirror.ts';
import type { SidecarKind } from '../upstream/upstream-files.ts';
import { tellsPrivateId } from '../search/private-words.ts';
import { parseVersion, type Version } from '../format/version.ts';

/** A value and its source. */
export interface Sourced<T> {
  served: Served;
  value: T;
}

/** A file of a version. The caller closes its content. */
interface SourceFile {
  served: Served;
  content: Content;
  /** Unknown while the file arrives from an upstream. */
  digest: Digest | undefined;
  type: string;
}

interface PackageSourceParts {
  feed: FeedContext;
  views: FeedViews;
  /** For what is the same for every account. */
  policy: UpstreamPolicy;
  /** Hosted versions that were published later are left out. The views leave out those of upstreams. */
  until?: number;
  /** Whether no upstream is asked. */
  isHostedOnly?: boolean;
  /** The same without upstreams, for those with whom an account shares what it hosts. */
  hostedOnly?: PackageSource;
}

/**
 * Hosted and upstream packages together. A claimed id is served from hosted versions only; a claimed or reserved id is
 * never sent upstream. A merged id has hosted and upstream versions; of two equal versions the hosted one is served.
 */
export class PackageSource {
  readonly #parts: PackageSourceParts;

  constructor(parts: PackageSourceParts) {
    this.#parts = parts;
  }

  /** The same without upstreams. */
  get hostedOnly(): PackageSource {
    return this.#parts.hostedOnly!;
  }

  /** Changes with every change to the hosted versions of an id. Undefined if the account does not claim the id. */
  revisionOf(accountId: number, id: string): Promise<string | undefined> {
    return revisionOf(this.#parts.feed.database, accountId, id);
  }

  /** Whether upstream versions of an id are served together with the hosted ones. */
  isMerged(id: string): boolean {
    return !this.#parts.isHostedOnly && this.#parts.policy.isMerged(id);
  }

  /**
   * The keys of all versions, in order; undefined if there is no such package. `claimed` is whether the account claims
   * the id, if the caller knows it already.
   */
  async versionKeys(accountId: number, id: string, claimed?: boolean): Promise<Sourced<readonly string[]> | undefined> {
    const { feed, until } = this.#parts;
    const { mirror } = await this.#viewOf(accountId);
    claimed ??= await this.#claims(accountId, id);
    const hosted = claimed ? await listVersionKeys(feed.database, accountId, id, until) : [];
    if (!this.#mayAsk(mirror, id, claimed)) return hostedUnlessEmpty(hosted);
    const found = await unlessHosted(hosted, () => mirror.versions(id));
    if (!found || found.value.length === 0) return hostedUnlessEmpty(hosted);
    if (hosted.length === 0) return { served: found.outcome, value: found.value };
    return { served: found.outcome, value: await withVersions(found.value, hosted, String) };
  }

  /** One file of a version; undefined if there is none. */
  async openFile(accountId: number, id: string, version: string, kind: FileKind): Promise<SourceFile | undefined> {
    const hosted = await openFile(this.#parts.feed, accountId, id, version, kind, this.#parts.until);
    if (hosted) return { served: 'hosted', ...hosted };
    const key = keyOfVersion(version);
    const view = await this.#viewOf(accountId);
    if (key === undefined || !this.#mayAsk(view.mirror, id, await this.#claims(accountId, id))) return undefined;
    // A file that a hosted version does not have is not taken from the upstream's version of the same number.
    if ((await this.#hostedOfMerged(accountId, id)).has(key)) return undefined;
    return kind === 'nupkg' ? this.#openNupkg(view, id, key) : this.#openSidecar(view, id, key, kind);
  }

  /** The pages of a registration; undefined if there is no such package. `claimed` is as for `versionKeys`. */
  async pages(
    accountId: number,
    id: string,
    semVer2: boolean,
    claimed?: boolean,
  ): Promise<Sourced<RegisteredPage[]> | undefined> {
    const { feed, until } = this.#parts;
    const { mirror, registrations } = await this.#viewOf(accountId);
    claimed ??= await this.#claims(accountId, id);
    if (!this.#mayAsk(mirror, id, claimed)) {
      const hosted = claimed ? await listPages(feed.database, accountId, id, semVer2, until) : undefined;
      return hosted && { served: 'hosted', value: hosted };
    }
    if ((await this.#hostedOfMerged(accountId, id)).size > 0) return this.#mergedPages(accountId, id, semVer2);
    const owner = await mirror.owner(id);
    const found = owner && (await registrations.pages(owner, packageKey(id), semVer2));
    return found && { served: found.outcome, value: found.value };
  }

  /**
   * The versions of a registration between the keys `lower` and `upper`, both included; undefined if there are none.
   * Throws `Invalid` if they are more than a page can contain.
   */
  async versions(
    accountId: number,
    id: string,
    semVer2: boolean,
    lower: string,
    upper: string,
  ): Promise<Sourced<RegisteredVersion[]> | undefined> {
    const claimed = await this.#claims(accountId, id);
    const { feed, until } = this.#parts;
    const hosted = claimed ? await listPage(feed.database, accountId, id, semVer2, lower, upper, until) : [];
    const { mirror } = await this.#viewOf(accountId);
    if (!this.#mayAsk(mirror, id, claimed)) return hostedUnlessEmpty(hosted);
    const bounds = [parseVersion(lower), parseVersion(upper)] as const;
    const found = await unlessHosted(hosted, () => this.#upstreamVersions(accountId, id, semVer2, bounds));
    if (!found || found.value.length === 0) return hostedUnlessEmpty(hosted);
    return { served: found.outcome, value: await withVersions(found.value, hosted, keyOfRegistered) };
  }

  /**
   * The keys of those `ids` for which `upstream` must not be used, because they are claimed or another upstream's. With
   * `admitted`, it may be used for merged ids, also if they are claimed.
   */
  async closedAmong(
    accountId: number,
    ids: readonly string[],
    upstream: Upstream,
    { admitted }: { admitted: boolean },
  ): Promise<Set<string>> {
    const { feed } = this.#parts;
    const { mirror } = await this.#viewOf(accountId);
    const closed = await claimedAmong(feed.database, accountId, ids);
    for (const id of ids) {
      await pause();
      if (!mirror.origin.candidates(id).includes(upstream)) closed.add(packageKey(id));
      else if (admitted && mirror.origin.isMerged(id)) closed.delete(packageKey(id));
    }
    return closed;
  }

  /** Whether text that a client typed would tell an upstream a hosted or reserved id, of those that count. */
  tellsPrivateId(accountId: number, text: string, among?: Parameters<typeof tellsPrivateId>[4]): Promise<boolean> {
    const { feed, policy } = this.#parts;
    return tellsPrivateId(feed.database, policy, accountId, text, among);
  }

  /** The upstreams that may be asked for an id, in order. None for a claimed id, merged or not. */
  async candidates(accountId: number, id: string): Promise<Upstream[]> {
    if (await this.#claims(accountId, id)) return [];
    return this.#parts.isHostedOnly ? [] : (await this.#viewOf(accountId)).mirror.origin.candidates(id);
  }

  /** Whether an id can only be served from upstreams: the account does not claim it, and an upstream may be asked. */
  async isUpstreamOnly(accountId: number, id: string): Promise<boolean> {
    return (await this.candidates(accountId, id)).length > 0;
  }

  /** The upstream to ask for an id; undefined if there is none, or if the id is claimed and not merged. */
  async ownerFor(accountId: number, id: string): Promise<Owner | undefined> {
    const { mirror } = await this.#viewOf(accountId);
    return this.#mayAsk(mirror, id, await this.#claims(accountId, id)) ? mirror.owner(id) : undefined;
  }

  /** The listed hosted versions and the upstream's `others`, both in order. Unlisted hosted versions hide equal `others`. */
  async merged(
    accountId: number,
    id: string,
    hosted: readonly string[],
    others: readonly string[],
  ): Promise<readonly string[]> {
    const keys = await this.#hostedOfMerged(accountId, id);
    if (keys.size === 0) return others;
    const further: string[] = [];
    for (const each of others) {
      await pause();
      if (!keys.has(keyOfVersion(each) ?? '')) further.push(each);
    }
    return withVersions(further, hosted, (each) => keyOfVersion(each)!);
  }

  /** Whether an upstream may be asked for this id. */
  #mayAsk({ origin }: FeedView['mirror'], id: string, claimed: boolean): boolean {
    return !this.#parts.isHostedOnly && origin.candidates(id).length > 0 && (!claimed || origin.isMerged(id));
  }

  /** Whether the account claims an id: it hosts a version, or once hosted one. */
  async #claims(accountId: number, id: string): Promise<boolean> {
    return (await this.revisionOf(accountId, id)) !== undefined;
  }

  #viewOf(accountId: number): FeedView | Promise<FeedView> {
    return this.#parts.views.of(accountId);
  }

  /** The keys of the hosted versions of a merged id; empty for another id. */
  async #hostedOfMerged(accountId: number, id: string): Promise<Set<string>> {
    if (!this.isMerged(id)) return new Set();
    const { feed, until } = this.#parts;
    return new Set(await listVersionKeys(feed.database, accountId, id, until));
  }

  /** The upstream's versions, without those that are also hosted, even if this client does not see the hosted ones. */
  async #upstreamVersions(
    accountId: number,
    id: string,
    semVer2: boolean,
    [lower, upper]: readonly [Version?, Version?],
  ): Promise<UpstreamDocument<RegisteredVersion[]> | undefined> {
    const { registrations } = await this.#viewOf(accountId);
    return this.#notHosted(accountId, id, (owner) =>
      registrations.versions(owner, packageKey(id), semVer2, lower, upper),
    );
  }

  async #notHosted<T extends SizedVersion>(
    accountId: number,
    id: string,
    read: (owner: Owner) => Promise<UpstreamDocument<T[]> | undefined>,
  ): Promise<UpstreamDocument<T[]> | undefined> {
    const { mirror } = await this.#viewOf(accountId);
    const owner = await mirror.owner(id);
    const found = owner && (await read(owner));
    if (!found) return undefined;
    const hosted = await this.#hostedOfMerged(accountId, id);
    const others: T[] = [];
    for await (const each of withPauses(found.value)) if (!hosted.has(keyOfRegistered(each))) others.push(each);
    return { ...found, value: others };
  }

  /** The metadata is read only if it fits into the index; otherwise each page reads its own. */
  async #mergedPages(accountId: number, id: string, semVer2: boolean): Promise<Sourced<RegisteredPage[]> | undefined> {
    const { feed, until } = this.#parts;
    const { registrations } = await this.#viewOf(accountId);
    const hosted = await listSizes(feed.database, accountId, id, semVer2, until);
    const found = await unlessHosted(hosted, () =>
      this.#notHosted(accountId, id, (owner) => registrations.sizes(owner, packageKey(id), semVer2)),
    );
    const sizes = await withVersions(found?.value ?? [], hosted, keyOfRegistered);
    const [first, last] = [sizes[0], sizes.at(-1)];
    if (!first || !last) return undefined;
    if (!fitIndex(sizes)) return { served: found?.outcome ?? 'hosted', value: paged(sizes) };
    const all = await this.versions(accountId, id, semVer2, keyOfRegistered(first), keyOfRegistered(last));
    return all && { served: all.served, value: pagedInline(all.value) };
  }

  async #openNupkg({ mirror, registrations }: FeedView, id: string, version: string): Promise<SourceFile | undefined> {
    const entry = await mirror.openNupkg(id, version, (owner) =>
      statedOf(mirror, registrations, owner, packageKey(id), version),
    );
    if (!entry) return undefined;
    const { outcome, content, metadata } = entry;
    return { served: outcome, content, digest: metadata?.digest, type: fileTypes.nupkg };
  }

  /** Reads the file from the stored nupkg, if there is one; otherwise asks the upstream. */
  async #openSidecar(
    { mirror }: FeedView,
    id: string,
    version: string,
    kind: SidecarKind,
  ): Promise<SourceFile | undefined> {
    const stored = await mirror.storedNupkg(id, version);
    const inside = stored && (await this.#readInside(stored.nupkg, kind));
    if (inside) {
      const { bytes, imageType } = inside;
      const type = kind === 'icon' ? imageType! : fileTypes[kind];
      return { served: stored.outcome, content: contentOf(bytes), digest: digestOf(bytes), type };
    }
    const entry = await mirror.openSidecar(id, version, kind);
    if (!entry) return undefined;
    const { outcome, content, metadata } = entry;
    const type = kind === 'icon' ? (metadata?.attributes['type'] ?? fileTypes.nupkg) : fileTypes[kind];
    return { served: outcome, content, digest: metadata?.digest, type };
  }

  async #readInside({ digest, size }: EntryMetadata, kind: SidecarKind): ReturnType<typeof readPart> {
    try {
      return await readPart(() => this.#parts.feed.blobs.open(digest, size), kind);
    } catch (error) {
      if (isDomainError(error)) return undefined;
      throw error;
    }
  }
}

/** If the upstream fails, resolves to undefined when there are hosted versions to serve. */
async function unlessHosted<T>(hosted: readonly unknown[], ask: () => Promise<T | undefined>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (hosted.length === 0 || !isUpstreamFailure(error)) throw error;
    return undefined;
  }
}

function hostedUnlessEmpty<T>(value: T[]): Sourced<T[]> | undefined {
  return value.length > 0 ? { served: 'hosted', value } : undefined;
}

function keyOfRegistered({ version }: SizedVersion): string {
  return version.toLowerCase();
}
