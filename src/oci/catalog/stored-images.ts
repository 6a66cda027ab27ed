import { allow, credentialMissing } from '../../accounts/allow.ts';
import { ownerOf } from '../../accounts/owner.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import type { Database } from '../../database/database.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import { parseDocument } from '../../mirror/document.ts';
import { readAll } from '../../storage/files/content.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { attachedKinds } from './attached.ts';
import type { ImageSource, LocatedRepository } from './image-source.ts';
import type { HostedImages } from './hosted-images.ts';
import { hasMoreValues } from '../../runtime/json-values.ts';
import { isIndex, maxValues } from '../format/manifest.ts';
import type { MirroredImages } from './mirrored-images.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import type { ListedTag, StoredRepository, TagQuery } from './repository.ts';
import { isTag } from '../format/reference.ts';
import { findRepository, nameUnknown } from '../hosted/repositories.ts';
import { Recent } from '../../runtime/recent.ts';

/** Most bytes of a manifest or a config that are read for a list, and of all of them together. */
const listedBytes = 256 * 1024;
const listedTogether = 4 * 2 ** 20;
/** Most platforms of a tag in a list. */
const maxPlatforms = 20;

/** Most bytes of one document, and of all that may still be read. */
interface Budget {
  readonly each: number;
  left: number;
}

/** What a manifest says about platforms. */
export interface Platforms {
  /** `os/architecture`, of an image or of the images of an index. */
  platforms: string[];
  /** The manifests of an index. */
  children: Digest[];
  /** Whether the index has attestations of builds. */
  isAttested: boolean;
}

interface StoredParts {
  database: Database;
  source: ImageSource;
  mirrors: AccountViews<ImageMirror>;
  hosted: HostedImages;
  mirrored: MirroredImages;
}

/** Finds stored repositories, and reads their documents. */
export class StoredImages {
  readonly #parts: StoredParts;
  /** By the digest of a manifest, whose content never changes. */
  readonly #platforms = new Recent<Digest, Platforms>(10_000);

  constructor(parts: StoredParts) {
    this.#parts = parts;
  }

  /**
   * The repository that a client of `principal` pulls as `name`. Throws `NameUnknown`, `NameDenied` if the token may not use
   * the name under which it is stored, and `Unauthorized` as reads do.
   */
  async locate(principal: Principal, name: string, action: 'read' | 'delete' = 'read'): Promise<StoredRepository> {
    const accountId = await ownerOf(principal, 'container', name, action);
    const { source, database, mirrors, hosted: hostedImages, mirrored } = this.#parts;
    const found: LocatedRepository = await source.locate({ accountId, name, ns: undefined, mayPush: false });
    for (const names of await source.namesOf(found)) allow(principal, action, 'container', names);
    if (found.place) return mirrored.repository(accountId, await mirrors.of(accountId), found.place);
    if (!readsHosted(principal)) throw credentialMissing();
    const { hosted } = found;
    const repositoryId = hosted === undefined ? undefined : await findRepository(database, accountId, hosted);
    if (repositoryId === undefined) throw nameUnknown(name);
    return hostedImages.repository(accountId, hosted!, repositoryId);
  }

  /** The digest of a tag, or the digest itself. Throws `ManifestUnknown`. */
  async digestOf(repository: StoredRepository, reference: string): Promise<Digest> {
    if (isDigest(reference)) return reference;
    const digest = isTag(reference) ? await repository.digestOf(reference) : undefined;
    if (digest === undefined) throw manifestUnknown({ tag: reference.slice(0, 160) });
    return digest;
  }

  /** The JSON of a stored manifest or blob; undefined if it is not stored, damaged, above `budget`, or has too many values. */
  async json(
    repository: StoredRepository,
    kind: 'manifest' | 'blob',
    digest: Digest,
    budget: Budget,
  ): Promise<Record<string, unknown> | undefined> {
    try {
      const content = await repository.open(kind, digest);
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

  /** Up to `limit` tags in the wanted order, after `after`. `platforms` is undefined if they are not stored here. */
  async tags(at: StoredRepository, query: TagQuery, limit: number, after: ListedTag['key'] | undefined) {
    const rows = await at.tags(query, limit, after);
    const platforms = await this.#platformsOf(at, rows);
    const counted = await at.withPulls(rows, (digest) => platforms.get(digest)?.children ?? []);
    const attached = await at.attachedTo([...new Set(rows.map(({ digest }) => digest))]);
    return counted.map((row) => {
      const known = platforms.get(row.digest);
      const kinds = new Set(attached.get(row.digest));
      if (known?.isAttested) kinds.add('attestation');
      return { ...row, platforms: known?.platforms, attached: attachedKinds.filter((each) => kinds.has(each)) };
    });
  }

  /** The platforms of manifests, as far as they are stored here and not too long for a list. */
  async #platformsOf(
    at: StoredRepository,
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
      const manifest = await this.json(at, 'manifest', digest, budget);
      if (!manifest) continue;
      const platforms = isIndex(mediaType) ? platformsIn(manifest) : await this.#platformOfImage(at, manifest, budget);
      if (!platforms) continue;
      this.#platforms.set(digest, platforms);
      found.set(digest, platforms);
    }
    return found;
  }

  async #platformOfImage(
    at: StoredRepository,
    manifest: Record<string, unknown>,
    budget: Budget,
  ): Promise<Platforms | undefined> {
    const digest = digestIn(manifest['config']);
    const config = digest === undefined ? undefined : await this.json(at, 'blob', digest, budget);
    if (!config) return undefined;
    const platform = platformOf(config);
    return { platforms: platform === undefined ? [] : [platform], children: [], isAttested: false };
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
  return { platforms: [...platforms].slice(0, maxPlatforms), children, isAttested: list.some(isAttestation) };
}

/** Whether a descriptor is of an attestation, as BuildKit writes it. */
export function isAttestation(descriptor: unknown): boolean {
  const { annotations } = (descriptor ?? {}) as { annotations?: Record<string, unknown> };
  return annotations?.['vnd.docker.reference.type'] === 'attestation-manifest';
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
