import type { Database } from '../database/database.ts';
import { digestOf, type Digest } from '../digest.ts';
import { isDomainError } from '../errors.ts';
import type { Served } from '../http/cache-status.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import { contentOf, type Content } from '../storage/content.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { claimedAmong } from './claims.ts';
import type { Feed } from './feed.ts';
import { fileTypes, type FileKind } from './files.ts';
import { readNupkg } from './nupkg.ts';
import { keyOfVersion, packageKey } from './packages.ts';
import type { PackageMirror } from './upstream.ts';
import type { UpstreamRegistrations } from './upstream-registration.ts';
import { parseVersion, sortKey } from './version.ts';
import { paged, type RegisteredPage, type RegisteredVersion } from './versions.ts';

/** A value and how it was come by. */
export interface Answer<T> {
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
  downloaded: () => void;
}

export interface SourceParts {
  database: Database;
  blobs: BlobStore;
  feed: Feed;
  mirror: PackageMirror;
  registrations: UpstreamRegistrations;
}

const noted = () => undefined;

/**
 * Packages wherever they are. A hosted id is answered from what is hosted, and a claimed or reserved one is never asked
 * upstream; a merged id adds the upstream's versions to the hosted ones, which win.
 */
export class PackageSource {
  readonly #parts: SourceParts;

  constructor(parts: SourceParts) {
    this.#parts = parts;
  }

  /** The keys of all versions, in order; undefined when there is no such package. */
  async versionKeys(accountId: number, id: string): Promise<Answer<string[]> | undefined> {
    const { feed, mirror } = this.#parts;
    const hosted = await feed.listVersionKeys(accountId, id);
    if (!(await this.#mayAsk(accountId, id, hosted.length > 0))) return hostedUnlessEmpty(hosted);
    const found = await this.#unlessHosted(hosted, () => mirror.versions(id));
    if (!found) return hostedUnlessEmpty(hosted);
    return { served: found.outcome, value: merge([...hosted, ...found.value], (key) => key) };
  }

  /** One file of a version; undefined when there is none such. */
  async openFile(accountId: number, id: string, version: string, kind: FileKind): Promise<SourceFile | undefined> {
    const hosted = await this.#parts.feed.openFile(accountId, id, version, kind);
    if (hosted) return { served: 'hosted', ...hosted };
    const key = keyOfVersion(version);
    if (key === undefined || !(await this.#mayAsk(accountId, id, false))) return undefined;
    return kind === 'nupkg' ? this.#openNupkg(id, key) : this.#openBeside(id, key, kind);
  }

  /** The pages of a registration; undefined when there is no such package. */
  async pages(accountId: number, id: string, semVer2: boolean): Promise<Answer<RegisteredPage[]> | undefined> {
    const { feed, registrations } = this.#parts;
    const hosted = await feed.listPages(accountId, id, semVer2);
    if (!(await this.#mayAsk(accountId, id, hosted !== undefined))) {
      return hosted && { served: 'hosted', value: hosted };
    }
    if (hosted) return this.#mergedPages(accountId, id, semVer2);
    const owner = await this.#owner(id);
    const found = owner && (await registrations.pages(owner, packageKey(id), semVer2));
    return found && { served: found.outcome, value: found.value };
  }

  /** The versions of a registration from `lower` to `upper`, both keys and both included; undefined for none. */
  async versions(
    accountId: number,
    id: string,
    semVer2: boolean,
    lower: string,
    upper: string,
  ): Promise<Answer<RegisteredVersion[]> | undefined> {
    const { feed, registrations } = this.#parts;
    const hosted = await feed.listPage(accountId, id, semVer2, lower, upper);
    if (!(await this.#mayAsk(accountId, id, hosted.length > 0))) return hostedUnlessEmpty(hosted);
    const found = await this.#unlessHosted(hosted, async () => {
      const owner = await this.#owner(id);
      return owner && registrations.versions(owner, packageKey(id), semVer2, parseVersion(lower), parseVersion(upper));
    });
    if (!found || found.value.length === 0) return hostedUnlessEmpty(hosted);
    return {
      served: found.outcome,
      value: merge([...hosted, ...found.value], ({ version }) => keyOfVersion(version)!),
    };
  }

  /** Which of `ids` no upstream may be asked for, or be heard on. */
  async closedAmong(accountId: number, ids: readonly string[]): Promise<Set<string>> {
    const closed = await claimedAmong(this.#parts.database, accountId, ids);
    for (const id of ids) {
      if (this.#parts.mirror.origin.candidates(id).length === 0) closed.add(packageKey(id));
    }
    return closed;
  }

  /** The upstream to ask for an id; undefined when there is none, or the id is claimed. */
  async upstreamOf(accountId: number, id: string): Promise<Upstream | undefined> {
    return (await this.#mayAsk(accountId, id, false)) ? this.#owner(id) : undefined;
  }

  /** Whether an upstream may be asked for what was not found hosted, or is to be merged with it. */
  async #mayAsk(accountId: number, id: string, hosted: boolean): Promise<boolean> {
    const { database, mirror } = this.#parts;
    if (mirror.origin.candidates(id).length === 0) return false;
    if (mirror.origin.isMerged(id)) return true;
    return !hosted && (await claimedAmong(database, accountId, [id])).size === 0;
  }

  /** Of a merged id the hosted versions are served even while the upstream cannot be asked. */
  async #unlessHosted<T>(hosted: readonly unknown[], ask: () => Promise<T | undefined>): Promise<T | undefined> {
    try {
      return await ask();
    } catch (error) {
      if (hosted.length === 0 || !isUpstreamFailure(error)) throw error;
      return undefined;
    }
  }

  #owner(id: string): Promise<Upstream | undefined> {
    return this.#parts.mirror.owner(id);
  }

  async #mergedPages(accountId: number, id: string, semVer2: boolean): Promise<Answer<RegisteredPage[]> | undefined> {
    const { feed, registrations } = this.#parts;
    const hosted = await feed.listPage(accountId, id, semVer2, ...everything);
    const found = await this.#unlessHosted(hosted, async () => {
      const owner = await this.#owner(id);
      return owner && registrations.versions(owner, packageKey(id), semVer2, undefined, undefined);
    });
    const versions = merge([...hosted, ...(found?.value ?? [])], ({ version }) => keyOfVersion(version)!);
    return { served: found?.outcome ?? 'hosted', value: paged(versions) };
  }

  async #openNupkg(id: string, version: string): Promise<SourceFile | undefined> {
    const entry = await this.#parts.mirror.openNupkg(id, version);
    if (!entry) return undefined;
    const { outcome, content, facts } = entry;
    return { served: outcome, content, digest: facts?.digest, type: fileTypes.nupkg, downloaded: noted };
  }

  /** From the nupkg where that is stored: what is in it needs no upstream. */
  async #openBeside(id: string, version: string, kind: 'nuspec' | 'readme' | 'icon'): Promise<SourceFile | undefined> {
    const stored = await this.#parts.mirror.storedNupkg(id, version);
    const inside = stored && (await this.#readInside(stored, kind));
    if (inside) {
      const { bytes, type } = inside;
      return { served: 'hit', content: contentOf(bytes), digest: digestOf(bytes), type, downloaded: noted };
    }
    const entry = await this.#parts.mirror.openBeside(id, version, kind);
    if (!entry) return undefined;
    const type = kind === 'icon' ? imageType(entry.type) : fileTypes[kind];
    return { served: entry.outcome, content: entry.content, digest: entry.facts?.digest, type, downloaded: noted };
  }

  async #readInside(
    digest: Digest,
    kind: 'nuspec' | 'readme' | 'icon',
  ): Promise<{ bytes: Buffer; type: string } | undefined> {
    try {
      const { nuspecBytes, entries } = await readNupkg(this.#parts.blobs.pathOf(digest), { verifyAll: false });
      if (kind === 'nuspec') return { bytes: nuspecBytes, type: fileTypes.nuspec };
      if (kind === 'readme') return entries.readme && { bytes: entries.readme, type: fileTypes.readme };
      return entries.icon && { bytes: entries.icon, type: imageType(entries.iconType) };
    } catch (error) {
      if (isDomainError(error) || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }
}

/** Bounds that hold every version. */
const everything = ['0.0.0-0', '2147483647.2147483647.2147483647.2147483647'] as const;

function hostedUnlessEmpty<T>(value: T[]): Answer<T[]> | undefined {
  return value.length > 0 ? { served: 'hosted', value } : undefined;
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

/** An icon is shown as a picture or not at all. */
function imageType(type: string | undefined): string {
  return type !== undefined && /^image\/(?:png|jpeg|gif|webp)$/.test(type) ? type : 'application/octet-stream';
}
