import type { DependencyGroup, Nuspec, PackageType } from './nuspec.ts';

/** Why a version should not be used any more, as its upstream says. */
export interface Deprecation {
  reasons: readonly string[];
  message: string | undefined;
  alternatePackage: { id: string; range: string } | undefined;
}

/** A known weakness of a version, as its upstream says. */
export interface Vulnerability {
  advisoryUrl: string;
  severity: string;
}

/** What registration and search show of a version, as it is kept with it. */
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
  /** Of the nuspec; an icon in the package goes before it. */
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

/** The longest description and summary that are kept: what the public gallery takes. */
const maxTextLength = 4000;

/** What is kept of `nuspec`. */
export function metadataOf(nuspec: Nuspec): VersionMetadata {
  return {
    id: nuspec.id,
    title: nuspec.title?.slice(0, 256),
    description: nuspec.description?.slice(0, maxTextLength),
    summary: nuspec.summary?.slice(0, maxTextLength),
    authors: nuspec.authors?.slice(0, maxTextLength),
    owners: nuspec.owners?.slice(0, maxTextLength),
    tags: nuspec.tags.length > 0 ? nuspec.tags.slice(0, 200) : undefined,
    projectUrl: nuspec.projectUrl,
    iconUrl: nuspec.iconUrl,
    licenseUrl: nuspec.licenseUrl,
    licenseExpression: nuspec.license?.type === 'expression' ? nuspec.license.value : undefined,
    requireLicenseAcceptance: nuspec.requireLicenseAcceptance || undefined,
    minClientVersion: nuspec.minClientVersion,
    language: nuspec.language,
    packageTypes: nuspec.packageTypes,
    dependencyGroups: nuspec.dependencyGroups.length > 0 ? nuspec.dependencyGroups : undefined,
  };
}

/** Metadata as the database holds it. */
export function parseMetadata(text: string): VersionMetadata {
  return JSON.parse(text) as VersionMetadata;
}
