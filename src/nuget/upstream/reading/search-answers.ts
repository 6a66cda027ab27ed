import { isPackageId } from '../../format/nuspec.ts';
import { fullString, normalize, parseVersion, sortKey } from '../../format/version.ts';
import { limitHits, type SearchHit } from '../../format/search-hit.ts';
import { metadataIn, objectOf, objectsIn, ownLinks, textOf, type OwnLinks } from '../upstream-metadata.ts';
import { jsonIn, otherForm } from './json.ts';

export interface HitOptions {
  /** Addresses of the upstream and of its flat container. */
  base: string;
  flat: string;
}

/** Most hits and ids that are used of an answer, as many as are requested at most. */
const maxHits = 1000;
/** Most versions that are kept of a hit; the newest ones. */
const versionsOfHit = 1000;
/** Most downloads of one count, and most hits of a search. */
const maxDownloads = 2 ** 40;
const maxTotal = 2 ** 31 - 1;

/** The hits in an answer of a search, as long as an answer of this server, as JSON. */
export function readHits(bytes: Buffer, { base, flat }: HitOptions): string {
  const { totalHits, data } = listIn(bytes);
  const own = ownLinks(new URL(base), flat);
  return JSON.stringify({ totalHits, data: limitHits(data.flatMap((item) => hitIn(item, own) ?? [])) });
}

/** The ids in an answer of autocompletion, as JSON. */
export function readIds(bytes: Buffer): string {
  const { totalHits, data } = listIn(bytes);
  return JSON.stringify({ totalHits, data: data.filter((each) => typeof each === 'string' && isPackageId(each)) });
}

function listIn(bytes: Buffer): { totalHits: number; data: unknown[] } {
  const { totalHits, data } = jsonIn(bytes);
  if (!Array.isArray(data)) throw otherForm();
  const isCount = Number.isSafeInteger(totalHits) && (totalHits as number) >= 0;
  const total = isCount ? Math.min(totalHits as number, maxTotal) : data.length;
  return { totalHits: total, data: data.slice(0, maxHits) };
}

/**
 * A count that the database can keep and add up, and that clients can read: those of .NET fail for the whole answer, with the hits of
 * others, if it is no whole number.
 */
function countOf(downloads: unknown): number {
  const count = Number(downloads);
  return Number.isSafeInteger(count) && count > 0 ? Math.min(count, maxDownloads) : 0;
}

/** One hit (search-query-service-resource, "Search result"); undefined if its id or version is invalid. */
function hitIn(item: unknown, own: OwnLinks): SearchHit | undefined {
  const hit = objectOf(item);
  const version = parseVersion(textOf(hit['version']) ?? '');
  if (!version || !isPackageId(textOf(hit['id']) ?? '')) return undefined;
  return {
    version: normalize(version),
    fullVersion: fullString(version),
    hasIcon: own.isFlat(hit['iconUrl']),
    metadata: { ...metadataIn(hit, own), dependencyGroups: undefined },
    totalDownloads: countOf(hit['totalDownloads']),
    versions: versionsIn(hit['versions']),
  };
}

/** The newest versions of a hit, in order. Upstreams list them in any order. */
function versionsIn(list: unknown): SearchHit['versions'] {
  const found = objectsIn(list).flatMap(({ version: text, downloads }) => {
    const version = parseVersion(textOf(text) ?? '');
    return version ? [{ order: sortKey(version), version, downloads: countOf(downloads) }] : [];
  });
  return found
    .sort((one, other) => (one.order < other.order ? -1 : one.order > other.order ? 1 : 0))
    .slice(-versionsOfHit)
    .map(({ version, downloads }) => ({ version: normalize(version), fullVersion: fullString(version), downloads }));
}
