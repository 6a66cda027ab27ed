import { DomainError } from '../../errors.ts';
import type { VersionMetadata } from './metadata.ts';

/** A version and about the bytes that its metadata takes in a document. */
export interface SizedVersion {
  /** Normalised. */
  version: string;
  bytes: number;
}

/** A version as registration shows it. */
export interface RegisteredVersion extends SizedVersion {
  /** With its `+metadata`. */
  fullVersion: string;
  listed: boolean;
  publishedAt: number;
  /** As its upstream wrote it, to the last digit. */
  published?: string;
  /** Of the nupkg, in Base64. */
  sha512?: string;
  hasIcon: boolean;
  hasReadme: boolean;
  metadata: VersionMetadata;
}

/** One page of a registration: versions from `lower` to `upper`, both normalised and included. */
export interface RegisteredPage {
  lower: string;
  upper: string;
  count: number;
  /** Absent where the index is too long to hold all versions. */
  items?: RegisteredVersion[];
}

/** As the public gallery does: 64 versions a page, and all of them in the index while they are fewer than 128. */
export const pageVersions = 64;
export const inlineBelow = 128;
/** What the metadata of a page, and of all versions in an index, may have together. */
export const pageBytes = 2 ** 20;
/** A page grows when versions are published in between. A range that holds more than this is no page of ours. */
export const rangeVersions = 1024;
export const rangeBytes = 8 * 2 ** 20;

/** Whether an index may hold these versions, which are all that there are. */
export function fitIndex(versions: readonly SizedVersion[]): boolean {
  return versions.length < inlineBelow && versions.reduce((sum, { bytes }) => sum + bytes, 0) <= pageBytes;
}

/** The pages of a registration with these versions; the versions are not in them. */
export function paged(versions: readonly SizedVersion[]): RegisteredPage[] {
  return cutIntoPages(versions).map(boundsOf);
}

/** The same, with the versions in them. */
export function pagedInline(versions: readonly RegisteredVersion[]): RegisteredPage[] {
  return cutIntoPages(versions).map((items) => ({ ...boundsOf(items), items }));
}

/** Adds up the versions of a range that a client asks for; throws `Invalid` when they are more than a page can be. */
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
  return new DomainError('Invalid', 'There are too many versions in this range. Ask for a page that the index names.');
}

/** At least one version a page. */
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
