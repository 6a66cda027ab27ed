import type { NameSet } from '../../accounts/names.ts';
import type { AccountList } from '../../accounts/shared-names.ts';
import type { ListTotal, Rank, Ranked } from '../../runtime/ranked.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { Content } from '../../storage/files/content.ts';
import type { Descriptor } from '../format/manifest.ts';
import type { AttachedKind } from './attached.ts';

// What `/v1` and the pages ask about images: one question each, which hosted and mirrored images answer. Nothing is sent to
// an upstream, and reads of mirrored content do not count as its use. Times are milliseconds since 1970 UTC.

/** A manifest, or the one of a tag, as lists show it. */
export interface ListedManifest {
  digest: Digest;
  mediaType: string;
  /** The size of the manifest and of everything that it refers to. */
  sizeBytes: number;
  updatedAt: number;
  pullCount: number;
  lastPulledAt: number | null;
}

export type TagSummary = Omit<ListedManifest, 'pullCount' | 'lastPulledAt'> & Pick<ListedTag, 'name' | 'withdrawnAt'>;

/** A tag in a list, and its place in the order of the list. */
export interface ListedTag extends ListedManifest {
  key: readonly [sortKey: string | number, name: string];
  name: string;
  /** When its upstream had certainly withdrawn it; null for others. */
  withdrawnAt: number | null;
  /** Other tags of the digest. */
  aliases: string[];
}

export interface ManifestInList extends ListedManifest {
  artifactType: string | null;
  subject: Digest | null;
  /** Whether an index lists it. */
  isChild: boolean;
  isTagged: boolean;
}

/** A manifest with the tags and the indexes that refer to it. */
export interface DescribedManifest extends ListedManifest {
  tags: string[];
  /** Those of the tags that the upstream has certainly withdrawn. */
  withdrawnTags: { name: string; withdrawnAt: number }[];
  indexes: string[];
}

/** A repository in a list. Its name is the one by which a client pulls it; of a mirrored one `<upstream>/<name>`. */
export interface RepositorySummary {
  name: string;
  /** The upstream of a mirrored repository; null for a hosted one. */
  upstream: string | null;
  /** The size of all distinct blobs and manifests of the repository. */
  sizeBytes: number;
  tagCount: number;
  pullCount: number;
  lastPulledAt: number | null;
  /** In byte order, at most as many as the caller wants; `tagCount` is the number of all. */
  tags: TagSummary[];
}

export interface TagQuery {
  /** Tags that contain this text, which is in lower case. */
  text: string;
  /**
   * `asc` is the natural order, `desc` its reverse; with `newest`, the tag that was pushed or stored last comes first, with
   * `oldest` it comes last, with `size` and `pulls` the largest or most pulled one.
   */
  order: 'asc' | 'desc' | 'newest' | 'oldest' | 'size' | 'pulls';
  /** Whether tags of signatures and others are left out, which begin as `attachedTags`. */
  hidesAttached: boolean;
}

/** An order of tags that a repository does not have. */
export function cannotSort(why: string): DomainError {
  return new DomainError('Invalid', `order: ${why}. Use another order.`, { detail: { parameter: 'order' } });
}

/** The most tags of one repository in a list of repositories. */
export const tagsShown = 1000;
/** Most other tags of a digest that are shown. */
export const maxAliases = 10;

/** The numbers by which repositories are sorted, the largest first. */
export const imageOrders = {
  tags: { column: 'tag_count', counted: 'refs' },
  size: { column: 'size_bytes', counted: 'bytes' },
  pulls: { column: 'pull_count', counted: 'downloads' },
  used: { column: 'last_pulled_at', counted: 'usedAt' },
} as const;

/** Repositories whose name contains `text`, which is in lower case; with `only`, those that it allows. */
export interface RepositoryFilter extends Omit<AccountList, 'accountId'> {
  text: string;
}

export interface RepositoryOrder extends RepositoryFilter {
  /** Undefined for the order of names. */
  sort: keyof typeof imageOrders | undefined;
}

/** The images that an account can pull, hosted or mirrored, by name. With `only`, those with one of these names. */
export interface ImageList {
  readonly origin: 'hosted' | 'mirrored';
  /** Up to `limit` repositories by name, after the name `after`, with up to `tags` tags each. */
  list(accountId: number, limit: number, after: string, only?: NameSet, tags?: number): Promise<RepositorySummary[]>;
  /** Up to `limit` repositories without tags, in an order, after `after`. Mirrored ones are sorted as they were counted. */
  ranked(
    accountId: number,
    order: RepositoryOrder,
    limit: number,
    after: Rank | undefined,
  ): Promise<Ranked<RepositorySummary>[]>;
  /** Undefined while they are counted for the first time. */
  total(accountId: number, filter: RepositoryFilter): Promise<ListTotal | undefined>;
  /** Up to `limit` repositories whose name matches `text`, or with a manifest whose digest begins with it, after a position. */
  find(accountId: number, text: string, limit: number, after: string, only?: NameSet): Promise<FoundRepository[]>;
}

export interface FoundRepository {
  position: string;
  name: string;
  upstream: string | null;
  pulls: number;
  /** The one that the search names or begins. */
  digest?: Digest;
}

/** One repository that is stored here. */
export interface StoredRepository {
  readonly name: string;
  /** The upstream of a mirrored repository; null for a hosted one. */
  readonly upstream: string | null;
  /** Without tags; undefined if it holds no manifest. */
  summary(): Promise<RepositorySummary | undefined>;
  /** The digest of a tag; undefined if it has no such tag. */
  digestOf(tag: string): Promise<Digest | undefined>;
  /** The content of a manifest or blob, to be closed; undefined, or a domain error, if it is not there. */
  open(kind: 'manifest' | 'blob', digest: Digest): Promise<Content | undefined>;
  /**
   * Up to `limit` tags in the wanted order, after `after`. Throws `Invalid` for `size` and `pulls` with too many tags, and for
   * `pulls` of a mirrored repository: it does not know the images of its indexes.
   */
  tags(query: TagQuery, limit: number, after: ListedTag['key'] | undefined): Promise<ListedTag[]>;
  /**
   * Up to `limit` manifests in the order of their digests, after `after`. `next` is where the list continues; undefined at its
   * end.
   */
  manifests(limit: number, after: string): Promise<{ items: ManifestInList[]; next: Digest | undefined }>;
  manifest(digest: Digest): Promise<DescribedManifest | undefined>;
  /** The rows with their pulls. The pulls of an index are those of its images, which `childrenOf` names if they are known. */
  withPulls<T extends ListedManifest>(
    rows: readonly T[],
    childrenOf: (digest: Digest) => readonly Digest[],
  ): Promise<T[]>;
  /** Those of `digests` that are stored manifests or blobs of the repository. */
  storedAmong(digests: readonly Digest[]): Promise<Set<string>>;
  /** At least the first `limit` manifests that refer to a digest; undefined if they are not known. */
  referrers(digest: Digest, limit: number): Promise<readonly Descriptor[] | undefined>;
  /** What is attached to each of `digests`, as far as that is stored. */
  attachedTo(digests: readonly Digest[]): Promise<Map<Digest, Set<AttachedKind>>>;
  /**
   * Deletes a tag, but not its manifest; resolves to whether it was there. Calls `mayDeleteShared` before it deletes what all
   * accounts share, which throws if the principal may not.
   */
  deleteTag(tag: string, mayDeleteShared: () => void): Promise<boolean>;
  /** As `deleteTag`, for a manifest with its tags; throws `ManifestUnknown`. */
  deleteManifest(digest: Digest, mayDeleteShared: () => void): Promise<void>;
}
