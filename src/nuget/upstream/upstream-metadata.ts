import { shorten, type Deprecation, type VersionMetadata, type Vulnerability } from '../format/metadata.ts';
import type { DependencyGroup } from '../format/nuspec.ts';

// Converts metadata in an upstream's JSON to metadata of this feed. Values of a wrong type are ignored.

export type Json = Record<string, unknown>;

/** Recognises links of an upstream to itself: a client that followed one would bypass this server. */
export interface OwnLinks {
  /** Whether a link points to the upstream's flat container, whose files this server also serves. */
  isFlat(link: unknown): boolean;
  isOwn(link: string): boolean;
}

/** For the upstream at `base` with the flat container at `flat`. */
export function ownLinks(base: URL, flat: string): OwnLinks {
  const hosts = new Set([base.host, new URL(flat).host]);
  return {
    isFlat: (link) => typeof link === 'string' && (URL.parse(link)?.href.startsWith(new URL(flat).href) ?? false),
    isOwn: (link) => hosts.has(URL.parse(link)?.host ?? ''),
  };
}

/** The metadata in a catalog entry of a registration, or in a search hit: both use the same names. */
export function metadataIn(entry: Json, own: OwnLinks): VersionMetadata {
  const linkOf = (value: unknown): string | undefined =>
    typeof value === 'string' && /^https?:\/\//i.test(value) && !own.isOwn(value) ? value : undefined;
  return shorten({
    id: textOf(entry['id']) ?? '',
    title: textOf(entry['title']),
    description: textOf(entry['description']),
    summary: textOf(entry['summary']),
    authors: listOf(entry['authors']).join(', '),
    tags: listOf(entry['tags']),
    projectUrl: linkOf(entry['projectUrl']),
    iconUrl: linkOf(entry['iconUrl']),
    licenseUrl: linkOf(entry['licenseUrl']),
    licenseExpression: textOf(entry['licenseExpression']),
    requireLicenseAcceptance: entry['requireLicenseAcceptance'] === true,
    minClientVersion: textOf(entry['minClientVersion']),
    language: textOf(entry['language']),
    packageTypes: objectsIn(entry['packageTypes']).map((each) => ({ name: textOf(each['name']) ?? 'Dependency' })),
    dependencyGroups: groupsOf(entry['dependencyGroups']),
    deprecation: deprecationOf(objectOf(entry['deprecation'])),
    vulnerabilities: vulnerabilitiesOf(entry['vulnerabilities'], linkOf),
  });
}

function groupsOf(json: unknown): DependencyGroup[] | undefined {
  const groups = objectsIn(json).map((group) => ({
    targetFramework: textOf(group['targetFramework']),
    dependencies: objectsIn(group['dependencies']).flatMap(({ id, range }) =>
      typeof id === 'string' ? [{ id, range: textOf(range) ?? '(, )' }] : [],
    ),
  }));
  return groups.length > 0 ? groups : undefined;
}

/** Undefined without a reason. */
export function deprecationOf(json: Json): Deprecation | undefined {
  const reasons = listOf(json['reasons']);
  if (reasons.length === 0) return undefined;
  const { id, range } = objectOf(json['alternatePackage']);
  return {
    reasons,
    message: textOf(json['message']),
    alternatePackage: typeof id === 'string' ? { id, range: textOf(range) ?? '*' } : undefined,
  };
}

function vulnerabilitiesOf(json: unknown, linkOf: (value: unknown) => string | undefined): Vulnerability[] | undefined {
  const list = objectsIn(json).flatMap(({ advisoryUrl, severity }) => {
    const link = linkOf(advisoryUrl);
    return link === undefined ? [] : [{ advisoryUrl: link, severity: String(Number(severity) || 0) }];
  });
  return list.length > 0 ? list : undefined;
}

export function objectOf(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

export function objectsIn(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(objectOf) : [];
}

export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The texts of a list; a single text counts as a list. */
function listOf(value: unknown): string[] {
  return (Array.isArray(value) ? value : [value]).filter((each) => typeof each === 'string' && each !== '') as string[];
}
