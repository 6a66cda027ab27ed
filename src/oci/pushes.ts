import type { Logger } from 'pino';
import type { Digest } from '../digest.ts';
import { isDomainError } from '../errors.ts';
import type { AccountViews } from '../mirror/account-views.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import { readAll } from '../storage/content.ts';
import type { Images } from './images.ts';
import { parseManifest } from './manifest.ts';
import type { PushedManifest } from './manifests.ts';
import type { ImageSource } from './image-source.ts';
import { manifestTypeOf, type ImageMirror, type Place } from './image-mirror.ts';

/** A manifest in a request. */
export interface SentManifest {
  tags: readonly string[];
  /** The digest in the request, if any. */
  digest: Digest | undefined;
  bytes: Buffer;
  contentType: string | undefined;
}

export interface Pushed extends PushedManifest {
  /** A warning for the client that pushes, if there is one. */
  warning: string | undefined;
}

export interface PushParts {
  images: Images;
  source: ImageSource;
  mirrors: AccountViews<ImageMirror>;
  log: Logger;
}

/** Pushes of manifests. A push may take over a name under which an upstream's image was served before. */
export class Pushes {
  readonly #images: Images;
  readonly #source: ImageSource;
  readonly #mirrors: AccountViews<ImageMirror>;
  readonly #log: Logger;

  constructor({ images, source, mirrors, log }: PushParts) {
    this.#images = images;
    this.#source = source;
    this.#mirrors = mirrors;
    this.#log = log;
  }

  /** As `Manifests.push`; the manifest may also refer to content that was mirrored under the same name. */
  async push(accountId: number, name: string, sent: SentManifest): Promise<Pushed> {
    const mirror = await this.#mirrors.of(accountId);
    const { place } = mirror.locate(name, undefined);
    const pushed = await this.#push(accountId, name, place, sent);
    if (!pushed.claimed || !place || !(await mirror.isMirrored(place))) return { ...pushed, warning: undefined };
    const upstream = place.upstream.name;
    this.#log.warn({ account: accountId, name, upstream }, 'a hosted image now replaces a mirrored one');
    const warning = `${name} was served from ${upstream} until now; from now on only images pushed here are served.`;
    return { ...pushed, warning };
  }

  async #push(accountId: number, name: string, place: Place | undefined, sent: SentManifest): Promise<PushedManifest> {
    const { tags, digest, bytes, contentType } = sent;
    const attempt = () => this.#images.manifests.push(accountId, name, tags, digest, bytes, contentType);
    try {
      return await attempt();
    } catch (error) {
      if (!place || !isDomainError(error, 'ManifestBlobUnknown')) throw error;
      await this.#adopt(accountId, name, place, sent);
      return attempt();
    }
  }

  /**
   * Adds mirrored content that a manifest refers to to the hosted repository. A client that sent HEAD before its push, and
   * was told that the content exists, does not send it.
   */
  async #adopt(accountId: number, name: string, place: Place, { bytes, contentType }: SentManifest): Promise<void> {
    const { kind, required } = parseManifest(bytes, contentType);
    const mirror = await this.#mirrors.of(accountId);
    const mayAsk = kind === 'image' && !(await this.#source.isClaimed(accountId, name));
    const blobs: Digest[] = [];
    for (const digest of required) {
      if (await mirror.isStored(place, 'blob', digest)) blobs.push(digest);
      else if (mayAsk && (await this.#fetch(mirror, place, digest))) blobs.push(digest);
      else if (kind === 'index' && (await mirror.isStored(place, 'manifest', digest))) {
        await this.#adoptManifest(accountId, name, place, digest);
      }
    }
    await this.#images.blobs.adopt(accountId, name, blobs);
  }

  /** Waits for a blob that may be being fetched already, after a client's HEAD; resolves to whether it is stored. */
  async #fetch(mirror: ImageMirror, place: Place, digest: Digest): Promise<boolean> {
    try {
      const entry = await mirror.openBlob(place, digest);
      try {
        return (await entry?.complete) !== undefined;
      } finally {
        entry?.content.close();
      }
    } catch (error) {
      if (isUpstreamFailure(error)) return false;
      throw error;
    }
  }

  async #adoptManifest(accountId: number, name: string, place: Place, digest: Digest): Promise<void> {
    const entry = await (await this.#mirrors.of(accountId)).openManifest(place, digest);
    if (!entry) return;
    const metadata = entry.metadata ?? (await entry.complete);
    const bytes = await readAll(entry.content, metadata.size);
    await this.#push(accountId, name, place, { tags: [], digest, bytes, contentType: manifestTypeOf(metadata) });
  }
}
