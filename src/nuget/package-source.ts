import type { Database } from '../database/database.ts';
import { digestOf, type Digest } from '../digest.ts';
import { isDomainError } from '../errors.ts';
import type { Served } from '../http/cache-status.ts';
import type { EntryMetadata } from '../mirror/entries.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import { contentOf, type Content } from '../storage/content.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { claimedAmong } from './hosted/claims.ts';
import type { Feed } from './hosted/feed.ts';
import { fileTypes, type FileKind } from './hosted/files.ts';
import { readPart } from './format/nupkg.ts';
import { keyOfVersion, packageKey } from './hosted/packages.ts';
import {
  fitIndex,
  paged,
  pagedInline,
  type RegisteredPage,
  type RegisteredVersion,
  type SizedVersion,
} from './format/pages.ts';
import type { Owner, PackageMirror, UpstreamDocument } from './upstream/package-mirror.ts';
import type { SidecarKind } from './upstream/upstream-files.ts';
import type { UpstreamRegistrations } from './upstream/upstream-registration.ts';
import { parseVersion, sortKey, type Version } from './format/version.ts';

/** A value and how it was come by. */
export interface Sourced<T> {
  served: Served;
  value: T;
}

/** A file of a version; whoever holds it closes its content. */
export interface SourceFile {
  served: Served;
  content: Content;
  /** Unknown while the file is on its way from an upstream. */
  digest: Digest | undefined;
  type: string;
}

export interface SourceParts {
  database: Database;
  blobs: BlobStore;
  feed: Feed;
  mirror: PackageMirror;
  registrations: UpstreamRegistrations;
}

/**
 * Packages wherever they are. A hosted id is answered from what is hosted, and a claimed or reserved one is never asked
 * upstream; a merged id adds the upstream's versions to the hosted ones, which win.
 */
export class PackageSource {
  readonly #parts: SourceParts;

  constructor(parts: SourceParts) {
    this.#parts = parts;
  }

  /**
   * What the documents of a package depend on where they are made of hosted versions alone; undefined where there is no
   * such package, or an upstream's versions may be among them.
   */
  async revisionOf(accountId: number, id: string): Promise<string | undefined> {
    return this.#parts.mirror.origin.isMerged(id) ? undefined : this.#parts.feed.revisionOf(accountId, id);
  }

  /** The keys of all versions, in order; undefined when there is no such package. */
  async versionKeys(accountId: number, id: string): Promise<Sourced<string[]> | undefined> {
    const { feed, mirror } = this.#parts;
    const claimed = await this.#claims(accountId, id);
    const hosted = claimed ? await feed.listVersionKeys(accountId, id) : [];
    if (!this.#mayAsk(id, claimed)) return hostedUnlessEmpty(hosted);
    const found = await unlessHosted(hosted, () => mirror.versions(id));
    if (!found) return hostedUnlessEmpty(hosted);
    return { served: found.outcome, value: merge([...hosted, ...found.value], (key) => key) };
  }

  /** One file of a version; undefined when there is none such. */
  async openFile(accountId: number, id: string, version: string, kind: FileKind): Promise<SourceFile | undefined> {
    const hosted = await this.#parts.feed.openFile(accountId, id, version, kind);
    if (hosted) return { served: 'hosted', ...hosted };
    const key = keyOfVersion(version);
    if (key === undefined || !this.#mayAsk(id, await this.#claims(accountId, id))) return undefined;
    // What a hosted version of a merged id lacks is not made up for by its namesake.
    if ((await this.#hostedOfMerged(accountId, id)).has(key)) return undefined;
    return kind === 'nupkg' ? this.#openNupkg(id, key) : this.#openSidecar(id, key, kind);
  }

  /** The pages of a registration; undefined when there is no such package. */
  async pages(accountId: number, id: string, semVer2: boolean): Promise<Sourced<RegisteredPage[]> | undefined> {
    const { feed, mirror, registrations } = this.#parts;
    const claimed = await this.#claims(accountId, id);
    if (!this.#mayAsk(id, claimed)) {
      const hosted = claimed ? await feed.listPages(accountId, id, semVer2) : undefined;
      return hosted && { served: 'hosted', value: hosted };
    }
    if ((await this.#hostedOfMerged(accountId, id)).size > 0) return this.#mergedPages(accountId, id, semVer2);
    const owner = await mirror.owner(id);
    const found = owner && (await registrations.pages(owner, packageKey(id), semVer2));
    return found && { served: found.outcome, value: found.value };
  }

  /**
   * The versions of a registration from `lower` to `upper`, both keys and both included; undefined for none. Throws
   * `Invalid` for more than a page can hold.
   */
  async versions(
    accountId: number,
    id: string,
    semVer2: boolean,
    lower: string,
    upper: string,
  ): Promise<Sourced<RegisteredVersion[]> | undefined> {
    const claimed = await this.#claims(accountId, id);
    const hosted = claimed ? await this.#parts.feed.listPage(accountId, id, semVer2, lower, upper) : [];
    if (!this.#mayAsk(id, claimed)) return hostedUnlessEmpty(hosted);
    const bounds = [parseVersion(lower), parseVersion(upper)] as const;
    const found = await unlessHosted(hosted, () => this.#upstreamVersions(accountId, id, semVer2, bounds));
    if (!found || found.value.length === 0) return hostedUnlessEmpty(hosted);
    return { served: found.outcome, value: merge([...hosted, ...found.value], keyOfRegistered) };
  }

  /** Which of `ids` are not to be heard of from `upstream`; merged ones may be `admitted`. Keys, in lower case. */
  async closedAmong(
    accountId: number,
    ids: readonly string[],
    upstream: Upstream,
    { admitted }: { admitted: boolean },
  ): Promise<Set<string>> {
    const { database, mirror } = this.#parts;
    const closed = await claimedAmong(database, accountId, ids);
    for (const id of ids) {
      if (!mirror.origin.candidates(id).includes(upstream)) closed.add(packageKey(id));
      else if (admitted && mirror.origin.isMerged(id)) closed.delete(packageKey(id));
    }
    return closed;
  }

  /** Whether `id` is kept from every upstream by the configuration. */
  isReserved(id: string): boolean {
    return this.#parts.mirror.origin.isReserved(id);
  }

  /** Whether the account claims any of `ids` for what it hosts alone. */
  async isClaimed(accountId: number, ids: readonly string[]): Promise<boolean> {
    const { database, mirror } = this.#parts;
    const unmerged = ids.filter((id) => !mirror.origin.isMerged(id));
    return (await claimedAmong(database, accountId, unmerged)).size > 0;
  }

  /** The upstreams that may be asked for an id, in order; none for one that is claimed, merged or not. */
  async candidates(accountId: number, id: string): Promise<Upstream[]> {
    return (await this.#claims(accountId, id)) ? [] : this.#parts.mirror.origin.candidates(id);
  }

  /** The upstream to ask for an id; undefined when there is none, or the id is claimed. */
  async ownerFor(accountId: number, id: string): Promise<Owner | undefined> {
    return this.#mayAsk(id, await this.#claims(accountId, id)) ? this.#parts.mirror.owner(id) : undefined;
  }

  /** Hosted versions of an id and those of its upstream, in order, without those that are hosted though not shown. */
  async merged(accountId: number, id: string, hosted: string[], others: readonly string[]): Promise<string[]> {
    const keys = await this.#hostedOfMerged(accountId, id);
    const further = others.filter((each) => !keys.has(keyOfVersion(each) ?? ''));
    return merge([...hosted, ...further], (each) => keyOfVersion(each)!);
  }

  /** Whether the account claims an id: it hosts a version, or once did. */
  async #claims(accountId: number, id: string): Promise<boolean> {
    return (await this.#parts.feed.revisionOf(accountId, id)) !== undefined;
  }

  /** Whether an upstream may be asked for what was not found hosted, or is to be merged with it. */
  #mayAsk(id: string, claimed: boolean): boolean {
    const { origin } = this.#parts.mirror;
    return origin.candidates(id).length > 0 && (!claimed || origin.isMerged(id));
  }

  /** The keys of the hosted versions of an id that is merged; none for any other. */
  async #hostedOfMerged(accountId: number, id: string): Promise<Set<string>> {
    if (!this.#parts.mirror.origin.isMerged(id)) return new Set();
    return new Set(await this.#parts.feed.listVersionKeys(accountId, id));
  }

  /** Of a merged id without those that are hosted, though this client may not see them. */
  async #upstreamVersions(
    accountId: number,
    id: string,
    semVer2: boolean,
    [lower, upper]: readonly [Version?, Version?],
  ): Promise<UpstreamDocument<RegisteredVersion[]> | undefined> {
    return this.#notHosted(accountId, id, (owner) =>
      this.#parts.registrations.versions(owner, packageKey(id), semVer2, lower, upper),
    );
  }

  async #notHosted<T extends SizedVersion>(
    accountId: number,
    id: string,
    read: (owner: Owner) => Promise<UpstreamDocument<T[]> | undefined>,
  ): Promise<UpstreamDocument<T[]> | undefined> {
    const owner = await this.#parts.mirror.owner(id);
    const found = owner && (await read(owner));
    if (!found) return undefined;
    const hosted = await this.#hostedOfMerged(accountId, id);
    return { ...found, value: found.value.filter((each) => !hosted.has(keyOfRegistered(each))) };
  }

  /** The metadata is read only where it is little: a page has its own. */
  async #mergedPages(accountId: number, id: string, semVer2: boolean): Promise<Sourced<RegisteredPage[]> | undefined> {
    const { feed, registrations } = this.#parts;
    const hosted = await feed.listSizes(accountId, id, semVer2);
    const found = await unlessHosted(hosted, () =>
      this.#notHosted(accountId, id, (owner) => registrations.sizes(owner, packageKey(id), semVer2)),
    );
    const sizes = merge([...hosted, ...(found?.value ?? [])], keyOfRegistered);
    const [first, last] = [sizes[0], sizes.at(-1)];
    if (!first || !last) return undefined;
    if (!fitIndex(sizes)) return { served: found?.outcome ?? 'hosted', value: paged(sizes) };
    const all = await this.versions(accountId, id, semVer2, keyOfRegistered(first), keyOfRegistered(last));
    return all && { served: all.served, value: pagedInline(all.value) };
  }

  async #openNupkg(id: string, version: string): Promise<SourceFile | undefined> {
    const { mirror, registrations } = this.#parts;
    const entry = await mirror.openNupkg(id, version, (owner) =>
      registrations.storedHash(owner, packageKey(id), version),
    );
    if (!entry) return undefined;
    const { outcome, content, metadata } = entry;
    return { served: outcome, content, digest: metadata?.digest, type: fileTypes.nupkg };
  }

  /** From the nupkg where that is stored: what is in it needs no upstream. */
  async #openSidecar(id: string, version: string, kind: SidecarKind): Promise<SourceFile | undefined> {
    const stored = await this.#parts.mirror.storedNupkg(id, version);
    const inside = stored && (await this.#readInside(stored, kind));
    if (inside) {
      const { bytes, imageType } = inside;
      const type = kind === 'icon' ? imageType! : fileTypes[kind];
      return { served: 'hit', content: contentOf(bytes), digest: digestOf(bytes), type };
    }
    const entry = await this.#parts.mirror.openSidecar(id, version, kind);
    if (!entry) return undefined;
    const { outcome, content, metadata } = entry;
    const type = kind === 'icon' ? (metadata?.attributes['type'] ?? fileTypes.nupkg) : fileTypes[kind];
    return { served: outcome, content, digest: metadata?.digest, type };
  }

  async #readInside({ digest, size }: EntryMetadata, kind: SidecarKind): ReturnType<typeof readPart> {
    try {
      return await readPart(() => this.#parts.blobs.open(digest, size), kind);
    } catch (error) {
      if (isDomainError(error)) return undefined;
      throw error;
    }
  }
}

/** Of a merged id the hosted versions are served even while the upstream cannot be asked. */
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

/** In the order of versions; of two with one key the first, which is the hosted one. */
function merge<T>(items: readonly T[], keyOf: (item: T) => string): T[] {
  const byKey = new Map<string, T>();
  for (const item of items) if (!byKey.has(keyOf(item))) byKey.set(keyOf(item), item);
  return [...byKey]
    .map(([key, item]): [string, T] => [sortKey(parseVersion(key)!), item])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, item]) => item);
}
