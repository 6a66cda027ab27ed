import { bytesOfMetadata } from '../../format/metadata.ts';
import type { RegisteredVersion } from '../../format/pages.ts';
import { isSemVer2Range, parseRange } from '../../format/range.ts';
import {
  fullString,
  isSemVer2,
  normalize,
  parseVersion,
  sortKey,
  versionKey,
  type Version,
} from '../../format/version.ts';
import {
  deprecationOf,
  metadataIn,
  objectOf,
  objectsIn,
  ownLinks,
  textOf,
  type Json,
  type OwnLinks,
} from '../upstream-metadata.ts';
import { isList, jsonIn, maxListed, otherForm } from './json.ts';

export interface RegistrationOptions {
  /** Whether the document is an index; otherwise it is a page. */
  index: boolean;
  /** Versions of another id are left out. */
  key: string;
  semVer2: boolean;
  /** Addresses of the upstream and of its flat container. */
  base: string;
  flat: string;
}

/** A page as the first part of a line. `versions` lines follow; undefined if the page is a document of its own. */
export interface PageLine {
  lower: string;
  upper: string;
  count: number;
  address?: string;
  versions?: number;
  /** When the page was changed last; undefined if it does not say so. */
  changedAt?: number;
}

/** Most pages of an index. The public gallery has 64 versions on each. */
const maxPages = 2000;

/**
 * The pages of a registration's index, or one page: a line with a `PageLine`, and for each of its versions, in order, a line with
 * the bytes of its metadata, its version, when it was published (nothing if that is unknown), and the `RegisteredVersion`, each
 * separated by a space.
 */
export function readRegistration(bytes: Buffer, options: RegistrationOptions): string {
  const document = jsonIn(bytes);
  const { items } = document;
  if (!isList(items)) throw otherForm();
  const own = ownLinks(new URL(options.base), options.flat);
  if (!options.index) return versionLines(items, options, own).join('\n');
  if (items.length > maxPages || versionsIn(items) > maxListed) throw otherForm();
  const lines: string[] = [];
  for (const each of items) {
    const json = objectOf(each);
    const [lower, upper] = [parseVersion(textOf(json['lower']) ?? ''), parseVersion(textOf(json['upper']) ?? '')];
    const { items: inside, '@id': address } = json;
    const changedAt = timeOf(json['commitTimeStamp']);
    if (!lower || !upper || (!Array.isArray(inside) && typeof address !== 'string')) continue;
    const versions = Array.isArray(inside) ? versionLines(inside, options, own) : undefined;
    const page: PageLine = {
      lower: normalize(lower),
      upper: normalize(upper),
      count: countOf(json['count']),
      ...(changedAt !== undefined && { changedAt }),
      ...(versions ? { versions: versions.length } : { address: address as string }),
    };
    lines.push(JSON.stringify(page));
    for (const line of versions ?? []) lines.push(line);
  }
  return lines.join('\n');
}

/** Of no other number can it be said where a page ends. */
function countOf(count: unknown): number {
  return Number.isSafeInteger(count) && (count as number) >= 0 ? Math.min(count as number, maxListed) : 0;
}

function versionsIn(pages: readonly unknown[]): number {
  return pages.reduce<number>((sum, page) => {
    const { items } = objectOf(page);
    return sum + (Array.isArray(items) ? items.length : 0);
  }, 0);
}

function versionLines(items: readonly unknown[], { key, semVer2 }: RegistrationOptions, own: OwnLinks): string[] {
  const versions: [order: string, RegisteredVersion, number | undefined][] = [];
  for (const item of items) {
    const leaf = objectOf(item);
    const entry = objectOf(leaf['catalogEntry']);
    const version = parseVersion(textOf(entry['version']) ?? '');
    if (!version || textOf(entry['id'])?.toLowerCase() !== key) continue;
    if (!semVer2 && (isSemVer2(version) || dependsOnSemVer2(entry))) continue;
    versions.push([sortKey(version), registered(entry, version, own), publishedAt(leaf, entry)]);
  }
  return versions
    .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
    .map(([, each, at]) => `${each.bytes} ${each.version} ${at ?? ''} ${JSON.stringify(each)}`);
}

/** Whether only a client that supports SemVer 2.0.0 can read the range of a dependency. */
function dependsOnSemVer2(entry: Json): boolean {
  return objectsIn(entry['dependencyGroups']).some((group) =>
    objectsIn(group['dependencies']).some(({ range: text }) => {
      // Only a bound with a prerelease or metadata can be one. Few ranges have any, and a document has very many ranges.
      const range = typeof text === 'string' && /[-+]/.test(text) ? parseRange(text) : undefined;
      return range !== undefined && isSemVer2Range(range);
    }),
  );
}

/**
 * When a version was published. Without a date, as for an unlisted version, whose date is in 1900: when its leaf was changed
 * last, because it was published before.
 */
function publishedAt(leaf: Json, entry: Json): number | undefined {
  const published = timeOf(entry['published']) ?? 0;
  return published > 0 ? published : (timeOf(leaf['commitTimeStamp']) ?? timeOf(entry['commitTimeStamp']));
}

function isUnlisted(entry: Json): boolean {
  return entry['listed'] === false || (textOf(entry['published']) ?? '').startsWith('1900-');
}

/** The time in RFC 3339 text, without an offset in UTC; milliseconds since 1970. */
function timeOf(value: unknown): number | undefined {
  const text = textOf(value) ?? '';
  const time = Date.parse(/T[\d:.]+$/.test(text) ? `${text}Z` : text);
  return Number.isNaN(time) ? undefined : time;
}

function registered(entry: Json, version: Version, own: OwnLinks): RegisteredVersion {
  const published = textOf(entry['published']) ?? '';
  const time = timeOf(published);
  const metadata = metadataIn(entry, own);
  const sha512 = entry['packageHashAlgorithm'] === 'SHA512' ? textOf(entry['packageHash']) : undefined;
  return {
    version: normalize(version),
    fullVersion: fullString(version),
    listed: !isUnlisted(entry),
    ...(time !== undefined && { publishedAt: time, published }),
    ...(sha512 !== undefined && { sha512 }),
    hasIcon: own.isFlat(entry['iconUrl']),
    hasReadme: textOf(entry['readmeUrl']) !== undefined,
    bytes: bytesOfMetadata(metadata),
    metadata,
  };
}

/** Under which a page that is a document of its own is stored. */
export function pageReference({ lower, upper }: Pick<PageLine, 'lower' | 'upper'>): string {
  return `page/${lower}/${upper}`.toLowerCase();
}

/** What a document of a registration says about its versions, without their metadata. */
export interface VersionStates {
  /** Keys of the deprecated versions that the document itself has. */
  deprecated: string[];
  /** Keys of those that lists do not show. */
  unlisted: string[];
  /** References of the pages that are documents of their own. */
  pages: string[];
}

/** The `VersionStates` of a registration's index, or of one page, as JSON. */
export function readStates(bytes: Buffer, { key }: Pick<RegistrationOptions, 'key'>): string {
  const { items } = jsonIn(bytes);
  if (!isList(items)) throw otherForm();
  const found: VersionStates = { deprecated: [], unlisted: [], pages: [] };
  for (const each of items.map(objectOf)) {
    const inside = Array.isArray(each['items']) ? each['items'].map(objectOf) : [each];
    for (const { catalogEntry } of inside) {
      const entry = objectOf(catalogEntry);
      const version = parseVersion(textOf(entry['version']) ?? '');
      if (!version || textOf(entry['id'])?.toLowerCase() !== key) continue;
      if (deprecationOf(objectOf(entry['deprecation']))) found.deprecated.push(versionKey(version));
      if (isUnlisted(entry)) found.unlisted.push(versionKey(version));
    }
    const [lower, upper] = [parseVersion(textOf(each['lower']) ?? ''), parseVersion(textOf(each['upper']) ?? '')];
    if (lower && upper) found.pages.push(pageReference({ lower: normalize(lower), upper: normalize(upper) }));
  }
  return JSON.stringify(found);
}
