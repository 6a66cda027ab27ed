import test from 'ava';
import type { KnownAdvisory } from '../../../src/mirror/policy/admission.ts';
import { parseVersion } from '../../../src/nuget/format/version.ts';
import { fixesAmong } from '../../../src/nuget/upstream/fixes.ts';
import { read, type ReadingKind, type ReadingOptions } from '../../../src/nuget/upstream/reading/readers.ts';
import { pagesIn, registeredOf, versionsIn, withKept } from '../../../src/nuget/upstream/registration-pages.ts';
import { serviceResources } from '../../../src/nuget/upstream/service-index.ts';

// What is read of documents of upstreams, with values of wrong types and beyond the bounds.

const base = { base: 'https://up.test/v3/', flat: 'https://files.test/flat/' };
const options = { index: true, key: 'lib', semVer2: true, ...base };

const linesOf = <Kind extends ReadingKind>(kind: Kind, document: unknown, of: ReadingOptions[Kind]) =>
  read(kind, Buffer.from(typeof document === 'string' ? document : JSON.stringify(document)), of, {
    of: 'upstream',
    id: 'up',
  });

const otherForm = { message: 'it is not a JSON document of the expected form' };

const many = (count: number) => Array.from({ length: count }, () => 0);

test('lists of versions are in order, without what is no version', async (t) => {
  const versions = ['2.0', '10.0.0', 7, '1.0.0-Beta', 'x', null, '1.0.0+build', '2.0.0'];
  t.deepEqual(await linesOf('flat', { versions }, {}), ['1.0.0-beta', '1.0.0', '2.0.0', '10.0.0']);
  t.deepEqual(await linesOf('version-list', { data: versions }, {}), [
    '1.0.0-Beta',
    '1.0.0+build',
    '2.0',
    '2.0.0',
    '10.0.0',
  ]);
  t.deepEqual(await linesOf('flat', { versions: [] }, {}), []);
  t.deepEqual(await linesOf('flat', '\ufeff{"versions": ["1.0"]}', {}), ['1.0.0']);
  await t.throwsAsync(linesOf('flat', '{"versions": [] \ufeff}', {}), { name: 'SyntaxError' });
  for (const document of [{}, { versions: {} }, [], 'null', '1', '"a"']) {
    await t.throwsAsync(linesOf('flat', document, {}), otherForm, JSON.stringify(document));
    await t.throwsAsync(linesOf('version-list', document, {}), otherForm, JSON.stringify(document));
  }
  // The bounds are far above what is read at once.
  t.deepEqual(await linesOf('flat', { versions: many(100_000) }, {}), []);
  await t.throwsAsync(linesOf('flat', { versions: many(100_001) }, {}), { message: /expected form/ });
  t.deepEqual(await linesOf('version-list', { data: [...many(100_000), '1.0'] }, {}), []);
  t.deepEqual(await linesOf('version-list', { data: [...many(99_999), '1.0'] }, {}), ['1.0']);
});

const at = (id: unknown, type: unknown) => ({ '@id': id, '@type': type });

test('of a service index, each type has its first usable address', async (t) => {
  const long = `https://up.test/${'x'.repeat(2048 - 16)}`;
  const { value, items } = await serviceResources.make([
    JSON.stringify({
      resources: [
        null,
        at('ftp://up.test/', 'A'),
        at('xhttp://up.test/', 'A'),
        at('https://', 'A'),
        at(7, 'A'),
        at(`${long}x`, 'A'),
        at(long, 'A'),
        at('HTTP://up.test/b', ['A', 7, 'B']),
        at('http://up.test/c', 'B'),
      ],
    }),
  ]);
  t.deepEqual(
    [...value],
    [
      ['A', long],
      ['B', 'HTTP://up.test/b'],
    ],
  );
  t.is(items, 2);
  for (const document of ['{}', '{"resources":{}}'])
    t.throws(() => serviceResources.make([document]), { message: 'it is no service index' });
});

const hitsOf = async (document: unknown) => JSON.parse((await linesOf('hits', document, base))[0]!);

const idsOf = async (document: unknown) => JSON.parse((await linesOf('ids', document, {}))[0]!) as object;

test('ids and hits of a search are read up to the bounds', async (t) => {
  t.deepEqual(await idsOf({ totalHits: 9, data: ['A', 7, 'a b', 'B.C'] }), { totalHits: 9, data: ['A', 'B.C'] });
  t.deepEqual(await idsOf({ totalHits: '9', data: ['A', 7] }), { totalHits: 2, data: ['A'] });
  const ids = Array.from({ length: 1001 }, (_, at) => `id${at}`);
  t.deepEqual(await idsOf({ data: ids }), { totalHits: 1001, data: ids.slice(0, 1000) });
  const plain = { id: 'A', version: '1.0' };
  t.deepEqual(await hitsOf({ totalHits: 3, data: [null, { id: 'a b', version: '1.0' }, { id: 'A' }, plain] }), {
    totalHits: 3,
    data: [
      {
        version: '1.0.0',
        fullVersion: '1.0.0',
        hasIcon: false,
        metadata: { id: 'A', authors: '', tags: [], requireLicenseAcceptance: false, packageTypes: [] },
        totalDownloads: 0,
        versions: [],
      },
    ],
  });
  const versions = [null, { version: 'x' }, { version: '1.0+b', downloads: 'many' }, { version: '2.0', downloads: 7 }];
  const full = {
    id: 'A',
    version: '2.0-Beta+x',
    totalDownloads: 12,
    iconUrl: 'https://files.test/flat/a/2.0.0/icon',
    dependencyGroups: [{ dependencies: [{ id: 'B' }] }],
    versions,
  };
  t.like((await hitsOf({ data: [full] })).data[0], {
    version: '2.0.0-Beta',
    fullVersion: '2.0.0-Beta+x',
    hasIcon: true,
    totalDownloads: 12,
    metadata: { iconUrl: undefined, dependencyGroups: undefined },
    versions: [
      { version: '1.0.0', fullVersion: '1.0.0+b', downloads: 0 },
      { version: '2.0.0', fullVersion: '2.0.0', downloads: 7 },
    ],
  });
  // Clients of .NET can read no other numbers, and then show no hit at all, those of others included.
  for (const number of [-1, 0.5, 1e300, '1e999']) {
    const hit = { ...plain, totalDownloads: number, versions: [{ version: '1.0', downloads: number }] };
    const { totalHits, data } = await hitsOf({ totalHits: number, data: [hit] });
    t.deepEqual([totalHits, data[0].totalDownloads, data[0].versions[0].downloads], [1, 0, 0], String(number));
  }
  const large = await hitsOf({ totalHits: 2 ** 40, data: [{ ...plain, totalDownloads: 2 ** 50 }] });
  t.deepEqual([large.totalHits, large.data[0].totalDownloads], [2 ** 31 - 1, 2 ** 40]);
  const many = Array.from({ length: 1001 }, (_, at) => ({ version: `1.0.${at}` }));
  const shown = (await hitsOf({ data: [{ ...plain, versions: many }] })).data[0].versions;
  t.deepEqual([shown.length, shown[0].version], [1000, '1.0.1'], 'the newest ones');
  // Some servers list the newest version first.
  const turned = (await hitsOf({ data: [{ ...plain, versions: many.toReversed() }] })).data[0].versions;
  t.deepEqual(turned, shown);
  for (const kind of ['ids', 'hits'] as const)
    for (const document of [{}, { data: {} }])
      await t.throwsAsync(linesOf(kind, document, base), otherForm, JSON.stringify(document));
});

test('vulnerability data is read as it is, and a list is none', async (t) => {
  t.deepEqual(await linesOf('vulnerabilities', { lib: [{ severity: 1 }], 'a"b': 7 }, {}), [
    '"lib"',
    '[{"severity":1}]',
    '"a\\"b"',
    '7',
  ]);
  t.deepEqual(await linesOf('vulnerabilities', {}, {}), []);
  await t.throwsAsync(linesOf('vulnerabilities', [], {}), otherForm);
  t.deepEqual(await linesOf('short', { a: [1] }, {}), ['{"a":[1]}']);
});

const leaf = (version: string, more: object = {}, outer: object = {}) => ({
  ...outer,
  catalogEntry: { id: 'Lib', version, ...more },
});

const empty = (count: number) => ({ items: Array.from({ length: count }, () => 0) });

test('of a registration, pages and versions are read, and what clients cannot use is left out', async (t) => {
  const index = {
    items: [
      {
        lower: '2.0',
        upper: '3.0-A',
        count: 5,
        '@id': 'https://up.test/page',
        commitTimeStamp: '2024-01-02T03:04:05Z',
      },
      { lower: '1.0', upper: '1.5', count: '2', items: [leaf('1.5.0'), leaf('1.0'), leaf('x'), null] },
      { lower: 'x', upper: '1.0', '@id': 'https://up.test/x' },
      { lower: '1.0', upper: 'x', '@id': 'https://up.test/x' },
      { lower: '1.0', upper: '1.0', '@id': 7 },
      null,
      { lower: '4.0', upper: '5.0', items: [leaf('4.0', { id: 'Other' }), leaf('4.1', { id: 'LIB' })] },
    ],
  };
  const { value: pages, items } = await pagesIn(await linesOf('registration', index, options));
  t.deepEqual(
    pages.map(({ first, last, versions, ...page }) => [
      page,
      first.original,
      last.original,
      versions?.map(({ version, publishedAt }) => [version, publishedAt]),
    ]),
    [
      [
        {
          lower: '2.0.0',
          upper: '3.0.0-A',
          count: 5,
          address: 'https://up.test/page',
          changedAt: Date.UTC(2024, 0, 2, 3, 4, 5),
        },
        '2.0.0',
        '3.0.0-A',
        undefined,
      ],
      [
        { lower: '1.0.0', upper: '1.5.0', count: 0 },
        '1.0.0',
        '1.5.0',
        [
          ['1.0.0', undefined],
          ['1.5.0', undefined],
        ],
      ],
      [{ lower: '4.0.0', upper: '5.0.0', count: 0 }, '4.0.0', '5.0.0', [['4.1.0', undefined]]],
    ],
  );
  t.is(items, 6 + 4 * 3);
  for (const [count, read] of [
    [-1, 0],
    [1.5, 0],
    [1e300, 0],
    [64, 64],
    [2 ** 40, 100_000],
  ] as const) {
    const { value } = await pagesIn(await linesOf('registration', { items: [{ ...index.items[0], count }] }, options));
    t.is(value[0]!.count, read, String(count));
  }
  const page = await versionsIn(
    await linesOf(
      'registration',
      { items: [leaf('2.0'), leaf('3.0'), leaf('1.0'), leaf('4.0', { id: 7 })] },
      { ...options, index: false },
    ),
  );
  t.deepEqual([page.value.map(({ version }) => version), page.items], [['1.0.0', '2.0.0', '3.0.0'], 3]);
  for (const how of [options, { ...options, index: false }])
    for (const document of [{}, { items: {} }])
      await t.throwsAsync(linesOf('registration', document, how), otherForm, JSON.stringify(document));
  t.deepEqual(await linesOf('registration', empty(2000), options), []);
  await t.throwsAsync(linesOf('registration', empty(2001), options), otherForm);
  const inPages = (count: number) => ({ items: [{ items: empty(count).items }, { items: [0] }] });
  t.deepEqual(await linesOf('registration', inPages(99_999), options), []);
  await t.throwsAsync(linesOf('registration', inPages(100_000), options), { message: /expected form/ });
});

async function versionOf(more: object, outer: object = {}, of: object = {}) {
  const lines = await linesOf(
    'registration',
    { items: [leaf('1.0.0', more, outer)] },
    { ...options, index: false, ...of },
  );
  const [found] = (await versionsIn(lines)).value;
  return found && { ...registeredOf(found), at: found.publishedAt, size: found.bytes };
}

const dependsOn = (range: unknown) => ({ dependencyGroups: [{ dependencies: [{ id: 'A', range }] }] });

test('what a registration says of a version', async (t) => {
  const at = Date.UTC(2024, 0, 2, 3, 4, 5);
  const zone = process.env['TZ'];
  t.teardown(() => {
    if (zone === undefined) delete process.env['TZ'];
    else process.env['TZ'] = zone;
  });
  process.env['TZ'] = 'America/New_York';
  for (const published of ['2024-01-02T03:04:05Z', '2024-01-02T03:04:05', '2024-01-02T05:04:05.000+02:00'])
    t.like(await versionOf({ published }), { at, publishedAt: at, published, listed: true }, published);
  const hidden = { published: '1900-01-01T00:00:00+00:00' };
  t.like(await versionOf(hidden, { commitTimeStamp: '2024-01-02T03:04:05Z' }), { at, listed: false });
  t.like(await versionOf({ ...hidden, commitTimeStamp: '2024-01-02T03:04:05Z' }), { at, listed: false });
  t.like(await versionOf({ listed: false }), {
    listed: false,
    publishedAt: undefined,
    published: undefined,
    at: undefined,
  });
  t.like(await versionOf({ published: 'soon', listed: true }), { listed: true, publishedAt: undefined, at: undefined });
  t.is((await versionOf({ packageHash: 'AAAA', packageHashAlgorithm: 'SHA512' }))?.sha512, 'AAAA');
  t.is((await versionOf({ packageHash: 'AAAA', packageHashAlgorithm: 'SHA256' }))?.sha512, undefined);
  t.is((await versionOf({ packageHashAlgorithm: 'SHA512' }))?.sha512, undefined);
  const old = { semVer2: false };
  for (const range of ['[1.0.0-a.b, )', '[1.0.0+b, )']) {
    t.is(await versionOf(dependsOn(range), {}, old), undefined, range);
    t.truthy(await versionOf(dependsOn(range)), range);
  }
  const [plain, other] = [dependsOn('[1.0.0, )').dependencyGroups[0]!, dependsOn('[1.0.0-a.b, )').dependencyGroups[0]!];
  const both = { dependencies: [...plain.dependencies, ...other.dependencies] };
  t.is(await versionOf({ dependencyGroups: [plain, both] }, {}, old), undefined, 'one of several');
  for (const range of ['[1.0.0-a, )', '[1.0.0, )', '-', 7, -7])
    t.truthy(await versionOf(dependsOn(range), {}, old), `${range}`);
  t.is(await versionOf({ version: '1.0.0-a.b' }, {}, old), undefined);
});

test('metadata of an upstream: values of wrong types are ignored, and its own links are left out', async (t) => {
  const metadataOf = async (more: object) => (await versionOf(more))!.metadata as unknown;
  const none = { id: 'Lib', authors: '', tags: [], requireLicenseAcceptance: false, packageTypes: [] };
  t.deepEqual(await metadataOf({}), none);
  const names = ['title', 'description', 'summary', 'licenseExpression', 'minClientVersion', 'language'];
  const links = ['projectUrl', 'iconUrl', 'licenseUrl'];
  const all = (value: unknown) => Object.fromEntries([...names, ...links].map((name) => [name, value]));
  for (const value of [7, '', null, ['x']])
    t.deepEqual(await metadataOf({ ...all(value), requireLicenseAcceptance: 'true', dependencyGroups: 7 }), none);
  for (const url of ['https://up.test/x', 'https://files.test/x', 'ftp://a.test/', 'javascript:https://a.test/', 'x'])
    t.deepEqual(
      await metadataOf({ projectUrl: url, iconUrl: url, licenseUrl: url, vulnerabilities: [{ advisoryUrl: url }] }),
      none,
      url,
    );
  const texts = Object.fromEntries(names.map((name) => [name, `a ${name}`]));
  const urls = Object.fromEntries(links.map((name) => [name, `HTTP://a.test/${name}`]));
  t.deepEqual(
    await metadataOf({
      ...texts,
      ...urls,
      authors: ['Ann', 7, '', 'Bob'],
      tags: 'one',
      requireLicenseAcceptance: true,
      packageTypes: [{ name: 'DotnetTool' }, {}, null],
      dependencyGroups: [
        { targetFramework: 'net8.0', dependencies: [{ id: 'A', range: '[1.0, )' }, { id: 'B' }, { id: 7 }, null] },
        {},
      ],
      deprecation: { reasons: ['Legacy'], message: 'm', alternatePackage: { id: 'New' } },
      vulnerabilities: [{ advisoryUrl: 'https://a.test/1', severity: '2' }, { advisoryUrl: 'https://a.test/2' }, {}],
    }),
    {
      id: 'Lib',
      ...texts,
      ...urls,
      authors: 'Ann, Bob',
      tags: ['one'],
      requireLicenseAcceptance: true,
      packageTypes: [{ name: 'DotnetTool' }, { name: 'Dependency' }, { name: 'Dependency' }],
      dependencyGroups: [
        {
          targetFramework: 'net8.0',
          dependencies: [
            { id: 'A', range: '[1.0, )' },
            { id: 'B', range: '(, )' },
          ],
        },
        { dependencies: [] },
      ],
      deprecation: { reasons: ['Legacy'], message: 'm', alternatePackage: { id: 'New', range: '*' } },
      vulnerabilities: [
        { advisoryUrl: 'https://a.test/1', severity: '2' },
        { advisoryUrl: 'https://a.test/2', severity: '0' },
      ],
    },
  );
  const deprecated = (more: object) => metadataOf({ deprecation: { reasons: ['Legacy'], ...more } });
  t.deepEqual(await deprecated({ alternatePackage: { id: 7 } }), { ...none, deprecation: { reasons: ['Legacy'] } });
  t.deepEqual(await deprecated({ alternatePackage: { id: 'B', range: '[1.0, )' } }), {
    ...none,
    deprecation: { reasons: ['Legacy'], alternatePackage: { id: 'B', range: '[1.0, )' } },
  });
  t.deepEqual(await deprecated({ reasons: [] }), none);
  const own = await versionOf({ iconUrl: 'https://files.test/flat/lib/1.0.0/icon', readmeUrl: 'https://x.test/' });
  t.like(own, { hasIcon: true, hasReadme: true });
  t.is(own!.size, JSON.stringify(own!.metadata).length);
  for (const iconUrl of ['https://files.test/other', 'https://files.test/', 7, undefined])
    t.like(await versionOf({ iconUrl }), { hasIcon: false, hasReadme: false });
});

const states = async (document: unknown) =>
  JSON.parse((await linesOf('states', document, { key: 'lib' }))[0]!) as unknown;

test('the states of versions: which are deprecated or unlisted, and which pages are documents of their own', async (t) => {
  const deprecation = { reasons: ['Legacy'] };
  t.deepEqual(
    await states({
      items: [
        { lower: '1.0-A', upper: '2.0', items: [leaf('1.0', { deprecation, listed: false }), leaf('2.0'), null] },
        { lower: '3.0', upper: '4.0' },
        { lower: '3.0' },
        { items: [leaf('5.0-RC', { deprecation, id: 'LIB' }), leaf('6.0', { deprecation, id: 'Other' })] },
        { items: [leaf('7.0', { deprecation: { reasons: [] }, published: '1900-01-01T00:00:00Z' })] },
        leaf('8.0', { listed: false }),
        leaf('x', { listed: false }),
        null,
      ],
    }),
    {
      deprecated: ['1.0.0', '5.0.0-rc'],
      unlisted: ['1.0.0', '7.0.0', '8.0.0'],
      pages: ['page/1.0.0-a/2.0.0', 'page/3.0.0/4.0.0'],
    },
  );
  await t.throwsAsync(states({}), otherForm);
});

const page = (lower: string, upper: string) => ({
  lower,
  upper,
  count: 1,
  first: parseVersion(lower)!,
  last: parseVersion(upper)!,
});

const listed = (version: string) => ({ version, bytes: 1, publishedAt: undefined, json: '{}' });

test('stored versions that an upstream lacks are on the page where they belong', async (t) => {
  const kept = async (pages: ReturnType<typeof page>[], ...versions: string[]) =>
    (await withKept(pages, versions.map(listed))).map((each) => [
      each.lower,
      each.upper,
      each.first.original,
      each.last.original,
      ...(each.kept ?? []).map(({ version }) => version),
    ]);
  const pages = [page('0.1.0', '0.2.0'), page('1.0.0', '2.0.0'), page('3.0.0', '4.0.0')];
  t.deepEqual(await kept(pages, '0.5.0', '1.5.0', '2.0.0', '2.5.0', '4.0.0', '9.0.0'), [
    ['0.1.0', '0.2.0', '0.1.0', '0.2.0'],
    ['1.0.0', '2.0.0', '0.5.0', '2.0.0', '0.5.0', '1.5.0', '2.0.0'],
    ['3.0.0', '4.0.0', '2.5.0', '9.0.0', '2.5.0', '4.0.0', '9.0.0'],
  ]);
  t.deepEqual(
    pages.map(({ first, last }) => [first.original, last.original]),
    [
      ['0.1.0', '0.2.0'],
      ['1.0.0', '2.0.0'],
      ['3.0.0', '4.0.0'],
    ],
    'the pages themselves are not changed',
  );
  t.deepEqual(await kept([], '2.0.0', '1.0.0'), [['2.0.0', '2.0.0', '1.0.0', '2.0.0', '2.0.0', '1.0.0']]);
});

const advisory = (fixedAt: string | undefined, affects: (version: string) => boolean = () => true, id = 'A') =>
  ({ id, affects, fixedAt }) as KnownAdvisory;

test('a version in quarantine is a fix only as the lowest one above the end, of its major version', async (t) => {
  const versions = ['1.0.0', '1.1.0-a', '1.1.0-b', '1.1.0', '1.2.0', '2.0.0', 'x'];
  const fixes = (advisories: KnownAdvisory[], ...held: string[]) =>
    fixesAmong(advisories, new Set(held), versions.toReversed());
  t.deepEqual(await fixes([advisory('1.1.0')], '1.1.0', '1.2.0', '2.0.0'), [
    { version: '1.1.0', advisory: 'A', affected: ['1.0.0'] },
    { version: '1.1.0', advisory: 'A', affected: ['1.1.0-a', '1.1.0-b'] },
  ]);
  t.deepEqual(await fixes([advisory('1.1.0-b')], '1.1.0-b', '1.1.0'), [
    { version: '1.1.0', advisory: 'A', affected: ['1.0.0'] },
    { version: '1.1.0-b', advisory: 'A', affected: ['1.1.0-a'] },
  ]);
  t.deepEqual(await fixes([advisory('1.1.1')], '1.2.0'), [
    { version: '1.2.0', advisory: 'A', affected: ['1.0.0', '1.1.0'] },
    { version: '1.2.0', advisory: 'A', affected: ['1.1.0-a', '1.1.0-b'] },
  ]);
  t.deepEqual(await fixes([advisory('1.1.0', (version) => version === '1.0.0')], '1.1.0'), [
    { version: '1.1.0', advisory: 'A', affected: ['1.0.0'] },
  ]);
  for (const [each, held] of [
    [advisory('1.1.0'), '1.2.0'],
    [advisory('1.3.0'), '2.0.0'],
    [advisory('3.0.0'), '2.0.0'],
    [advisory('1.1.0', () => false), '1.1.0'],
    [advisory('x'), '1.1.0'],
    [advisory(undefined), '1.1.0'],
  ] as const)
    t.deepEqual(await fixes([each], held), [], `${each.fixedAt} ${held}`);
});
