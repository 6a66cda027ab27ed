import { LRUCache } from 'lru-cache';
import { allow, credentialMissing } from '../../accounts/allow.ts';
import { ownerOf } from '../../accounts/owner.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import type { Database } from '../../database/database.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import { readAll, type Content } from '../../storage/files/content.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import type { ImageSource, LocatedRepository } from './image-source.ts';
import type { Images } from './images.ts';
import { hasMoreValues } from '../format/json-values.ts';
import { isIndex, maxValues, type Descriptor } from '../format/manifest.ts';
import { readParsedList, referrerLists } from '../mirrored/parsed-lists.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import { listedName, type UpstreamRepository } from '../mirrored/upstream-repository.ts';
import { isTag } from '../format/reference.ts';
import { findRepository, nameUnknown } from '../hosted/repositories.ts';

/** Most bytes of a manifest or a config that are read for a list, and of all of them together. */
const listedBytes = 256 * 1024;
const listedTogether = 4 * 2 ** 20;
/** Most platforms of a tag in a list. */
const maxPlatforms = 20;

/** A repository to describe: hosted by the account, or at an upstream. Nothing of it is sent to an upstream. */
export type Described = { accountId: number; name: string } & (
  | { repositoryId: number; place: undefined }
  | { repositoryId: undefined; place: UpstreamRepository }
);

/** Most bytes of one document, and of all that may still be read. */
export interface Budget {
  readonly each: number;
  left: number;
}

/** What a manifest says about platforms. */
export interface Platforms {
  /** `os/architecture`, of an image or of the images of an index. */
  platforms: string[];
  /** The manifests of an index. */
  children: Digest[];
}

export interface StoredParts {
  database: Database;
  blobs: BlobStore;
  images: Images;
  source: ImageSource;
  mirrors: AccountViews<ImageMirror>;
}

/** Reads what is stored of images, for descriptions. Reads of mirrored content do not count as its use. */
export class StoredImages {
  readonly #parts: StoredParts;
  /** By the digest of a manifest, whose content never changes. */
  readonly #platforms = new LRUCache<Digest, Platforms>({ max: 10_000 });

  constructor(parts: StoredParts) {
    this.#parts = parts;
  }

  get database(): Database {
    return this.#parts.database;
  }

  get images(): Images {
    return this.#parts.images;
  }

  mirrorOf(accountId: number): ImageMirror | Promise<ImageMirror> {
    return this.#parts.mirrors.of(accountId);
  }

  /**
   * The repository that a client of `principal` pulls as `name`. Throws `NameUnknown`, `NameDenied` if the token may not use
   * the name under which it is stored, and `Unauthorized` as reads do.
   */
  async locate(principal: Principal, name: string, action: 'read' | 'delete' = 'read'): Promise<Described> {
    const accountId = ownerOf(principal, 'container', name);
    const { source, database } = this.#parts;
    const found: LocatedRepository = await source.locate({ accountId, name, ns: undefined, mayPush: false });
    for (const names of await source.namesOf(found)) allow(principal, action, 'container', names);
    if (found.place) return { accountId, name: listedName(found.place), repositoryId: undefined, place: found.place };
    if (!readsHosted(principal)) throw credentialMissing();
    const { hosted } = found;
    const repositoryId = hosted === undefined ? undefined : await findRepository(database, accountId, hosted);
    if (repositoryId === undefined) throw nameUnknown(name);
    return { accountId, name: hosted!, repositoryId, place: undefined };
  }

  /** The digest of a tag, or the digest itself. Throws `ManifestUnknown`. */
  async digestOf(at: Described, reference: string): Promise<Digest> {
    if (isDigest(reference)) return reference;
    const found = isTag(reference)
      ? at.place
        ? await (await this.mirrorOf(at.accountId)).stored(at.place, 'manifest', reference)
        : await this.database.get<{ digest: Digest }>('SELECT digest FROM tags WHERE repository_id = ? AND name = ?', [
            at.repositoryId,
            reference,
          ])
      : undefined;
    if (!found) throw manifestUnknown({ tag: reference.slice(0, 160) });
    return found.digest;
  }

  /** The JSON of a stored manifest; undefined if it is not stored, damaged, above `budget`, or has too many values. */
  async manifest(at: Described, digest: Digest, budget: Budget): Promise<Record<string, unknown> | undefined> {
    const { images } = this.#parts;
    return this.#json(budget, async () => {
      if (at.place) return this.#stored(at.accountId, at.place, 'manifest', digest);
      return (await images.manifests.open(at.accountId, at.name, { digest })).content;
    });
  }

  /** As `manifest`, for a blob with JSON. */
  async blob(at: Described, digest: Digest, budget: Budget): Promise<Record<string, unknown> | undefined> {
    const { images } = this.#parts;
    return this.#json(budget, () =>
      at.place
        ? this.#stored(at.accountId, at.place, 'blob', digest)
        : images.blobs.open(at.accountId, at.name, digest),
    );
  }

  /** The stored list of referrers of a mirrored manifest; undefined if it is not stored, or damaged. */
  async referrers(
    accountId: number,
    place: UpstreamRepository,
    digest: Digest,
  ): Promise<readonly Descriptor[] | undefined> {
    try {
      const metadata = await (await this.mirrorOf(accountId)).stored(place, 'referrers', digest);
      if (!metadata) return undefined;
      const content = await this.#parts.blobs.open(metadata.digest, metadata.size);
      const list = await readParsedList({ metadata, content, complete: Promise.resolve(metadata) }, referrerLists);
      return await (await this.mirrorOf(accountId)).listed(place, list, (each) => each.digest);
    } catch (error) {
      if (isDomainError(error)) return undefined;
      throw error;
    }
  }

  /** The platforms of manifests, as far as they are stored here and not too long for a list. */
  async platformsOf(
    at: Described,
    manifests: readonly { digest: Digest; mediaType: string }[],
  ): Promise<Map<Digest, Platforms>> {
    const found = new Map<Digest, Platforms>();
    const budget = { each: listedBytes, left: listedTogether };
    for (const { digest, mediaType } of manifests) {
      const known = found.get(digest) ?? this.#platforms.get(digest);
      if (known) {
        found.set(digest, known);
        continue;
      }
      const manifest = await this.manifest(at, digest, budget);
      if (!manifest) continue;
      const platforms = isIndex(mediaType) ? platformsIn(manifest) : await this.#platformOfImage(at, manifest, budget);
      if (!platforms) continue;
      this.#platforms.set(digest, platforms);
      found.set(digest, platforms);
    }
    return found;
  }

  async #platformOfImage(
    at: Described,
    manifest: Record<string, unknown>,
    budget: Budget,
  ): Promise<Platforms | undefined> {
    const digest = digestIn(manifest['config']);
    const config = digest === undefined ? undefined : await this.blob(at, digest, budget);
    if (!config) return undefined;
    const platform = platformOf(config);
    return { platforms: platform === undefined ? [] : [platform], children: [] };
  }

  async #stored(
    accountId: number,
    place: UpstreamRepository,
    kind: 'blob' | 'manifest',
    reference: string,
  ): Promise<Content | undefined> {
    const entry = await (await this.mirrorOf(accountId)).stored(place, kind, reference);
    return entry && this.#parts.blobs.open(entry.digest, entry.size);
  }

  async #json(budget: Budget, open: () => Promise<Content | undefined>): Promise<Record<string, unknown> | undefined> {
    try {
      const content = await open();
      if (!content) return undefined;
      const size = content.size ?? 0;
      if (size > Math.min(budget.each, budget.left)) {
        content.close();
        return undefined;
      }
      budget.left -= size;
      const bytes = await readAll(content, size);
      await pause();
      if (hasMoreValues(bytes, maxValues)) return undefined;
      return parseDocument(bytes) as Record<string, unknown> | undefined;
    } catch (error) {
      if (isDomainError(error)) return undefined;
      throw error;
    }
  }
}

function platformsIn({ manifests }: Record<string, unknown>): Platforms {
  const list = Array.isArray(manifests) ? manifests : [];
  const platforms = new Set<string>();
  const children: Digest[] = [];
  for (const each of list.slice(0, 1000)) {
    const digest = digestIn(each);
    if (digest === undefined) continue;
    children.push(digest);
    const text = platformOf((each as { platform?: unknown }).platform);
    if (text !== undefined) platforms.add(text);
  }
  return { platforms: [...platforms].slice(0, maxPlatforms), children };
}

/** The digest in a descriptor. */
export function digestIn(descriptor: unknown): Digest | undefined {
  const digest = (descriptor as { digest?: unknown } | null | undefined)?.digest;
  return typeof digest === 'string' && isDigest(digest) ? digest : undefined;
}

/** `os/architecture/variant`; undefined if it is unknown, as for the attestations of an index. */
export function platformOf(platform: unknown): string | undefined {
  if (typeof platform !== 'object' || platform === null) return undefined;
  const { os, architecture, variant } = platform as Record<string, unknown>;
  const parts = [os, architecture, variant].filter((each) => typeof each === 'string' && each !== '') as string[];
  const text = parts.join('/').slice(0, 60);
  return text === '' || text.startsWith('unknown') ? undefined : text;
}
