import type {
  ComparedName,
  ComparedReference,
  ImportGroup,
  ImportItem,
  ImportOptions,
  ImportResult,
} from '../../import/item.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { algorithmOf, isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { parseDocument } from '../../mirror/document.ts';
import { readAll } from '../../storage/files/content.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';
import type { ImageSource } from '../catalog/image-source.ts';
import type { Images } from '../catalog/images.ts';
import type { Pushes } from '../catalog/pushes.ts';
import { hasMoreValues } from '../../runtime/json-values.ts';
import { isIndex, manifestTypeIn, maxValues, parseManifest } from '../format/manifest.ts';
import { isRepositoryName, type Reference } from '../format/reference.ts';
import type { SentManifest } from '../hosted/manifests.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import type { UpstreamRepository } from '../mirrored/upstream-repository.ts';
import { contentsOf } from '../prefetch/image-contents.ts';
import type { ImageOrigin, OriginManifest, OriginTag } from './image-origin.ts';
import { otherContent } from './registry-origin.ts';

/** Most manifests of one image with all that belongs to it. */
const maxManifests = 10_000;
/** Tags here that are read at a time. */
const tagsAtATime = 1000;

export interface ImageImportParts {
  images: Images;
  source: ImageSource;
  mirrors: AccountViews<ImageMirror>;
  /** The digests that a tag of an account has had. */
  digestsOfTag: (accountId: number, name: string, tag: string) => Promise<readonly string[]>;
  pushes: Pushes;
  blobs: BlobStore;
  /** Most bytes of a blob. */
  blobLimit: number;
}

/** One image of the source on its way. */
interface Way {
  /** The name of the repository at the source, and here. */
  name: string;
  here: string;
  /** Manifests that were looked at, with those that they name. */
  seen: Map<Digest, readonly Digest[]>;
  /** Manifests whose referrers were looked for. */
  subjects: Set<Digest>;
  bytes: number;
  notes: string[];
}

/** The images of an origin, brought in as hosted content: blobs, then manifests, then the tag. */
export class ImageImport {
  readonly #parts: ImageImportParts;
  readonly #origin: ImageOrigin;
  readonly #options: ImportOptions;
  /** The end of the work that adds a blob to a repository, so that two images do not fetch it at the same time. */
  readonly #fetching = new Map<string, Promise<void>>();

  constructor(parts: ImageImportParts, origin: ImageOrigin, options: ImportOptions) {
    this.#parts = parts;
    this.#origin = origin;
    this.#options = options;
  }

  async *groups(): AsyncGenerator<ImportGroup> {
    const { names, isWanted, nameHere } = this.#options;
    const listed = names && listOf(names);
    for await (const name of listed ?? this.#origin.repositories()) {
      if (!isWanted(name)) continue;
      const here = nameHere(name);
      yield { name, items: () => this.#tags(name, here) };
    }
  }

  async *#tags(name: string, here: string): AsyncGenerator<ImportItem> {
    const { accountId, since, permit, references } = this.#options;
    if (!isRepositoryName(name) || !isRepositoryName(here))
      throw new DomainError('NameInvalid', `${here.slice(0, 300)} is not a name of images.`);
    permit(here);
    const mirror = await this.#parts.mirrors.of(accountId);
    const tags: OriginTag[] = [];
    for await (const each of this.#origin.tags(name)) tags.push(each);
    const mirrored = await this.#mirroredFrom(mirror, name, here, tags);
    const isHosted = mirrored === undefined;
    for (const digest of references?.filter((each) => isDigest(each)) ?? []) {
      const manifest = await this.#origin.manifest(name, digest);
      if (!manifest) continue;
      yield { name: here, reference: digest, run: () => this.#untagged(name, here, manifest, mirrored), isHosted };
    }
    for (const { tag, pushedAt } of tags) {
      if (references && !references.includes(tag)) continue;
      if (since !== undefined && pushedAt !== undefined && pushedAt < since) continue;
      const note = mirrored && `${mirrored} has the same image`;
      const run = mirrored
        ? () => Promise.resolve({ outcome: 'mirrored' as const, bytes: 0, note, alsoAt: mirrored })
        : () => this.#image(name, here, tag, pushedAt);
      yield { name: here, reference: tag, run, isHosted, again: () => this.#again(name, here, tag) };
    }
  }

  /**
   * The upstream from which clients get all images of a repository under its name here; undefined if it lacks one of them. A
   * repository with a hosted image is served from here only.
   */
  async #mirroredFrom(mirror: ImageMirror, name: string, here: string, tags: readonly OriginTag[]) {
    const { accountId, allHosted, signal } = this.#options;
    const { place } = mirror.names.locate(here, undefined);
    if (allHosted || !place || tags.length === 0 || (await this.#parts.source.isClaimed(accountId, here)))
      return undefined;
    for (const { tag } of tags) {
      if (signal.aborted) return undefined;
      const digest = await this.#digestThere(name, tag);
      if (digest === undefined || !(await isAtUpstream(mirror, place, digest))) return undefined;
    }
    return place.upstream.name;
  }

  /** The tags of the names beside those here, or `withUpstreams` also beside those of an upstream that has all of a name. */
  async *compared(withUpstreams: boolean): AsyncGenerator<ComparedName> {
    for (const name of this.#options.names ?? []) {
      const references = () => this.#comparedTags(name, this.#options.nameHere(name), withUpstreams);
      yield { name, references };
    }
  }

  async *#comparedTags(name: string, here: string, withUpstreams: boolean): AsyncGenerator<ComparedReference> {
    const there = new Set<string>();
    const tags: OriginTag[] = [];
    for await (const each of this.#origin.tags(name)) tags.push(each);
    const mirror = withUpstreams && (await this.#parts.mirrors.of(this.#options.accountId));
    const mirrored = mirror && (await this.#mirroredFrom(mirror, name, here, tags));
    for (const { tag, pushedAt: publishedAt } of tags) {
      there.add(tag);
      const hash = (await this.#origin.digestOf(name, tag)) ?? (await this.#origin.manifest(name, tag))?.digest;
      const own = mirrored ? hash : await this.#digestHere(here, tag);
      yield { reference: tag, theirs: { hash, publishedAt }, ours: own && { hash: own } };
    }
    for (let last = ''; ;) {
      const { accountId } = this.#options;
      const page = await this.#parts.images.repositories.tags(accountId, here, tagsAtATime, last).catch(noPage);
      // A tag that is only here is told, whatever it is.
      for (const tag of page.items) if (!there.has(tag)) yield { reference: tag, theirs: undefined, ours: {} };
      if (!page.more) return;
      last = page.items.at(-1)!;
    }
  }

  /** The digest of a tag of the source; undefined if it cannot be read. Throws if the source fails. */
  async #digestThere(name: string, tag: string): Promise<Digest | undefined> {
    try {
      return (await this.#origin.digestOf(name, tag)) ?? (await this.#origin.manifest(name, tag))?.digest;
    } catch (error) {
      if (error instanceof UpstreamError) throw error;
      return undefined;
    }
  }

  async #image(name: string, here: string, tag: string, pushedAt: number | undefined): Promise<ImportResult> {
    const { accountId, dryRun, moveTags } = this.#options;
    const told = await this.#origin.digestOf(name, tag);
    const before = await this.#digestHere(here, tag);
    const way = beginWay(name, here);
    if (told !== undefined && told === before) return this.#repeated(way, told);
    const manifest = await this.#origin.manifest(name, tag);
    if (!manifest) throw new DomainError('NotFound', 'The source lists this tag and does not have its image.');
    if (manifest.digest === before) return this.#repeated(way, manifest.digest);
    if (before !== undefined && !(moveTags && (await this.#origin.manifest(name, before)))) {
      const note = moveTags
        ? 'the tag here points to an image that the source does not have'
        : 'the tag here points to another image; --move-tags moves it if the source has that image, too';
      return { outcome: 'conflict', bytes: 0, note };
    }
    const past = dryRun || pushedAt === undefined ? undefined : await this.#origin.past?.(name, tag);
    await this.#bring(way, manifest, { tags: [tag], pushedAt, past });
    await this.#referrers(way, manifest.digest);
    const [note] = way.notes;
    if (dryRun) return { outcome: 'imported', bytes: way.bytes, note };
    const digest = await this.#digestHere(here, tag);
    if (digest !== manifest.digest)
      throw new DomainError('Aborted', `The tag was moved meanwhile in account ${accountId}.`);
    return { outcome: 'imported', bytes: way.bytes, note };
  }

  /** A tag that came before: it stays as it is here. */
  async #again(name: string, here: string, tag: string): Promise<ImportResult> {
    const own = await this.#digestHere(here, tag);
    const told = own && (await this.#digestThere(name, tag));
    const { digestsOfTag } = this.#parts;
    // It may have been moved or deleted here.
    if (!told || told === own || (await digestsOfTag(this.#options.accountId, here, tag)).includes(told))
      return { outcome: 'present', bytes: 0 };
    return { outcome: 'conflict', bytes: 0, note: `the tag ${tag} was moved at the source after it came` };
  }

  /** Brings an image in that is asked for by its digest. */
  async #untagged(
    name: string,
    here: string,
    manifest: OriginManifest,
    mirrored: string | undefined,
  ): Promise<ImportResult> {
    if (mirrored !== undefined) return { outcome: 'mirrored', bytes: 0, alsoAt: mirrored };
    const way = beginWay(name, here);
    await this.#bring(way, manifest, { tags: [] });
    await this.#referrers(way, manifest.digest);
    return { outcome: 'imported', bytes: way.bytes };
  }

  /** An image that is here may have new signatures and other referrers. */
  async #repeated(way: Way, digest: Digest): Promise<ImportResult> {
    await this.#referrers(way, digest);
    return way.bytes > 0
      ? { outcome: 'imported', bytes: way.bytes, note: 'the image was here, its referrers were not' }
      : { outcome: 'present', bytes: 0 };
  }

  async #digestHere(here: string, reference: string): Promise<Digest | undefined> {
    const found = await this.#openHere(here, { tag: reference });
    found?.content.close();
    return found?.digest;
  }

  #openHere(here: string, reference: Reference) {
    const { accountId } = this.#options;
    return this.#parts.images.manifests.open(accountId, here, reference).catch((error: unknown) => {
      if (isDomainError(error, 'NameUnknown') || isDomainError(error, 'ManifestUnknown')) return undefined;
      throw error;
    });
  }

  /** Brings a manifest in, after all that it needs. */
  async #bring(
    way: Way,
    { digest, bytes, mediaType }: OriginManifest,
    tagged: Pick<SentManifest, 'tags' | 'pushedAt' | 'past'> = { tags: [] },
  ): Promise<void> {
    const { accountId, dryRun } = this.#options;
    if (way.seen.size >= maxManifests) throw tooMany();
    if (hasMoreValues(bytes, maxValues)) throw new DomainError('ManifestInvalid', 'Its manifest has too many values.');
    const document = parseDocument(bytes);
    const type = document && manifestTypeIn(document);
    if (!document || type === undefined)
      throw new DomainError(
        'Unsupported',
        `Its manifest is of the type ${(mediaType ?? 'unknown').slice(0, 100)}, which is not stored here.`,
      );
    const manifest = parseManifest(bytes, type);
    const { manifests, blobs } = contentsOf(document);
    way.seen.set(
      digest,
      manifests.map((each) => each.digest),
    );
    const lacking = new Set(await this.#parts.images.manifests.missing(accountId, way.here, manifest));
    for (const child of manifests) {
      if (!lacking.has(child.digest) || way.seen.has(child.digest)) continue;
      const found = await this.#origin.manifest(way.name, child.digest);
      // An index may lack some of its images, there and here.
      if (found) await this.#bring(way, found);
    }
    for (const blob of blobs) if (lacking.has(blob.digest)) await this.#blob(way, blob.digest, blob.size);
    way.bytes += bytes.length;
    if (dryRun) return;
    const pushed = await this.#parts.pushes.push(accountId, way.here, {
      ...tagged,
      digest,
      bytes,
      contentType: type,
    });
    if (pushed.warning !== undefined) way.notes.push(pushed.warning);
  }

  /**
   * Brings the signatures and other manifests in that refer to a manifest, or to one that it names; those under fallback tags come
   * as tags.
   */
  async #referrers(way: Way, subject: Digest): Promise<void> {
    if (way.subjects.has(subject)) return;
    if (way.subjects.size >= maxManifests) throw tooMany();
    way.subjects.add(subject);
    for (const digest of await this.#origin.referrers(way.name, subject)) {
      if (!(await this.#isKnown(way, digest))) {
        const found = await this.#origin.manifest(way.name, digest);
        if (!found) continue;
        await this.#bring(way, found);
      }
      await this.#referrers(way, digest);
    }
    for (const child of await this.#childrenOf(way, subject))
      if (await this.#isKnown(way, child)) await this.#referrers(way, child);
  }

  /** Whether a manifest is here, or was looked at. */
  async #isKnown({ seen, here }: Way, digest: Digest): Promise<boolean> {
    return seen.has(digest) || this.#parts.images.manifests.has(this.#options.accountId, here, { digest });
  }

  /** The manifests that a manifest names. */
  async #childrenOf({ seen, here }: Way, digest: Digest): Promise<readonly Digest[]> {
    const known = seen.get(digest);
    if (known) return known;
    const found = await this.#openHere(here, { digest });
    if (!found || !isIndex(found.mediaType)) {
      found?.content.close();
      return [];
    }
    const document = parseDocument(await readAll(found.content, found.content.size!));
    return contentsOf(document ?? {}).manifests.map((each) => each.digest);
  }

  /** Adds a blob to the repository: from another one of the account, else from the source. */
  async #blob(way: Way, digest: Digest, size: number): Promise<void> {
    const { accountId, dryRun } = this.#options;
    if (dryRun) {
      way.bytes += size;
      return;
    }
    const key = `${way.here} ${digest}`;
    const other = this.#fetching.get(key);
    if (other) return other;
    const work = (async () => {
      if (await this.#parts.images.blobs.mount(accountId, way.here, digest, undefined)) return;
      await this.#fetch(way, digest, size);
    })().finally(() => this.#fetching.delete(key));
    this.#fetching.set(key, work);
    return work;
  }

  async #fetch(way: Way, digest: Digest, size: number): Promise<void> {
    const { blobs, images, blobLimit } = this.#parts;
    const { accountId, admit } = this.#options;
    await admit(size);
    const staged = await blobs.stageHosted(size, [algorithmOf(digest)]);
    try {
      await this.#origin.fill(way.name, digest, staged, size > 0 ? Math.min(size, blobLimit) : blobLimit);
      if ((await staged.digest(algorithmOf(digest))) !== digest) throw otherContent(digest);
    } catch (error) {
      await staged.discard();
      throw error;
    }
    way.bytes += staged.size;
    await images.blobs.add(accountId, way.here, staged, digest);
  }
}

/**
 * Whether the upstream has an image with this digest. One that refuses access has not, unless images of the name were mirrored from
 * it; one that fails is not an answer.
 */
async function isAtUpstream(mirror: ImageMirror, place: UpstreamRepository, digest: Digest): Promise<boolean> {
  try {
    const entry = await mirror.openManifest(place, digest);
    if (!entry) return false;
    await entry.complete;
    entry.content.close();
    return true;
  } catch (error) {
    if (isDomainError(error, 'Denied')) return true;
    if (!isUpstreamFailure(error)) throw error;
    const isRefusal = error instanceof UpstreamError && (error.denied || /refused access/.test(error.message));
    if (isRefusal && !(await mirror.isMirrored(place))) return false;
    throw new DomainError(
      'Invalid',
      `It is not known whether ${place.upstream.name} has this image, too: ${(error as Error).message} Import it again later, or with --hosted.`,
      { cause: error },
    );
  }
}

function beginWay(name: string, here: string): Way {
  return { name, here, seen: new Map(), subjects: new Set(), bytes: 0, notes: [] };
}

function tooMany(): DomainError {
  return new DomainError('TooLarge', `The image has more than ${maxManifests} manifests.`);
}

function noPage(error: unknown): { items: string[]; more: boolean } {
  if (isDomainError(error, 'NameUnknown')) return { items: [], more: false };
  throw error;
}

async function* listOf(names: readonly string[]): AsyncGenerator<string> {
  for (const each of names) yield each;
}
