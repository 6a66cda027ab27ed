import test from 'ava';
import {
  bytesOfMetadata,
  cut,
  metadataOf,
  parseMetadata,
  shorten,
  within,
} from '../../../src/nuget/format/metadata.ts';
import type { VersionMetadata } from '../../../src/nuget/format/metadata.ts';
import { parseNuspec } from '../../../src/nuget/format/nuspec.ts';
import { limitHits, maxVersions, versionsEach, type SearchHit } from '../../../src/nuget/format/search-hit.ts';
import { makeNuspec } from '../../support/builders/nupkg.ts';

/** Metadata whose texts and lists have the lengths of the limits, and `more` than that. */
function longest(more: number): VersionMetadata {
  const text = (length: number) => 'x'.repeat(length + more);
  const list = <T>(length: number, one: (at: number) => T) => Array.from({ length: length + more }, (_, at) => one(at));
  return {
    id: text(255),
    title: text(256),
    description: text(4000),
    summary: text(4000),
    authors: text(4000),
    owners: text(4000),
    tags: [text(1000), 'y'.repeat(3000)],
    projectUrl: text(2048),
    iconUrl: text(2048),
    licenseUrl: text(2048),
    licenseExpression: text(500),
    requireLicenseAcceptance: true,
    minClientVersion: text(255),
    language: text(255),
    packageTypes: list(16, () => ({ name: text(255), version: text(255) })),
    dependencyGroups: list(200, (at) => ({
      targetFramework: text(255),
      dependencies: Array.from({ length: at < 10 ? 100 : 0 }, () => ({ id: text(255), range: 'r'.repeat(255) })),
    })),
    deprecation: {
      reasons: list(16, () => text(255)),
      message: text(4000),
      alternatePackage: { id: 'x'.repeat(255), range: text(255) },
    },
    vulnerabilities: list(100, () => ({ advisoryUrl: 'x'.repeat(2048), severity: '3' })),
  };
}

test('metadata at its limits is complete, and above them it is shorter', (t) => {
  const whole = longest(0);
  t.deepEqual(shorten(whole), whole);
  t.deepEqual(parseMetadata(JSON.stringify(whole)), whole, 'that of older releases is shortened, too');
  const shortened = {
    ...whole,
    tags: ['x'.repeat(1001)],
    projectUrl: undefined,
    iconUrl: undefined,
    licenseUrl: undefined,
    licenseExpression: undefined,
    minClientVersion: undefined,
    packageTypes: whole.packageTypes.map(({ name }) => ({ name, version: undefined })),
    dependencyGroups: whole.dependencyGroups!.map(({ targetFramework }) => ({ targetFramework, dependencies: [] })),
    deprecation: { ...whole.deprecation!, alternatePackage: undefined },
  };
  t.deepEqual(shorten(longest(1)), shortened);
  t.deepEqual(parseMetadata(JSON.stringify(longest(1))), shortened);
  t.is(bytesOfMetadata({ id: 'ä', packageTypes: [] }), '{"id":"ä","packageTypes":[]}'.length + 1);
});

test('a dependency, an alternative or a vulnerability that is too long is left out alone', (t) => {
  const packageTypes = [{ name: 'Dependency' }];
  const dependencies = [
    { id: 'x'.repeat(256), range: '[1.0.0, )' },
    { id: 'A', range: 'r'.repeat(256) },
    { id: 'B', range: '[1.0.0, )' },
  ];
  const many = Array.from({ length: 600 }, (_, at) => ({ id: `d${at}`, range: '[1.0.0, )' }));
  const groups = [{ targetFramework: 'net8.0', dependencies }, { dependencies: many }, { dependencies: many }];
  const vulnerabilities = [
    { advisoryUrl: 'x'.repeat(2049), severity: '3' },
    { advisoryUrl: 'https://a.example/1', severity: '1' },
  ];
  const deprecation = {
    reasons: ['Legacy'],
    message: undefined,
    alternatePackage: { id: 'x'.repeat(256), range: '*' },
  };
  const short = shorten({ id: 'A', packageTypes, dependencyGroups: groups, vulnerabilities, deprecation });
  t.deepEqual(
    short.dependencyGroups!.map((group) => group.dependencies.length),
    [1, 600, 399],
    'all groups together have 1000',
  );
  t.deepEqual(short.dependencyGroups![0]!.dependencies, [{ id: 'B', range: '[1.0.0, )' }]);
  t.deepEqual(short.vulnerabilities, vulnerabilities.slice(1));
  t.deepEqual(short.deprecation, { ...deprecation, alternatePackage: undefined });
});

test('the metadata of a nuspec has what it says, and nothing for what it does not', (t) => {
  const file = metadataOf(
    parseNuspec(Buffer.from(makeNuspec().replace('<id>', '<license type="file">a</license><id>'))),
  );
  t.deepEqual(JSON.parse(JSON.stringify(file)), {
    id: 'Made.Package',
    description: file.description,
    authors: file.authors,
    packageTypes: [{ name: 'Dependency' }],
  });
  t.is(metadataOf(parseNuspec(Buffer.from(makeNuspec()))).licenseExpression, undefined);
  const dependencies = [{ id: 'A', version: '[1.0.0, )' }];
  const { tags, dependencyGroups } = metadataOf(parseNuspec(Buffer.from(makeNuspec({ tags: 'a b', dependencies }))));
  t.deepEqual(tags, ['a', 'b']);
  t.deepEqual(dependencyGroups, [{ targetFramework: undefined, dependencies: [{ id: 'A', range: '[1.0.0, )' }] }]);
  const text = '<license type="expression">MIT</license><requireLicenseAcceptance>true</requireLicenseAcceptance><id>';
  const { licenseExpression, requireLicenseAcceptance } = metadataOf(
    parseNuspec(Buffer.from(makeNuspec().replace('<id>', text))),
  );
  t.deepEqual([licenseExpression, requireLicenseAcceptance], ['MIT', true]);
});

test('a text is cut before half a character, and words as a whole', (t) => {
  t.is(cut('ab😀', 4), 'ab😀');
  t.is(cut('ab😀c', 3), 'ab');
  t.is(cut('ab😀c', 4), 'ab😀');
  t.is(cut(undefined, 1), undefined);
  t.deepEqual(within(['ab', 'c', 'd'], 3), ['ab', 'c']);
  t.deepEqual(within(['abcd', 'c'], 3), []);
});

const each = (at: number) => ({ version: `1.0.${at}`, fullVersion: `1.0.${at}`, downloads: at });

function hitOf(versions: number, text: number): SearchHit {
  const words = 'x'.repeat(text);
  return {
    version: '1.0.0',
    fullVersion: '1.0.0',
    hasIcon: false,
    totalDownloads: 0,
    metadata: {
      id: 'A',
      title: words,
      description: words,
      summary: words,
      authors: words,
      owners: words,
      tags: [words],
      packageTypes: [],
      deprecation: { reasons: [], message: words, alternatePackage: undefined },
    },
    versions: Array.from({ length: versions }, (_, at) => each(at)),
  };
}

test('few hits are complete; of many, each has a part of its texts and its newest versions', (t) => {
  const few = [hitOf(maxVersions - 1, 4000), hitOf(1, 4000)];
  t.deepEqual(limitHits(few), few);
  const [first, second] = limitHits([hitOf(maxVersions, 1), hitOf(1, 1)]);
  t.deepEqual([first!.versions.length, second!.versions.length], [10_000, 1]);
  t.is(first!.versions.at(-1)!.version, `1.0.${maxVersions - 1}`, 'the newest ones');
  const limit = Math.floor((4 * 2 ** 20) / 400 / 6);
  const [{ metadata }] = limitHits(Array.from({ length: 400 }, () => hitOf(1, 4000))) as [SearchHit];
  const { title, description, summary, authors, owners, tags, deprecation } = metadata;
  t.deepEqual(
    [description, summary, authors, owners, deprecation!.message].map((each) => each!.length),
    [limit, limit, limit, limit, limit],
  );
  t.deepEqual([title!.length, tags], [4000, []]);
  t.deepEqual(limitHits([]), []);
  t.deepEqual([versionsEach(0), versionsEach(3)], [maxVersions, 6666]);
});
