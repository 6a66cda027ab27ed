import type { Addresses, Hive } from './addresses.ts';
import { iconOf } from './registration.ts';
import type { SearchHit } from '../format/search-hit.ts';

/** https://learn.microsoft.com/nuget/api/search-query-service-resource#search-result */
export function searchResult(addresses: Addresses, hive: Hive, hit: SearchHit): Record<string, unknown> {
  const { metadata } = hit;
  const { id } = metadata;
  const registration = addresses.registrationIndex(hive, id);
  const leaves = registration.slice(0, -'index.json'.length);
  return {
    '@id': registration,
    '@type': 'Package',
    registration,
    id,
    version: hit.fullVersion,
    description: metadata.description ?? '',
    summary: metadata.summary ?? '',
    title: metadata.title ?? id,
    iconUrl: iconOf(addresses, id, hit),
    licenseUrl: metadata.licenseUrl,
    projectUrl: metadata.projectUrl,
    tags: metadata.tags ?? [],
    authors: namesIn(metadata.authors),
    owners: namesIn(metadata.owners),
    totalDownloads: hit.totalDownloads,
    verified: false,
    deprecation: metadata.deprecation,
    packageTypes: metadata.packageTypes.map(({ name }) => ({ name })),
    versions: hit.versions.map(({ version, fullVersion, downloads }) => ({
      version: fullVersion,
      downloads,
      '@id': `${leaves}${version.toLowerCase()}.json`,
    })),
  };
}

function namesIn(list: string | undefined): string[] {
  return (list ?? '').split(',').flatMap((name) => name.trim() || []);
}
