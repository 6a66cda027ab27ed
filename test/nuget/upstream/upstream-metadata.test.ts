import test from 'ava';
import {
  deprecationOf,
  metadataIn,
  objectOf,
  objectsIn,
  ownLinks,
  textOf,
} from '../../../src/nuget/upstream/upstream-metadata.ts';

const own = ownLinks(new URL('https://feed.test/v3/index.json'), 'https://files.test/flat/');
const read = (entry: Record<string, unknown>) => metadataIn(entry, own);

test('links of an upstream to itself are known by their host, and files by their address', (t) => {
  for (const link of ['https://feed.test/a', 'http://FILES.test/b', 'https://files.test/flat/x'])
    t.true(own.isOwn(link), link);
  for (const link of ['https://other.test/', 'https://feed.test:8443/', 'feed.test', ''])
    t.false(own.isOwn(link), link);
  for (const link of ['https://files.test/flat/lib/1.0.0/icon', 'HTTPS://FILES.test/flat/'])
    t.true(own.isFlat(link), link);
  for (const link of ['https://files.test/other', 'https://feed.test/flat/', 'flat', 1, undefined, null])
    t.false(own.isFlat(link));
});

test('links of metadata are those of the web to other servers', (t) => {
  for (const link of ['https://a.test/x', 'HTTP://a.test/x']) {
    const { projectUrl, iconUrl, licenseUrl } = read({ projectUrl: link, iconUrl: link, licenseUrl: link });
    t.deepEqual([projectUrl, iconUrl, licenseUrl], [link, link, link]);
  }
  for (const link of [
    'https://feed.test/x',
    'ftp://a.test',
    'see https://a.test',
    'javascript:1',
    1,
    null,
    ['https://a.test'],
  ])
    t.is(read({ projectUrl: link }).projectUrl, undefined);
});

test('metadata of another kind counts as absent', (t) => {
  const found = read({ id: 1, title: '', authors: 7, tags: [1, '', 'kept'], packageTypes: 'no', language: {} });
  t.deepEqual(
    [found.id, found.title, found.authors, found.tags, found.packageTypes],
    ['', undefined, '', ['kept'], []],
  );
  const { requireLicenseAcceptance, dependencyGroups, deprecation, vulnerabilities, language } = found;
  t.deepEqual(
    [requireLicenseAcceptance, dependencyGroups, deprecation, vulnerabilities, language],
    [false, undefined, undefined, undefined, undefined],
  );
  t.true(read({ requireLicenseAcceptance: true }).requireLicenseAcceptance);
  t.false(read({ requireLicenseAcceptance: 'true' }).requireLicenseAcceptance);
});

test('each field of metadata is read under its name', (t) => {
  const texts = ['id', 'title', 'description', 'summary', 'licenseExpression', 'minClientVersion', 'language'];
  t.like(
    read(Object.fromEntries(texts.map((each) => [each, `the ${each}`]))),
    Object.fromEntries(texts.map((each) => [each, `the ${each}`])),
  );
  t.like(read({ authors: ['A', 'B'], tags: 'one' }), { authors: 'A, B', tags: ['one'] });
  t.deepEqual(
    read({ packageTypes: [{ name: 'DotnetTool' }, {}, null] }).packageTypes.map(({ name }) => name),
    ['DotnetTool', 'Dependency', 'Dependency'],
  );
});

test('dependencies without an id are left out, and without a range have any version', (t) => {
  const dependencies = [{ id: 'A', range: '[1.0.0, )' }, { id: 'B' }, { id: 1, range: '1.0' }, null];
  const groups = [{ targetFramework: 'net8.0', dependencies }, { targetFramework: '', dependencies: 'none' }, null];
  t.deepEqual(read({ dependencyGroups: groups }).dependencyGroups, [
    {
      targetFramework: 'net8.0',
      dependencies: [
        { id: 'A', range: '[1.0.0, )' },
        { id: 'B', range: '(, )' },
      ],
    },
    { targetFramework: undefined, dependencies: [] },
    { targetFramework: undefined, dependencies: [] },
  ]);
  t.is(read({ dependencyGroups: [] }).dependencyGroups, undefined);
});

const other = (alternatePackage: unknown) => deprecationOf({ reasons: ['Other'], alternatePackage })?.alternatePackage;

test('a deprecation has a reason, and perhaps a message and another package', (t) => {
  t.is(deprecationOf({}), undefined);
  t.is(deprecationOf({ reasons: [], message: 'text' }), undefined);
  t.deepEqual(deprecationOf({ reasons: 'Legacy' }), {
    reasons: ['Legacy'],
    message: undefined,
    alternatePackage: undefined,
  });
  t.deepEqual(other({ id: 'New', range: '[2.0.0, )' }), { id: 'New', range: '[2.0.0, )' });
  t.deepEqual(other({ id: 'New' }), { id: 'New', range: '*' });
  for (const each of [{ range: '*' }, null, 'New', [{ id: 'New' }]]) t.is(other(each), undefined);
  t.deepEqual(read({ deprecation: { reasons: ['Legacy'], message: 'why' } }).deprecation?.message, 'why');
});

test('vulnerabilities have an address of another server, and a severity that is a number', (t) => {
  const [advisoryUrl, ownUrl] = ['https://a.test/1', 'https://feed.test/1'];
  const vulnerabilities = [
    { advisoryUrl, severity: '2' },
    { advisoryUrl, severity: 3 },
    { advisoryUrl, severity: 'high' },
    { advisoryUrl },
    { advisoryUrl: ownUrl, severity: 1 },
    { severity: 1 },
    null,
  ];
  t.deepEqual(
    read({ vulnerabilities }).vulnerabilities,
    ['2', '3', '0', '0'].map((severity) => ({ advisoryUrl, severity })),
  );
  t.is(read({ vulnerabilities: [{ advisoryUrl: ownUrl }] }).vulnerabilities, undefined);
});

test('objects and texts are told from other values', (t) => {
  for (const each of [[1], null, 'text', 1, undefined]) t.deepEqual(objectOf(each), {});
  t.deepEqual(objectOf({ a: 1 }), { a: 1 });
  t.deepEqual(objectsIn([{ a: 1 }, null]), [{ a: 1 }, {}]);
  t.deepEqual(objectsIn({ length: 1 }), []);
  t.deepEqual([textOf('a'), textOf(''), textOf(1)], ['a', undefined, undefined]);
});
