import { readsHosted, type Principal } from '../../accounts/principal.ts';
import { jsonItem } from '../../runtime/json-item.ts';
import type { z } from 'zod';
import { type packageVersionDetails } from '../../api/content/content-schemas.ts';
import { originFields } from '../../api/framework/schemas.ts';
import { inTime } from '../../runtime/in-time.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { readAll } from '../../storage/files/content.ts';
import { cut, metadataOf, type Deprecation, type VersionMetadata, type Vulnerability } from '../format/metadata.ts';
import { readPart } from '../format/nupkg.ts';
import { maxNuspecBytes, type Nuspec } from '../format/nuspec.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { openFile } from '../hosted/files.ts';
import { keyOfVersion, versionNotFound } from '../hosted/packages.ts';
import { getVersion, type VersionSummary } from '../hosted/summary.ts';
import type { PackageSource } from '../source/package-source.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import { readNuspec } from '../format/nuspec-reading.ts';
import { severities } from '../../mirror/policy/severities.ts';
import { isShared } from '../source/reader.ts';
import { marksOfRange, vulnerabilitiesOf, type Finding, type Findings, type FindingsOfAccount } from './findings.ts';
import type { MirroredPackages } from '../upstream/mirrored-packages.ts';

export interface DetailsParts {
  feed: FeedContext;
  source: PackageSource;
  views: FeedViews;
  mirrored: MirroredPackages;
  findings: Findings;
}

type Details = z.input<typeof packageVersionDetails>;

/** Most characters of a README and of release notes in an answer. */
const maxReadmeLength = 100_000;
const maxNotesLength = 4000;
/** Most bytes of a README that is read. */
const readmeBytes = 2 ** 20;
/** Most milliseconds that an answer waits for what an upstream says about a version, and for the marks of its dependencies. */
const patience = 1500;
const markPatience = 300;

/**
 * One version with its metadata, from the stored package itself. What an upstream says about a mirrored version (whether
 * it is listed, deprecated or vulnerable) comes from the documents of the mirror, which may be fetched again. Throws
 * `NotFound` for a version that is not stored here. `reader` is the account as which hosted versions are read (`readerOf`).
 */
export async function versionDetails(
  parts: DetailsParts,
  { principal, owner, reader }: { principal: Principal; owner: number; reader: number },
  id: string,
  version: string,
): Promise<Details> {
  const { accountId } = principal;
  const isKnown = knownTo(principal);
  const key = keyOfVersion(version);
  const hosted = key === undefined ? undefined : await getVersion(parts.feed.database, reader, id, key);
  if (hosted) {
    const bytes = await readHosted(parts.feed, reader, id, hosted.version);
    const { deprecation, vulnerabilities = [] } = hosted.metadata;
    return detailsOf(
      hosted,
      bytes,
      { deprecation, vulnerabilities, isKnown: true },
      marksIn(await parts.findings.within(markPatience, accountId), isKnown),
    );
  }
  const isHere = key !== undefined && !isShared(principal, owner);
  const found = isHere ? await parts.mirrored.version(owner, id, key) : undefined;
  if (!found) throw versionNotFound(id, version);
  const open = () => parts.feed.blobs.open(found.nupkg.digest, found.nupkg.size);
  const [nuspec, readme, advice] = await Promise.all([
    unlessDamaged(() => readPart(open, 'nuspec')),
    unlessDamaged(() => readPart(open, 'readme')),
    adviceOf(parts, owner, id, key!),
  ]);
  const marks = marksIn(parts.findings.known(accountId), isKnown);
  return detailsOf(found, { nuspec: nuspec?.bytes, readme: readme?.bytes }, advice, marks);
}

/** Whether a principal may know of a finding in its account. */
function knownTo(principal: Principal): (finding: Finding) => boolean {
  const only = principal.names?.of('package');
  const areHosted = readsHosted(principal);
  return ({ key, upstream }) => (only?.includes(key) ?? true) && (areHosted || upstream !== null);
}

/** What is warned of at the version that NuGet chooses for a dependency. */
type MarksOfDependency = (id: string, range: string) => ReturnType<typeof marksOfRange>;

function marksIn(known: FindingsOfAccount, isKnown: (finding: Finding) => boolean): MarksOfDependency {
  return (id, range) => marksOfRange(known, id, range, isKnown);
}

interface Parts {
  nuspec: Buffer | undefined;
  readme: Buffer | undefined;
}

async function readHosted(feed: FeedContext, accountId: number, id: string, version: string): Promise<Parts> {
  const read = async (kind: 'nuspec' | 'readme', limit: number) =>
    unlessDamaged(async () => {
      const file = await openFile(feed, accountId, id, version, kind);
      return file && readAll(file.content, limit);
    });
  return { nuspec: await read('nuspec', maxNuspecBytes), readme: await read('readme', readmeBytes) };
}

/** Undefined if the content is damaged or cannot be read: the rest of the answer is still of use. */
async function unlessDamaged<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (isDomainError(error)) return undefined;
    throw error;
  }
}

/** What an upstream says about a version. */
interface Advice {
  /** Undefined if it is not known. */
  listed?: boolean;
  deprecation?: Deprecation | undefined;
  vulnerabilities: readonly Vulnerability[];
  isKnown: boolean;
}

/** From the registration and from the vulnerability data: a feed can have an advisory in one of them only. */
async function adviceOf(parts: DetailsParts, accountId: number, id: string, key: string): Promise<Advice> {
  const [found, known] = await Promise.all([
    ifAnswered(parts.source.versions(accountId, id, true, key, key)),
    ifAnswered(parts.findings.of(accountId)),
  ]);
  const registered = found?.value.find((each) => keyOfVersion(each.version) === key);
  const { deprecation, vulnerabilities = [] } = registered?.metadata ?? {};
  const byUrl = new Map(vulnerabilities.map((each) => [each.advisoryUrl, each]));
  for (const { url, severity } of vulnerabilitiesOf(known, id, key)) {
    if (!byUrl.has(url)) byUrl.set(url, { advisoryUrl: url, severity: String(severity) });
  }
  return {
    ...(registered && { listed: registered.listed }),
    deprecation,
    vulnerabilities: [...byUrl.values()],
    isKnown: registered !== undefined,
  };
}

/** Undefined if the upstream fails or does not answer in time. Its answer is stored for the next request. */
function ifAnswered<T>(work: Promise<T>): Promise<T | undefined> {
  const known = work.catch((error: unknown) => {
    if (isUpstreamFailure(error) || isDomainError(error)) return undefined;
    throw error;
  });
  return inTime(() => known, patience, { late: () => undefined, ref: false });
}

async function detailsOf(
  row: VersionSummary & { id: string; upstream: string | null },
  { nuspec: nuspecBytes, readme }: Parts,
  advice: Advice,
  marksOfDependency: MarksOfDependency,
): Promise<Details> {
  const nuspec = nuspecBytes && (await readable(nuspecBytes));
  const metadata: Partial<VersionMetadata> = nuspec ? metadataOf(nuspec) : {};
  const text = readme?.toString('utf8').replace(/^\uFEFF/, '');
  const groups = metadata.dependencyGroups ?? [];
  const { version, publishedAt, cachedAt, withdrawnAt, sizeBytes, sha512, downloadCount } = row;
  return {
    ...jsonItem({ version, publishedAt, cachedAt, withdrawnAt, sizeBytes, sha512, downloadCount }),
    listed: advice.listed ?? row.listed,
    id: metadata.id ?? row.id,
    ...originFields(row.upstream),
    package_types: (metadata.packageTypes ?? []).map(({ name }) => name),
    title: metadata.title ?? null,
    description: metadata.description ?? null,
    authors: metadata.authors ?? null,
    tags: [...(metadata.tags ?? [])],
    copyright: cut(nuspec?.copyright, 500) ?? null,
    release_notes: cut(nuspec?.releaseNotes, maxNotesLength) ?? null,
    project_url: metadata.projectUrl ?? null,
    repository_url: cut(nuspec?.repository?.url, 2048) ?? null,
    repository_commit: cut(nuspec?.repository?.commit, 255) ?? null,
    license_expression: metadata.licenseExpression ?? null,
    license_file: nuspec?.license?.type === 'file' ? cut(nuspec.license.value, 255)! : null,
    license_url: metadata.licenseUrl ?? null,
    requires_license_acceptance: metadata.requireLicenseAcceptance ?? false,
    development_dependency: nuspec?.developmentDependency ?? false,
    min_client_version: metadata.minClientVersion ?? null,
    dependency_groups: groups.map(({ targetFramework, dependencies }) => ({
      target_framework: targetFramework ?? null,
      dependencies: dependencies.map(({ id, range }) => ({ id, range, ...marksOfDependency(id, range) })),
    })),
    has_icon: nuspec?.icon !== undefined,
    readme: cut(text, maxReadmeLength) ?? null,
    is_readme_whole: text === undefined || text.length <= maxReadmeLength,
    deprecation: advice.deprecation ? deprecationOf(advice.deprecation) : null,
    vulnerabilities: advice.vulnerabilities.map(({ advisoryUrl, severity }) => ({
      advisory_url: advisoryUrl,
      severity: severities[Number(severity)] ?? severity.slice(0, 20),
    })),
    is_advice_known: advice.isKnown,
  };
}

function deprecationOf({ reasons, message, alternatePackage }: Deprecation): NonNullable<Details['deprecation']> {
  return { reasons: [...reasons], message: message ?? null, alternate_package: alternatePackage ?? null };
}

/** Undefined for a nuspec that cannot be read: older releases accepted others. */
async function readable(bytes: Buffer): Promise<Nuspec | undefined> {
  try {
    return await readNuspec(bytes, { isPublished: true });
  } catch (error) {
    if (isDomainError(error)) return undefined;
    throw error;
  }
}
