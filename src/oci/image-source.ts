import type { Database } from '../database/database.ts';
import type { Digest } from '../digest.ts';
import { isDomainError } from '../errors.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import type { Config } from '../config/schema.ts';
import type { Served } from '../http/cache-status.ts';
import type { Content } from '../storage/content.ts';
import type { Images } from './images.ts';
import { blobUnknown } from './image-blobs.ts';
import { manifestUnknown } from './manifests.ts';
import type { Reference } from './reference.ts';
import { pageOf, type ReferrersPage, type ReferrersQuery } from './referrers.ts';
import { claimsAmong, nameUnknown, pageOfNames, type Page } from './repositories.ts';
import { listedName, manifestTypeOf, type ImageMirror, type Place } from './image-mirror.ts';

/** A repository as a client asks for it. */
export interface RepositoryRequest {
  accountId: number;
  name: string;
  /** The registry that a mirror's client says it means (`?ns=`). */
  ns: string | undefined;
  /** Whether it comes from a principal that may push. */
  mayPush: boolean;
}

/** A repository and where it is, decided before any upstream is asked: upstream, hosted, for a while both, or nowhere. */
export interface Repository extends RepositoryRequest {
  /** The name under which it is hosted. */
  hosted: string | undefined;
  place: Place | undefined;
}

/** A manifest that is to be served; the caller closes its content. */
export interface SourceManifest {
  served: Served;
  digest: Digest;
  mediaType: string;
  content: Content;
  /** The repository under the name by which it is listed. */
  repository: string;
}

/** A blob that is to be served; the caller closes its content. */
export interface SourceBlob {
  served: Served;
  content: Content;
  repository: string;
}

export interface SourceParts {
  database: Database;
  images: Images;
  mirror: ImageMirror;
  limits: Config['limits'];
  now: () => number;
}

/**
 * Images wherever they are. A repository that is claimed, under any of the names it may have, is answered from what is
 * hosted and never asked upstream; so is one for which the configuration names nobody to ask.
 */
export class ImageSource {
  readonly #database: Database;
  readonly #images: Images;
  readonly #mirror: ImageMirror;
  readonly #limits: Config['limits'];
  readonly #now: () => number;

  constructor({ database, images, mirror, limits, now }: SourceParts) {
    this.#database = database;
    this.#images = images;
    this.#mirror = mirror;
    this.#limits = limits;
    this.#now = now;
  }

  /**
   * The manifest of a tag or digest; `NameUnknown` or `ManifestUnknown`, or the upstream's failure. `head`: only whether
   * it is there is asked, as clients do before they push it.
   */
  async openManifest(asked: Repository, reference: Reference, head = false): Promise<SourceManifest> {
    const { hosted, place } = asked;
    if (head && place && hosted !== undefined && (await this.#isArriving(asked.accountId, hosted, place))) {
      throw manifestUnknown(reference);
    }
    if (!place) {
      if (hosted === undefined) throw nameUnknown(asked.name);
      const manifest = await this.#images.manifests.open(asked.accountId, hosted, reference);
      return { ...manifest, served: 'hosted', repository: hosted };
    }
    const entry = await this.#mirror.openManifest(place, reference.tag ?? reference.digest).catch(async (error) => {
      const isPush = head && reference.tag !== undefined && isUpstreamFailure(error);
      if (isPush && (await this.#mayBeFirstPush(asked, place))) throw manifestUnknown(reference);
      throw error;
    });
    if (!entry) throw manifestUnknown(reference);
    const metadata = entry.metadata ?? (await entry.complete);
    return {
      served: entry.outcome,
      digest: metadata.digest,
      mediaType: manifestTypeOf(metadata),
      content: entry.content,
      repository: listedName(place),
    };
  }

  /**
   * A blob; `NameUnknown` or `BlobUnknown`, or the upstream's failure. `head`: only whether it is there is asked. Who
   * pulls has the manifest first; so of a repository of which none was mirrored, that is asked before a push, and the
   * name of what may be private goes to no upstream.
   */
  async openBlob(asked: Repository, digest: Digest, head = false): Promise<SourceBlob> {
    const { hosted, place } = asked;
    if (hosted !== undefined) {
      try {
        const content = await this.#images.blobs.open(asked.accountId, hosted, digest);
        return { served: 'hosted', content, repository: hosted };
      } catch (error) {
        if (!place || !isDomainError(error, 'BlobUnknown')) throw error;
      }
    }
    if (!place) throw nameUnknown(asked.name);
    if (head && !(await this.#mirror.isMirrored(place))) throw blobUnknown(digest);
    const entry = await this.#mirror.openBlob(place, digest);
    if (!entry) throw blobUnknown(digest);
    return { served: entry.outcome, content: entry.content, repository: listedName(place) };
  }

  /** Up to `limit` tags after `last`; `NameUnknown`, or the upstream's failure. */
  async listTags(asked: Repository, limit: number, last: string): Promise<Page & { served: Served }> {
    const { hosted, place } = asked;
    if (place) {
      const list = await this.#mirror.listTags(place);
      if (!list) throw nameUnknown(asked.name);
      const after = Buffer.from(last);
      const rest = last === '' ? list.items : list.items.filter((tag) => Buffer.compare(Buffer.from(tag), after) > 0);
      return { ...pageOfNames(rest, limit), served: list.served };
    }
    if (hosted === undefined) throw nameUnknown(asked.name);
    return { ...(await this.#images.repositories.tags(asked.accountId, hosted, limit, last)), served: 'hosted' };
  }

  /** What refers to `subject`, none where there is nothing; throws the upstream's failure. */
  async listReferrers(
    asked: Repository,
    subject: Digest,
    query: ReferrersQuery,
  ): Promise<ReferrersPage & { served: Served }> {
    const { hosted, place } = asked;
    if (!place) {
      const page = await this.#images.referrers.list(asked.accountId, hosted ?? asked.name, subject, query);
      return { ...page, served: 'hosted' };
    }
    const list = await this.#mirror.listReferrers(place, subject);
    const { artifactType, limit, last } = query;
    const wanted = (list?.items ?? []).filter(
      (each) => each.digest > last && (artifactType === undefined || each.artifactType === artifactType),
    );
    return { ...(await pageOf(wanted, limit)), served: list?.served ?? 'hit' };
  }

  /** The repository that a push or a deletion changes, under its hosted name; `NameUnknown` for an unknown registry. */
  hosted(asked: RepositoryRequest): Repository {
    const { name, ns } = asked;
    const [hosted] = ns === undefined ? [name] : this.#mirror.locate(name, ns).hosted;
    if (hosted === undefined) throw nameUnknown(name);
    return { ...asked, name: hosted, hosted, place: undefined };
  }

  /** Whether a repository is kept from upstreams under any of its names. */
  async isClaimed(accountId: number, name: string): Promise<boolean> {
    return (await this.locate({ accountId, name, ns: undefined, mayPush: false })).place === undefined;
  }

  /** Whether the first push of a repository is under way, of which nothing was mirrored before. */
  async #isArriving(accountId: number, name: string, place: Place): Promise<boolean> {
    const since = this.#now() - this.#limits.uploadAge;
    return (await this.#images.blobs.anySince(accountId, name, since)) && !(await this.#mirror.isMirrored(place));
  }

  /**
   * The one exception from "an upstream that is down is never 'not found'". oras and helm ask by HEAD for a tag before they
   * push it for the first time, and give up at anything but 200 and 404. So where the upstream cannot be asked, a
   * client that may push is told that there is no such tag. The name must name no upstream, must be none that official
   * images on Docker Hub have, and nothing of it may be mirrored.
   */
  async #mayBeFirstPush({ name, ns, mayPush }: RepositoryRequest, place: Place): Promise<boolean> {
    if (!mayPush || !name.includes('/') || name.startsWith('library/')) return false;
    return !this.#mirror.locate(name, ns).isNamed && !(await this.#mirror.isMirrored(place));
  }

  /**
   * The names that decide who may use a repository: for each place from which it is served, those that mean that place
   * and no other. How a client spelled it does not count, so that another spelling opens nothing.
   */
  namesOf({ hosted, place }: Repository): (readonly string[])[] {
    if (hosted !== undefined && place) return [[hosted], this.#mirror.namesOf(place)];
    if (place) return [this.#mirror.namesOf(place)];
    return [hosted === undefined ? [] : [hosted]];
  }

  /** Finds a repository that is to be read, by one query. */
  async locate(asked: RepositoryRequest): Promise<Repository> {
    const { accountId, name, ns, mayPush } = asked;
    const { hosted: names, place } = this.#mirror.locate(name, ns);
    const at = (hosted: string | undefined, there?: Place): Repository => ({
      accountId,
      name,
      ns,
      mayPush,
      hosted,
      place: there,
    });
    if (!place && names.length < 2) return at(names[0]);
    const there = await claimsAmong(this.#database, accountId, names);
    const claimed = names.find((each) => there.get(each));
    if (claimed !== undefined) return at(claimed);
    const pushed = names.find((each) => there.has(each));
    return at(pushed ?? (place ? undefined : names[0]), place);
  }
}
