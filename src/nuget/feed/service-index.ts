import type { Addresses, Hive } from './addresses.ts';

/** A template with placeholders, which must not be percent-encoded. */
const readmeTemplate = 'package/{lower_id}/{lower_version}/readme';

const searchVersions = ['', '/3.0.0-beta', '/3.0.0-rc', '/3.5.0'];
const registrationVersions: readonly [string, Hive][] = [
  ['/3.0.0-beta', 'registration'],
  ['/3.0.0-rc', 'registration'],
  ['/3.4.0', 'registration-gz'],
  ['/3.6.0', 'registration-gz-semver2'],
];

/** Paths of what the feed as of a date does not have. */
const ofToday: ReadonlySet<string> = new Set(['search', 'autocomplete', 'push', 'symbols']);

/**
 * The resources of the feed and their addresses. Each type has its own entry, because some clients read `@type` as a
 * string. The first four entries are fixed. The past has no search, and nothing is pushed to it. https://learn.microsoft.com/nuget/api/service-index
 */
export function serviceIndex(addresses: Addresses, isPast: boolean): Record<string, unknown> {
  const resources: [type: string, path: string][] = [
    ['PackageBaseAddress/3.0.0', 'package'],
    ['SearchQueryService', 'search'],
    ['RegistrationsBaseUrl', 'registration'],
    ['PackagePublish/2.0.0', 'push'],
    ...searchVersions.slice(1).map((version): [string, string] => [`SearchQueryService${version}`, 'search']),
    ...searchVersions.map((version): [string, string] => [`SearchAutocompleteService${version}`, 'autocomplete']),
    ...registrationVersions.map(([version, hive]): [string, string] => [`RegistrationsBaseUrl${version}`, hive]),
    ['PackagePublish/3.0.0-preview.1', 'push'],
    ['SymbolPackagePublish/4.9.0', 'symbols'],
    ['VulnerabilityInfo/6.7.0', 'vulnerabilities/index.json'],
    ['ReadmeUriTemplate/6.13.0', readmeTemplate],
  ];
  return {
    version: '3.0.0',
    resources: resources
      .filter(([, path]) => !isPast || !ofToday.has(path))
      .map(([type, path]) => ({ '@id': addresses.at(path), '@type': type })),
  };
}
