import type { Addresses, Hive } from './addresses.ts';
import type { RegisteredPage, RegisteredVersion } from '../format/pages.ts';

/** The publication time that documents show for an unlisted version. */
const unlistedPublished = '1900-01-01T00:00:00+00:00';

/** https://learn.microsoft.com/nuget/api/registration-base-url-resource#registration-index */
export function registrationIndex(
  addresses: Addresses,
  hive: Hive,
  id: string,
  pages: readonly RegisteredPage[],
): Record<string, unknown> {
  const address = addresses.registrationIndex(hive, id);
  return {
    '@id': address,
    '@type': ['catalog:CatalogRoot', 'PackageRegistration', 'catalog:Permalink'],
    count: pages.length,
    items: pages.map(({ lower, upper, count, items }) => ({
      '@id': items ? `${address}#page/${lower}/${upper}` : addresses.registrationPage(hive, id, lower, upper),
      '@type': 'catalog:CatalogPage',
      count,
      items: items?.map((item) => pageLeaf(addresses, hive, id, item)),
      parent: address,
      lower,
      upper,
    })),
  };
}

/** https://learn.microsoft.com/nuget/api/registration-base-url-resource#registration-page */
export function registrationPage(
  addresses: Addresses,
  hive: Hive,
  id: string,
  bounds: { lower: string; upper: string },
  versions: readonly RegisteredVersion[],
): Record<string, unknown> {
  return {
    '@id': addresses.registrationPage(hive, id, bounds.lower, bounds.upper),
    '@type': 'catalog:CatalogPage',
    count: versions.length,
    items: versions.map((item) => pageLeaf(addresses, hive, id, item)),
    parent: addresses.registrationIndex(hive, id),
    lower: bounds.lower,
    upper: bounds.upper,
  };
}

/** https://learn.microsoft.com/nuget/api/registration-base-url-resource#registration-leaf */
export function registrationLeaf(
  addresses: Addresses,
  hive: Hive,
  id: string,
  version: RegisteredVersion,
): Record<string, unknown> {
  return {
    ...pageLeaf(addresses, hive, id, version),
    '@type': ['Package', 'catalog:Permalink'],
    listed: version.listed,
    published: publishedOf(version),
  };
}

function pageLeaf(addresses: Addresses, hive: Hive, id: string, version: RegisteredVersion): Record<string, unknown> {
  const { metadata } = version;
  const address = addresses.registrationLeaf(hive, id, version.version);
  const packageContent = addresses.file(id, version.version, 'nupkg');
  return {
    '@id': address,
    '@type': 'Package',
    catalogEntry: {
      '@id': address,
      '@type': 'PackageDetails',
      id: metadata.id,
      version: version.fullVersion,
      title: metadata.title,
      description: metadata.description ?? '',
      summary: metadata.summary,
      authors: metadata.authors ?? '',
      tags: metadata.tags ?? [],
      iconUrl: iconOf(addresses, id, version),
      readmeUrl: version.hasReadme ? addresses.file(id, version.version, 'readme') : undefined,
      projectUrl: metadata.projectUrl,
      licenseUrl: metadata.licenseUrl,
      licenseExpression: metadata.licenseExpression,
      requireLicenseAcceptance: metadata.requireLicenseAcceptance ?? false,
      minClientVersion: metadata.minClientVersion,
      language: metadata.language,
      packageTypes: metadata.packageTypes,
      dependencyGroups: metadata.dependencyGroups,
      deprecation: metadata.deprecation,
      vulnerabilities: metadata.vulnerabilities,
      listed: version.listed,
      published: publishedOf(version),
      packageHash: version.sha512,
      packageHashAlgorithm: version.sha512 === undefined ? undefined : 'SHA512',
      packageContent,
    },
    packageContent,
    registration: addresses.registrationIndex(hive, id),
  };
}

/** The address of the icon in the package, else the `iconUrl` of the nuspec. */
export function iconOf(
  addresses: Addresses,
  id: string,
  { version, hasIcon, metadata }: Pick<RegisteredVersion, 'version' | 'hasIcon' | 'metadata'>,
): string | undefined {
  return hasIcon ? addresses.file(id, version, 'icon') : metadata.iconUrl;
}

/** Undefined for a listed version of which the upstream states no date: an invented one would seem to be old to clients. */
function publishedOf({ listed, published, publishedAt }: RegisteredVersion): string | undefined {
  if (published !== undefined) return published;
  if (!listed) return unlistedPublished;
  return publishedAt === undefined ? undefined : new Date(publishedAt).toISOString().replace('Z', '+00:00');
}
