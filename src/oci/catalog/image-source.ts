import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { isDomainError, type DomainError } from '../../runtime/errors.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import type { Config } from '../../config/schema.ts';
import type { Served } from '../../http/cache-status.ts';
import type { Content } from '../../storage/files/content.ts';
import type { Images } from './images.ts';
import { blobUnknown } from '../hosted/image-blobs.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import type { Reference } from '../format/reference.ts';
import { pageOf, type ReferrersPage, type ReferrersQuery } from '../hosted/referrers.ts';
import { claimsAmong, nameUnknown, upstreamUnknown, type NamePage } from '../hosted/repositories.ts';
import { manifestTypeOf } from '../mirrored/image-entries.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { listedName, type UpstreamRepository } from '../mirrored/upstream-repository.ts';
import { AccessRefused } from '../../upstream/failures.ts';
import type { UpstreamError } from '../../upstream/upstream-error.ts';

/** A repository as the client requests it. */
interface RepositoryRequest {
  accountId: number;
  name: string;
  /** The registry that the client names with `?ns=`; undefined if it names none. */
  ns: string | undefined;
  /** Whether the principal may push. */
  mayPush: boolean;
}

/** Where a repository is, decided before any request to an upstream: at an upstream, hosted, both during a push, or none. */
export interface LocatedRepository extends RepositoryRequest {
  /** The name under which it is hosted; undefined if it is not. */
  hosted: string | undefined;
  place: UpstreamRepository | undefined;
  /** The registry that the name begins with, if it is no upstream of the account. The repository may still be hosted. */
  missing?: string | undefined;
}

/** A manifest to serve; the caller closes its content. */
interface SourceManifest {
  served: Served;
  digest: Digest;
  mediaType: string;
  content: Content;
  /** When a mirrored manifest was stored here first; milliseconds since 1970 UTC. */
  firstSeenAt?: number | undefined;
  /** The name of the repository in lists and in usage. */
  repository: string;
}

/** A blob to serve; the caller closes its content. */
interface SourceBlob {
  served: Served;
  content: Content;
  repository: string;
}

/** What clients read of repositories. */
export type ReadableImages = Pick<ImageSource, 'openManifest' | 'openBlob' | 'listTags' | 'listReferrers'>;

interface ImageSourceParts {
  database: Database;
  images: Images;
  mirrors: AccountViews<ImageMirror>;
  limits: Config['limits'];
  now: () => number;
}

/**
 * All readable images, hosted and mirrored. A repository that is claimed under any of its names is served from the hosted
 * content, and no upstream gets a request for it. The same is true if the settings allow no upstream for its name.
 */
export class ImageSource {
  readonly #parts: ImageSourceParts;

  constructor(parts: ImageSourceParts) {
    this.#parts = parts;
  }

  /**
   * The manifest of a tag or digest; throws `NameUnknown`, `ManifestUnknown`, `ContentDamaged`, or the upstream's failure.
   * `head` is for a HEAD request, which clients send before they push: if the principal may push, a damaged manifest is then
   * `ManifestUnknown`.
   */
  async openManifest(asked: LocatedRepository, reference: Reference, head = false): Promise<SourceManifest> {
    const { hosted, place } = asked;
    if (head && place && hosted !== undefined && (await this.#isArriving(asked.accountId, hosted, place))) {
      throw manifestUnknown(reference);
    }
    if (!place) {
      if (hosted === undefined) throw repositoryMissing(asked);
      const manifest = await this.#parts.images.manifests
        .open(asked.accountId, hosted, reference)
        .catch((error: unknown) => {
          if (isDomainError(error, 'NameUnknown')) throw repositoryMissing(asked);
          throw isDamagedBeforePush(asked, head, error) ? manifestUnknown(reference) : error;
        });
      return { ...manifest, served: 'hosted', repository: hosted };
    }
    const mirror = await this.#parts.mirrors.of(asked.accountId);
    const entry = await mirror.openManifest(place, reference.tag ?? reference.digest).catch(async (error) => {
      if (head && isUpstreamFailure(error) && (await this.#mayBeFirstPush(asked, place, error)))
        throw manifestUnknown(reference);
      throw error;
    });
    if (!entry) throw manifestUnknown(reference);
    const metadata = entry.metadata ?? (await entry.complete);
    const firstSeenAt = await mirror.firstSeenAt(place, metadata.digest).catch((error: unknown) => {
      entry.content.close();
      throw error;
    });
    return {
      served: entry.outcome,
      digest: metadata.digest,
      mediaType: manifestTypeOf(metadata),
      content: entry.content,
      firstSeenAt,
      repository: listedName(place),
    };
  }

  /**
   * A blob; throws `NameUnknown`, `BlobUnknown`, `ContentDamaged`, or the upstream's failure. `head` is for a HEAD request:
   * if the principal may push, a damaged blob is then `BlobUnknown`. A client that pulls gets the manifest first. So if the
   * principal may push, a HEAD in a repository without a mirrored manifest comes before a push: unless the blob is stored, it
   * is answered with `BlobUnknown`. The name, which may be private, is not sent to an upstream, and the client sends the
   * blob: it could not refer to one that only the upstream has.
   */
  async openBlob(asked: LocatedRepository, digest: Digest, head = false): Promise<SourceBlob> {
    const { hosted, place } = asked;
    let failure: unknown;
    if (hosted !== undefined) {
      try {
        const { blobs } = this.#parts.images;
        const isBeforePush = head && asked.mayPush;
        const content = await (isBeforePush
          ? blobs.openBeforePush(asked.accountId, hosted, digest)
          : blobs.open(asked.accountId, hosted, digest));
        return { served: 'hosted', content, repository: hosted };
      } catch (error) {
        const isLost = isDomainError(error, 'BlobUnknown') || isDomainError(error, 'ContentDamaged');
        const shown = isDamagedBeforePush(asked, head, error) ? blobUnknown(digest) : error;
        if (!place || !isLost) throw shown;
        // The upstream may have the same content.
        failure = shown;
      }
    }
    if (!place) throw repositoryMissing(asked);
    const mirror = await this.#parts.mirrors.of(asked.accountId);
    const isBeforePush = head && asked.mayPush && !(await mirror.isMirrored(place));
    if (isBeforePush && !(await mirror.isStored(place, 'blob', digest))) throw failure ?? blobUnknown(digest);
    const entry = await mirror.openBlob(place, digest);
    if (!entry) throw failure ?? blobUnknown(digest);
    // While it arrives, it is not known whether its bytes are right and can be stored.
    const served = entry.metadata || entry.outcome !== 'miss' ? entry.outcome : 'passed';
    return { served, content: entry.content, repository: listedName(place) };
  }

  /** Up to `limit` tags after `last`; throws `NameUnknown`, or the upstream's failure. */
  async listTags(asked: LocatedRepository, limit: number, last: string): Promise<NamePage & { served: Served }> {
    const { hosted, place } = asked;
    if (place) {
      const mirror = await this.#parts.mirrors.of(asked.accountId);
      const page = await mirror.listTags(place, limit, last);
      if (!page) throw nameUnknown(asked.name);
      return page;
    }
    if (hosted === undefined) throw repositoryMissing(asked);
    const page = await this.#parts.images.repositories
      .tags(asked.accountId, hosted, limit, last)
      .catch((error: unknown) => {
        throw isDomainError(error, 'NameUnknown') ? repositoryMissing(asked) : error;
      });
    return { ...page, served: 'hosted' };
  }

  /** The manifests that refer to `subject`, possibly none; throws the upstream's failure. */
  async listReferrers(
    asked: LocatedRepository,
    subject: Digest,
    query: ReferrersQuery,
  ): Promise<ReferrersPage & { served: Served }> {
    const { hosted, place } = asked;
    if (!place) {
      const page = await this.#parts.images.referrers.list(asked.accountId, hosted ?? asked.name, subject, query);
      return { ...page, served: 'hosted' };
    }
    const mirror = await this.#parts.mirrors.of(asked.accountId);
    const list = await mirror.listReferrers(place, subject);
    const { artifactType, limit, last } = query;
    const wanted = list.items.filter(
      (each) => each.digest > last && (artifactType === undefined || each.artifactType === artifactType),
    );
    return { ...(await pageOf(wanted, limit)), served: list.served };
  }

  /**
   * The repository that a push or deletion changes, with its hosted name: the one that reads find, and for a new one the
   * name in the request. `NameUnknown` if `ns` is an unknown registry.
   */
  async hosted(asked: RepositoryRequest): Promise<LocatedRepository> {
    const { accountId, name, ns } = asked;
    const { hosted: names } = (await this.#parts.mirrors.of(accountId)).names.locate(name, ns);
    if (names.length === 0) throw nameUnknown(name);
    const there = names.length < 2 ? undefined : await claimsAmong(this.#parts.database, accountId, names);
    const hosted = there ? (hostedAmong(names, there) ?? names[0]!) : names[0]!;
    return { ...asked, name: hosted, hosted, place: undefined };
  }

  /** Whether no upstream may get a request for a repository, because one of its names is claimed or not allowed. */
  async isClaimed(accountId: number, name: string): Promise<boolean> {
    return (await this.locate({ accountId, name, ns: undefined, mayPush: false })).place === undefined;
  }

  /** The upstream that a first push takes the name over from; undefined if nothing of it is mirrored, or if it is claimed. */
  async mirroredFrom(accountId: number, name: string): Promise<string | undefined> {
    const mirror = await this.#parts.mirrors.of(accountId);
    const { place } = mirror.names.locate(name, undefined);
    const isFirst = place !== undefined && !(await this.isClaimed(accountId, name));
    return isFirst && (await mirror.isMirrored(place)) ? place.upstream.name : undefined;
  }

  /** Whether a first push to the repository is in progress and nothing of it was mirrored. */
  async #isArriving(accountId: number, name: string, place: UpstreamRepository): Promise<boolean> {
    const since = this.#parts.now() - this.#parts.limits.uploadAge;
    if (!(await this.#parts.images.blobs.anySince(accountId, name, since))) return false;
    return !(await (await this.#parts.mirrors.of(accountId)).isMirrored(place));
  }

  /**
   * The one exception from the rule "an upstream that fails is never 'not found'". oras and helm send HEAD for a tag or a
   * digest before they push it for the first time, and stop at every status but 200 and 404. So if the upstream fails, a client
   * that may push gets "not found". The name must not begin with an upstream, and nothing of it may be mirrored.
   *
   * If the upstream is only down for a while, the name must not be one of Docker Hub's official images either, because it may
   * have this image. Docker Hub denies the official images that it does not have. This answer, and that of an upstream that
   * is set to offline, stays the same, so such a name could else never be pushed.
   */
  async #mayBeFirstPush(
    { accountId, name, ns, mayPush }: RepositoryRequest,
    place: UpstreamRepository,
    { denied, offline, cause }: UpstreamError,
  ): Promise<boolean> {
    const isLasting = denied || offline || cause instanceof AccessRefused;
    if (!mayPush || (!isLasting && (!name.includes('/') || name.startsWith('library/')))) return false;
    const mirror = await this.#parts.mirrors.of(accountId);
    return !mirror.names.locate(name, ns).isNamed && !(await mirror.isMirrored(place));
  }

  /**
   * The names to check against the names that a principal may use: one list for each place from which the repository is
   * served, with the names of that place only. The client's spelling is ignored, so that another spelling gives no access.
   */
  namesOf(repository: LocatedRepository): (readonly string[])[] | Promise<(readonly string[])[]> {
    const { hosted, place } = repository;
    return place ? this.#allNamesOf(repository, place) : [hosted === undefined ? [] : [hosted]];
  }

  async #allNamesOf(
    { accountId, hosted }: LocatedRepository,
    place: UpstreamRepository,
  ): Promise<(readonly string[])[]> {
    const mirrored = (await this.#parts.mirrors.of(accountId)).names.namesOf(place);
    return hosted === undefined ? [mirrored] : [[hosted], mirrored];
  }

  /** Finds where a repository is read from, with at most one query. */
  async locate(asked: RepositoryRequest): Promise<LocatedRepository> {
    const { accountId, name, ns, mayPush } = asked;
    const mirror = this.#parts.mirrors.of(accountId);
    const {
      hosted: names,
      place,
      missing,
    } = (mirror instanceof Promise ? await mirror : mirror).names.locate(name, ns);
    const at = (hosted: string | undefined, there?: UpstreamRepository): LocatedRepository => ({
      accountId,
      name,
      ns,
      mayPush,
      hosted,
      place: there,
      missing,
    });
    if (!place && names.length < 2) return at(names[0]);
    const there = await claimsAmong(this.#parts.database, accountId, names);
    const pushed = hostedAmong(names, there);
    if (pushed !== undefined && there.get(pushed)) return at(pushed);
    return at(pushed ?? (place ? undefined : names[0]), place);
  }
}

/** `NameUnknown`. If the name begins with a registry that is no upstream, the message says how to mirror it. */
function repositoryMissing({ name, missing }: LocatedRepository): DomainError {
  return missing === undefined ? nameUnknown(name) : upstreamUnknown(name, missing);
}

/**
 * Whether the failure of a HEAD by a principal that may push is damaged content. Clients stop at a 500 and upload after a
 * 404, and the upload repairs the content.
 */
function isDamagedBeforePush({ mayPush }: RepositoryRequest, head: boolean, error: unknown): boolean {
  return head && mayPush && isDomainError(error, 'ContentDamaged');
}

/** The name under which a repository is hosted: the first one that is claimed, else the first one that exists. */
function hostedAmong(names: readonly string[], there: ReadonlyMap<string, boolean>): string | undefined {
  return names.find((each) => there.get(each)) ?? names.find((each) => there.has(each));
}
