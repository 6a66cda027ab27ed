import type { DependencyGroup, Nuspec, PackageType } from './nuspec.ts';

/** Why a version should no longer be used, according to its upstream. */
export interface Deprecation {
  reasons: readonly string[];
  message: string | undefined;
  alternatePackage: { id: string; range: string } | undefined;
}

/** A known vulnerability of a version, according to its upstream. */
export interface Vulnerability {
  advisoryUrl: string;
  severity: string;
}

/** The metadata that registration and search show of a version. It is stored with the version. */
export interface VersionMetadata {
  /** The id as this version writes it. */
  id: string;
  title?: string;
  description?: string;
  summary?: string;
  /** Names separated by commas, as written. */
  authors?: string;
  owners?: string;
  tags?: readonly string[];
  projectUrl?: string;
  /** From the nuspec. An icon in the package is preferred. */
  iconUrl?: string;
  licenseUrl?: string;
  licenseExpression?: string;
  requireLicenseAcceptance?: boolean;
  minClientVersion?: string;
  language?: string;
  packageTypes: readonly PackageType[];
  dependencyGroups?: readonly DependencyGroup[];
  deprecation?: Deprecation;
  vulnerabilities?: readonly Vulnerability[];
}

/**
 * Limits of the metadata in documents, in characters and in numbers; the nupkg itself is complete. The public gallery
 * has the same limits for texts. A longer link or licence is not shown, because a part of it would be a different one.
 */
const max = {
  title: 256,
  /** Of a description, a summary, authors and owners each, and of all tags together. */
  text: 4000,
  link: 2048,
  /** Of identifiers: an id, a target framework, a range, a package type and others. */
  word: 255,
  licenseExpression: 500,
  packageTypes: 16,
  groups: 200,
  /** In all groups together. */
  dependencies: 1000,
  reasons: 16,
  vulnerabilities: 100,
} as const;

/** The part of `nuspec` that is stored with the version, within the limits. */
export function metadataOf(nuspec: Nuspec): VersionMetadata {
  return shorten({
    id: nuspec.id,
    title: nuspec.title,
    description: nuspec.description,
    summary: nuspec.summary,
    authors: nuspec.authors,
    owners: nuspec.owners,
    tags: nuspec.tags.length > 0 ? nuspec.tags : undefined,
    projectUrl: nuspec.projectUrl,
    iconUrl: nuspec.iconUrl,
    licenseUrl: nuspec.licenseUrl,
    licenseExpression: nuspec.license?.type === 'expression' ? nuspec.license.value : undefined,
    requireLicenseAcceptance: nuspec.requireLicenseAcceptance || undefined,
    minClientVersion: nuspec.minClientVersion,
    language: nuspec.language,
    packageTypes: nuspec.packageTypes,
    dependencyGroups: nuspec.dependencyGroups.length > 0 ? nuspec.dependencyGroups : undefined,
  });
}

/** Metadata from the database, within the limits: older releases stored longer texts. */
export function parseMetadata(text: string): VersionMetadata {
  return shorten(JSON.parse(text) as VersionMetadata);
}

/** The bytes that metadata takes in the database; in a document it takes about as many. */
export function bytesOfMetadata(metadata: VersionMetadata): number {
  return Buffer.byteLength(JSON.stringify(metadata));
}

/** Metadata within the limits for documents. */
export function shorten(metadata: VersionMetadata): VersionMetadata {
  return {
    ...metadata,
    id: cut(metadata.id, max.word)!,
    title: cut(metadata.title, max.title),
    description: cut(metadata.description, max.text),
    summary: cut(metadata.summary, max.text),
    authors: cut(metadata.authors, max.text),
    owners: cut(metadata.owners, max.text),
    tags: metadata.tags && within(metadata.tags, max.text),
    projectUrl: unlessLonger(metadata.projectUrl, max.link),
    iconUrl: unlessLonger(metadata.iconUrl, max.link),
    licenseUrl: unlessLonger(metadata.licenseUrl, max.link),
    licenseExpression: unlessLonger(metadata.licenseExpression, max.licenseExpression),
    minClientVersion: unlessLonger(metadata.minClientVersion, max.word),
    language: cut(metadata.language, max.word),
    packageTypes: metadata.packageTypes.slice(0, max.packageTypes).map(({ name, version }) => ({
      name: cut(name, max.word)!,
      version: unlessLonger(version, max.word),
    })),
    dependencyGroups: metadata.dependencyGroups && shortenGroups(metadata.dependencyGroups),
    deprecation: metadata.deprecation && shortenDeprecation(metadata.deprecation),
    vulnerabilities: metadata.vulnerabilities
      ?.filter(({ advisoryUrl }) => advisoryUrl.length <= max.link)
      .slice(0, max.vulnerabilities),
  };
}

function shortenGroups(groups: readonly DependencyGroup[]): DependencyGroup[] {
  let left: number = max.dependencies;
  return groups.slice(0, max.groups).map(({ targetFramework, dependencies }) => {
    const kept = dependencies
      .filter(({ id, range }) => id.length <= max.word && range.length <= max.word)
      .slice(0, left);
    left -= kept.length;
    return { targetFramework: cut(targetFramework, max.word), dependencies: kept };
  });
}

function shortenDeprecation({ reasons, message, alternatePackage: other }: Deprecation): Deprecation {
  return {
    reasons: reasons.slice(0, max.reasons).map((reason) => cut(reason, max.word)!),
    message: cut(message, max.text),
    alternatePackage: other && other.id.length <= max.word && other.range.length <= max.word ? other : undefined,
  };
}

/** The first words that together have at most `length` characters. */
export function within(words: readonly string[], length: number): string[] {
  let left = length;
  const kept = [];
  for (const word of words) {
    left -= word.length;
    if (left < 0) break;
    kept.push(word);
  }
  return kept;
}

/** The start of a text, as a copy that does not keep the whole text in memory. Never ends in half a surrogate pair. */
export function cut(text: string | undefined, length: number): string | undefined {
  if (text === undefined || text.length <= length) return text;
  return Buffer.from(text.slice(0, length).replace(/[\ud800-\udbff]$/, '')).toString();
}

function unlessLonger(text: string | undefined, length: number): string | undefined {
  return text === undefined || text.length <= length ? text : undefined;
}
