import type { Row } from '../../../src/database/database.ts';
import { digestOf, hexOf, type Digest } from '../../../src/runtime/digest.ts';
import { lowestFrameworks } from '../../../src/nuget/format/frameworks.ts';
import { bytesOfMetadata, metadataOf } from '../../../src/nuget/format/metadata.ts';
import { parseNuspec } from '../../../src/nuget/format/nuspec.ts';
import { packageKey, views } from '../../../src/nuget/hosted/packages.ts';
import { describeTerms, idTermsOf, indexVersion } from '../../../src/nuget/hosted/term-index.ts';
import { standingOf, termsOf, tierWidth, typeFlags } from '../../../src/nuget/format/terms.ts';
import * as versions from '../../../src/nuget/format/version.ts';
import { makeNuspec, type NuspecOptions } from '../../../test/support/builders/nupkg.ts';
import { numbers, pick, subjects, vendors, vocabulary } from './words.ts';

/** A generated package. */
export interface MadePackage {
  id: string;
  nuspec: NuspecOptions;
  /** The oldest first. */
  versions: string[];
  downloads: number;
}

/** The files of a version: their digests and sizes. */
export interface MadeFiles {
  nupkg: Digest;
  nuspec: Digest;
  /** In base64. */
  sha512: string;
  size: number;
  nuspecSize: number;
}

/** Keys of the next rows. */
export interface PackageKeys {
  accountId: number;
  package: number;
  firstVersion: number;
  now: number;
}

/**
 * Generates packages with different IDs: some vendors have many packages, few packages have many versions or downloads.
 * With `average`, each package has this many versions on average.
 */
export function* makePackages(count: number, average?: number): Generator<MadePackage> {
  const random = numbers(2);
  const below = (limit: number) => Math.floor(random() * limit);
  const words = (number: number, from: readonly string[]) => Array.from({ length: number }, () => pick(from, random));
  const seen = new Set<string>();
  while (seen.size < count) {
    const parts = [pick(vendors, random), ...words(1 + below(3), subjects)].map(capitalise);
    const last = random() < 0.3 ? capitalise(pick(vocabulary, random)) : '';
    const id = `${parts.join('.')}${last}`;
    if (seen.has(packageKey(id))) continue;
    seen.add(packageKey(id));
    const few = () => (random() < 0.75 ? 1 : 2 + Math.floor(14 * random() ** 3));
    const number = average === undefined ? few() : 1 + below(2 * average - 1);
    yield {
      id,
      nuspec: {
        title: random() < 0.3 ? parts.join(' ') : undefined,
        authors: parts[0],
        description: `${capitalise(words(8 + below(20), vocabulary).join(' '))}.`,
        tags: random() < 0.8 ? words(1 + below(6), vocabulary).join(' ') : undefined,
        projectUrl: `https://example.test/${packageKey(id)}`,
        dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [{ id: 'Contoso.Core', version: '1.0.0' }] }],
        ...(random() < 0.02 && { packageTypes: [{ name: 'DotnetTool' }] }),
      },
      versions: [
        ...(random() < 0.1 ? ['0.9.0-beta', '0.9.0-rc.1'] : []),
        ...Array.from({ length: number }, (_, index) => `1.${Math.floor(index / 4)}.${index % 4}`),
      ],
      downloads: Math.floor(10 ** (random() ** 3 * 7)) - 1,
    };
  }
}

/** What the files of a version could be. They do not exist. */
function noFiles({ id }: MadePackage, version: string): MadeFiles {
  return {
    nupkg: digestOf(`nupkg ${id} ${version}`),
    nuspec: digestOf(`nuspec ${id} ${version}`),
    sha512: Buffer.from(hexOf(digestOf(`${id} ${version}`, 'sha512')), 'hex').toString('base64'),
    size: 40_000,
    nuspecSize: 800,
  };
}

/** The rows of a pushed and downloaded package, by table; without `files`, those of its versions do not exist. */
export function rowsOf(
  made: MadePackage,
  keys: PackageKeys,
  files: readonly MadeFiles[] = made.versions.map((version) => noFiles(made, version)),
) {
  const { id, nuspec, versions: texts, downloads } = made;
  const metadata = metadataOf(parseNuspec(Buffer.from(makeNuspec({ id, version: texts[0], ...nuspec }))));
  const parsed = texts.map((text) => versions.parseVersion(text)!);
  const seen = parsed.map((version, index) => ({
    row: keys.firstVersion + index,
    prerelease: versions.isPrerelease(version),
    semVer2: versions.isSemVer2(version),
  }));
  const newest = (prerelease: boolean, semVer2: boolean) =>
    seen.findLast((each) => (prerelease || !each.prerelease) && (semVer2 || !each.semVer2))?.row ?? null;
  const latest = {
    [views.stable.latest]: newest(false, false),
    [views.pre.latest]: newest(true, false),
    [views.stable2.latest]: newest(false, true),
    [views.pre2.latest]: newest(true, true),
  };
  let flags = typeFlags(metadata.packageTypes);
  for (const view of Object.values(views)) flags |= latest[view.latest] === null ? 0 : view.bit;
  const terms = termsOf(metadata);
  const standing = standingOf(downloads);
  return {
    packages: [
      {
        id: keys.package,
        account_id: keys.accountId,
        package_key: packageKey(id),
        package_id: id,
        package_types: metadata.packageTypes.map(({ name }) => name).join(' '),
        version_count: texts.length,
        size_bytes: files.reduce((sum, { size }) => sum + size, 0),
        metadata_bytes: bytesOfMetadata(metadata) * texts.length,
        largest_metadata: bytesOfMetadata(metadata),
        has_deprecated: 0,
        download_count: downloads,
        standing,
        flags,
        ...latest,
        created_at: keys.now,
        updated_at: keys.now,
        last_downloaded_at: downloads > 0 ? keys.now : null,
        terms: describeTerms(terms),
        revision: texts.length,
        index_version: indexVersion,
        id_terms: idTermsOf(terms),
      },
    ],
    package_versions: parsed.map((version, index): Row => ({
      id: seen[index]!.row,
      package_row: keys.package,
      version_key: versions.versionKey(version),
      version: versions.normalize(version),
      full_version: versions.fullString(version),
      sort_key: versions.sortKey(version),
      listed: 1,
      prerelease: seen[index]!.prerelease ? 1 : 0,
      semver2: seen[index]!.semVer2 ? 1 : 0,
      published_at: keys.now,
      size_bytes: files[index]!.size,
      download_count: index === parsed.length - 1 ? downloads : 0,
      sha512: files[index]!.sha512,
      nupkg_digest: files[index]!.nupkg,
      nuspec_digest: files[index]!.nuspec,
      readme_digest: null,
      icon_digest: null,
      icon_type: null,
      snupkg_digest: null,
      metadata: JSON.stringify(metadata),
      deprecation: null,
      imported: null,
      metadata_bytes: bytesOfMetadata(metadata),
    })),
    package_blobs: files.flatMap(({ nupkg, nuspec: text }, index): Row[] =>
      [nupkg, text].map((digest) => ({ version_row: seen[index]!.row, digest })),
    ),
    blobs: files.flatMap(({ nupkg, nuspec: text, size, nuspecSize }): Row[] => [
      { digest: nupkg, size, stored_at: keys.now },
      { digest: text, size: nuspecSize, stored_at: keys.now },
    ]),
    package_dependencies: [...new Set((metadata.dependencyGroups ?? []).flatMap(dependencyKeys))].map((key): Row => ({
      account_id: keys.accountId,
      dependency_key: key,
      package_row: keys.package,
    })),
    package_frameworks: [...lowestFrameworks(metadata.dependencyGroups ?? [])].map(([family, version]): Row => ({
      package_row: keys.package,
      family,
      version,
    })),
    package_terms: terms.map(({ term, tier, fields }): Row => ({
      account_id: keys.accountId,
      term,
      package_row: keys.package,
      standing: tier * tierWidth + standing,
      fields,
      flags,
    })),
  };
}

function capitalise(word: string): string {
  return `${word[0]!.toUpperCase()}${word.slice(1)}`;
}

function dependencyKeys({ dependencies }: { dependencies?: readonly { id: string }[] | undefined }): string[] {
  return (dependencies ?? []).map(({ id }) => packageKey(id));
}
