import { DomainError } from '../../runtime/errors.ts';
import type { VersionMetadata } from './metadata.ts';

/** A version, and roughly the bytes that its metadata takes in a document. */
export interface SizedVersion {
  /** Normalised. */
  version: string;
  bytes: number;
}

/** A version as a registration shows it. */
export interface RegisteredVersion extends SizedVersion {
  /** With its `+metadata`. */
  fullVersion: string;
  listed: boolean;
  /** Absent if the upstream states no date. */
  publishedAt?: number;
  /** Exactly as the upstream wrote it. */
  published?: string;
  /** Hash of the nupkg, in Base64. */
  sha512?: string;
  hasIcon: boolean;
  hasReadme: boolean;
  metadata: VersionMetadata;
}

/** One page of a registration: the versions from `lower` to `upper`, both included and normalised. */
export interface RegisteredPage {
  lower: string;
  upper: string;
  count: number;
  /** Absent if the index would be too long with all versions in it. */
  items?: RegisteredVersion[];
}

/** As the public gallery: 64 versions on a page, and all versions in the index if they are fewer than 128. */
export const pageVersions = 64;
export const inlineBelow = 128;
/** Most bytes of the metadata on one page, and of all versions in an index. */
export const pageBytes = 2 ** 20;
/** A page grows if versions are published within its bounds. A larger range than this is refused. */
export const rangeVersions = 1024;
export const rangeBytes = 8 * 2 ** 20;

/** Whether the index may contain all versions of a package, which are `versions`. */
export function fitIndex(versions: readonly SizedVersion[]): boolean {
  return versions.length < inlineBelow && versions.reduce((sum, { bytes }) => sum + bytes, 0) <= pageBytes;
}

/** The pages of a registration with these versions, without the versions themselves. */
export function paged(versions: readonly SizedVersion[]): RegisteredPage[] {
  return cutIntoPages(versions).map(boundsOf);
}

/** As `paged`, with the versions in the pages. */
export function pagedInline(versions: readonly RegisteredVersion[]): RegisteredPage[] {
  return cutIntoPages(versions).map((items) => ({ ...boundsOf(items), items }));
}

/** Adds up the versions of a range that a client requests. Throws `Invalid` above `rangeVersions` or `rangeBytes`. */
export class RangeSize {
  #versions = 0;
  #bytes = 0;

  add({ bytes }: Pick<SizedVersion, 'bytes'>): void {
    this.#versions += 1;
    this.#bytes += bytes;
    if (this.#versions > rangeVersions || this.#bytes > rangeBytes) throw rangeTooLong();
  }
}

export function rangeTooLong(): DomainError {
  return new DomainError('Invalid', 'There are too many versions in this range. Request a page that the index names.');
}

/** Each page has at least one version. */
function cutIntoPages<T extends SizedVersion>(versions: readonly T[]): T[][] {
  const pages: T[][] = [];
  let bytes = 0;
  for (const version of versions) {
    const page = pages.at(-1);
    bytes += version.bytes;
    if (page && page.length < pageVersions && bytes <= pageBytes) page.push(version);
    else {
      pages.push([version]);
      bytes = version.bytes;
    }
  }
  return pages;
}

function boundsOf(versions: readonly SizedVersion[]): RegisteredPage {
  return { lower: versions[0]!.version, upper: versions.at(-1)!.version, count: versions.length };
}
