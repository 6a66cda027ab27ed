import type { Logger } from 'pino';
import type { Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { readAll, readThrough } from '../../storage/files/content.ts';
import { reserveReached } from '../../storage/files/disk.ts';
import type { Images } from './images.ts';
import { parseManifest } from '../format/manifest.ts';
import { manifestBlobUnknown, type PushedManifest, type SentManifest } from '../hosted/manifests.ts';
import type { ImageSource } from './image-source.ts';
import { manifestTypeOf } from '../mirrored/image-entries.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import type { UpstreamRepository } from '../mirrored/upstream-repository.ts';

export interface Pushed extends PushedManifest {
  /** A warning for the client that pushes, if there is one. */
  warning: string | undefined;
}

interface PushParts {
  images: Images;
  source: ImageSource;
  mirrors: AccountViews<ImageMirror>;
  /** Whether the account has pulled an image of the place. */
  hasPulled: (accountId: number, place: UpstreamRepository) => Promise<boolean>;
  log: Logger;
}

/** The most layers that one push fetches from an upstream. */
const maxFetches = 200;

interface Push {
  accountId: number;
  name: string;
  mirror: ImageMirror;
  /** Where the name is at an upstream. */
  place: UpstreamRepository | undefined;
  /** The upstream whose content the push takes over, if it is the first one. */
  mirroredFrom: string | undefined;
}

/** A push that may take over mirrored content. */
interface Adoption extends Omit<Push, 'mirroredFrom'> {
  place: UpstreamRepository;
  /** The fetches that it may still make; undefined before the first one. */
  fetches: number | undefined;
  /** Mirrored manifests that have to be pushed before it, each after its own children. */
  children: Set<Digest>;
}

/** Pushes of manifests. A push may take over a name under which an upstream's image was served before. */
export class Pushes {
  readonly #parts: PushParts;

  constructor(parts: PushParts) {
    this.#parts = parts;
  }

  /** As `Manifests.push`; the manifest may also refer to content that was mirrored under the same name. */
  async push(accountId: number, name: string, sent: SentManifest): Promise<Pushed> {
    const mirror = await this.#parts.mirrors.of(accountId);
    const { place } = mirror.names.locate(name, undefined);
    // The transaction of the push may not wait for this.
    const upstream = await this.#parts.source.mirroredFrom(accountId, name);
    const pushed = await this.#push({ accountId, name, mirror, place, mirroredFrom: upstream }, sent);
    if (!pushed.claimed || upstream === undefined) return { ...pushed, warning: undefined };
    this.#parts.log.warn({ account: accountId, name, upstream }, 'a hosted image now replaces a mirrored one');
    const warning = `${name} was served from ${upstream} until now; from now on only images pushed here are served.`;
    return { ...pushed, warning };
  }

  async #push({ accountId, name, mirror, place, mirroredFrom }: Push, sent: SentManifest): Promise<PushedManifest> {
    const { manifests } = this.#parts.images;
    if (!place) return manifests.push(accountId, name, sent);
    try {
      return await manifests.push(accountId, name, sent, { isWhole: true, mirroredFrom });
    } catch (error) {
      if (!isDomainError(error, 'ManifestBlobUnknown')) throw error;
    }
    const adoption: Adoption = { accountId, name, mirror, place, fetches: undefined, children: new Set() };
    await this.#adopt(adoption, sent);
    let claimed = false;
    for (const digest of adoption.children) {
      const child = await this.#stored(mirror, place, digest);
      if (child) claimed = (await manifests.push(accountId, name, child, { mirroredFrom })).claimed || claimed;
    }
    const pushed = await manifests.push(accountId, name, sent, { mirroredFrom });
    return { ...pushed, claimed: pushed.claimed || claimed };
  }

  /**
   * Adds mirrored blobs that a manifest refers to to the hosted repository, and collects mirrored manifests. A client that
   * sent HEAD before its push, and was told that the content exists, does not send it. Throws `ManifestBlobUnknown` if an
   * image is not whole then, before any manifest is pushed: the first one claims the name, and `Denied` for content that a policy
   * refuses. `isMirrored` is for a manifest that the mirror has.
   */
  async #adopt(adoption: Adoption, { bytes, contentType }: SentManifest, isMirrored = false): Promise<void> {
    const { accountId, name, mirror, place, children } = adoption;
    const manifest = parseManifest(bytes, contentType);
    const missing = await this.#parts.images.manifests.missing(accountId, name, manifest);
    const here = await mirror.blobsAmong(place, missing);
    const stored = await mirror.servedBlobs(
      place,
      missing.filter((digest) => here.has(digest)),
    );
    const blobs = missing.filter((digest) => stored.has(digest));
    const rest = missing.filter((digest) => !stored.has(digest));
    if (manifest.kind === 'image' && rest.length > 0) {
      const known = isMirrored ? new Set<string>(rest) : await mirror.blobsOfImages(place);
      const fetched = await this.#fetchLayers(
        adoption,
        rest.filter((digest) => known.has(digest)),
      );
      const lacking = rest.filter((digest) => !fetched.has(digest));
      if (lacking.length > 0) throw manifestBlobUnknown(lacking);
      blobs.push(...rest);
    }
    await this.#parts.images.blobs.adopt(accountId, name, blobs);
    if (manifest.kind === 'image') return;
    const manifests = await mirror.storedAmong(place, 'manifest', rest);
    for (const digest of rest) {
      if (!manifests.has(digest) || children.has(digest)) continue;
      const child = await this.#stored(mirror, place, digest);
      if (child) await this.#adopt(adoption, child, true);
      children.add(digest);
    }
  }

  /**
   * Fetches layers of images that were pulled from this place, if this account has pulled from it. A request for any other
   * layer would give the upstream a name, which may be private, and find nothing. Resolves to those that are stored then.
   */
  async #fetchLayers(adoption: Adoption, digests: readonly Digest[]): Promise<Set<Digest>> {
    const { mirror, place } = adoption;
    const fetched = new Set<Digest>();
    adoption.fetches ??= (await this.#mayFetch(adoption)) ? maxFetches : 0;
    for (const digest of digests) {
      if (adoption.fetches === 0) break;
      adoption.fetches -= 1;
      if (await this.#fetch(mirror, place, digest)) fetched.add(digest);
    }
    return fetched;
  }

  async #mayFetch({ accountId, name, place }: Adoption): Promise<boolean> {
    return !(await this.#parts.source.isClaimed(accountId, name)) && (await this.#parts.hasPulled(accountId, place));
  }

  /**
   * Waits for a blob that may be being fetched already, after a client's HEAD; resolves to whether it is stored. Throws
   * `StorageFull` if the disk has no room for it.
   */
  async #fetch(mirror: ImageMirror, place: UpstreamRepository, digest: Digest): Promise<boolean> {
    try {
      const entry = await mirror.openBlob(place, digest);
      if (!entry) return false;
      // What is passed on, if the disk becomes full in the middle, too, comes only as fast as it is read.
      if (entry.metadata || entry.outcome === 'passed') entry.content.close();
      else await readThrough(entry.content);
      if (entry.metadata || (await mirror.blobsAmong(place, [digest])).size > 0) return true;
      throw reserveReached();
    } catch (error) {
      if (isUpstreamFailure(error)) return false;
      throw error;
    }
  }

  /** The mirror's manifest with this digest, as a client would push it. */
  async #stored(mirror: ImageMirror, place: UpstreamRepository, digest: Digest): Promise<SentManifest | undefined> {
    const entry = await mirror.openManifest(place, digest);
    if (!entry) return undefined;
    const metadata = entry.metadata ?? (await entry.complete);
    const bytes = await readAll(entry.content, metadata.size);
    return { tags: [], digest, bytes, contentType: manifestTypeOf(metadata) };
  }
}
