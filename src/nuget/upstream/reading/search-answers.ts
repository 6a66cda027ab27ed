import { isPackageId } from '../../format/nuspec.ts';
import { fullString, normalize, parseVersion } from '../../format/version.ts';
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
  return { totalHits: typeof totalHits === 'number' ? totalHits : data.length, data: data.slice(0, maxHits) };
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
    totalDownloads: Number(hit['totalDownloads']) || 0,
    versions: objectsIn(hit['versions'])
      .slice(-versionsOfHit)
      .flatMap((each) => {
        const one = parseVersion(textOf(each['version']) ?? '');
        return one
          ? [{ version: normalize(one), fullVersion: fullString(one), downloads: Number(each['downloads']) || 0 }]
          : [];
      }),
  };
}
