import test from 'ava';
import { Addresses } from '../../../src/nuget/feed/addresses.ts';
import { registrationIndex, registrationLeaf, registrationPage } from '../../../src/nuget/feed/registration.ts';
import { serviceIndex } from '../../../src/nuget/feed/service-index.ts';
import { vulnerabilityIndex, vulnerabilityPage } from '../../../src/nuget/feed/vulnerabilities.ts';
import type { RegisteredVersion } from '../../../src/nuget/format/pages.ts';
import { digestOf } from '../../../src/runtime/digest.ts';

const addresses = new Addresses('https://here.test/below');
const base = 'https://here.test/below/v3';

test('addresses have ids and versions in lower case, and encoded', (t) => {
  t.is(addresses.at('x/y'), `${base}/x/y`);
  t.is(addresses.file('LÄb', '1.0.0-RC', 'nupkg'), `${base}/package/l%C3%A4b/1.0.0-rc/l%C3%A4b.1.0.0-rc.nupkg`);
  t.is(addresses.file('Lib', '1.0.0', 'readme'), `${base}/package/lib/1.0.0/readme`);
  t.is(addresses.file('Lib', '1.0.0', 'icon'), `${base}/package/lib/1.0.0/icon`);
  t.is(addresses.registrationIndex('registration-gz', 'Lib'), `${base}/registration-gz/lib/index.json`);
  t.is(
    addresses.registrationPage('registration', 'Lib', '1.0.0-A', '2.0.0-B'),
    `${base}/registration/lib/page/1.0.0-a/2.0.0-b.json`,
  );
  t.is(addresses.registrationLeaf('registration', 'Lib', '1.0.0-A'), `${base}/registration/lib/1.0.0-a.json`);
});

const resource = (type: string, path: string) => ({ '@id': `${base}/${path}`, '@type': type });

test('the service index names each resource with its address, and in the past only those that are there', (t) => {
  const all = [
    resource('PackageBaseAddress/3.0.0', 'package'),
    resource('SearchQueryService', 'search'),
    resource('RegistrationsBaseUrl', 'registration'),
    resource('PackagePublish/2.0.0', 'push'),
    resource('SearchQueryService/3.0.0-beta', 'search'),
    resource('SearchQueryService/3.0.0-rc', 'search'),
    resource('SearchQueryService/3.5.0', 'search'),
    resource('SearchAutocompleteService', 'autocomplete'),
    resource('SearchAutocompleteService/3.0.0-beta', 'autocomplete'),
    resource('SearchAutocompleteService/3.0.0-rc', 'autocomplete'),
    resource('SearchAutocompleteService/3.5.0', 'autocomplete'),
    resource('RegistrationsBaseUrl/3.0.0-beta', 'registration'),
    resource('RegistrationsBaseUrl/3.0.0-rc', 'registration'),
    resource('RegistrationsBaseUrl/3.4.0', 'registration-gz'),
    resource('RegistrationsBaseUrl/3.6.0', 'registration-gz-semver2'),
    resource('PackagePublish/3.0.0-preview.1', 'push'),
    resource('SymbolPackagePublish/4.9.0', 'symbols'),
    resource('VulnerabilityInfo/6.7.0', 'vulnerabilities/index.json'),
    resource('ReadmeUriTemplate/6.13.0', 'package/{lower_id}/{lower_version}/readme'),
  ];
  t.deepEqual(serviceIndex(addresses, false), { version: '3.0.0', resources: all });
  const paths = new Set(['search', 'autocomplete', 'push', 'symbols'].map((path) => `${base}/${path}`));
  t.deepEqual(serviceIndex(addresses, true), {
    version: '3.0.0',
    resources: all.filter((each) => !paths.has(each['@id'])),
  });
});

const plain: RegisteredVersion = {
  version: '1.0.0-RC',
  fullVersion: '1.0.0-RC+x',
  listed: true,
  publishedAt: 1000,
  hasIcon: false,
  hasReadme: false,
  bytes: 1,
  metadata: { id: 'LIB', packageTypes: [{ name: 'Dependency' }] },
};
const leafOf = (more: object, version: Partial<RegisteredVersion> = {}) => {
  const address = `${base}/registration/lib/1.0.0-rc.json`;
  const packageContent = `${base}/package/lib/1.0.0-rc/lib.1.0.0-rc.nupkg`;
  return [
    { ...plain, ...version },
    {
      '@id': address,
      '@type': 'Package',
      catalogEntry: {
        '@id': address,
        '@type': 'PackageDetails',
        id: 'LIB',
        version: '1.0.0-RC+x',
        title: undefined,
        description: '',
        summary: undefined,
        authors: '',
        tags: [],
        iconUrl: undefined,
        readmeUrl: undefined,
        projectUrl: undefined,
        licenseUrl: undefined,
        licenseExpression: undefined,
        requireLicenseAcceptance: false,
        minClientVersion: undefined,
        language: undefined,
        packageTypes: [{ name: 'Dependency' }],
        dependencyGroups: undefined,
        deprecation: undefined,
        vulnerabilities: undefined,
        listed: true,
        published: '1970-01-01T00:00:01.000+00:00',
        packageHash: undefined,
        packageHashAlgorithm: undefined,
        packageContent,
        ...more,
      },
      packageContent,
      registration: `${base}/registration/lib/index.json`,
    },
  ] as const;
};

test('a leaf has what is known of its version, and empty texts where clients need them', (t) => {
  const metadata = {
    ...plain.metadata,
    title: 'T',
    description: 'D',
    summary: 'S',
    authors: 'A',
    tags: ['t'],
    iconUrl: 'https://a.test/icon',
    projectUrl: 'https://a.test/p',
    licenseUrl: 'https://a.test/l',
    licenseExpression: 'MIT',
    requireLicenseAcceptance: true,
    minClientVersion: '5.0',
    language: 'de',
    dependencyGroups: [],
    deprecation: { reasons: [], message: undefined, alternatePackage: undefined },
    vulnerabilities: [],
  };
  const { id: _id, packageTypes: _types, ...told } = metadata;
  const icon = { iconUrl: `${base}/package/lib/1.0.0-rc/icon` };
  for (const [version, leaf] of [
    leafOf({}),
    leafOf(told, { metadata }),
    leafOf({ ...told, ...icon }, { metadata, hasIcon: true }),
    leafOf({ readmeUrl: `${base}/package/lib/1.0.0-rc/readme` }, { hasReadme: true }),
    leafOf({ packageHash: 'abc', packageHashAlgorithm: 'SHA512' }, { sha512: 'abc' }),
    leafOf({ listed: false, published: '1900-01-01T00:00:00+00:00' }, { listed: false }),
    leafOf({ listed: false, published: 'as written' }, { listed: false, published: 'as written' }),
    leafOf({ published: undefined }, { publishedAt: undefined as never }),
  ]) {
    t.deepEqual(registrationLeaf(addresses, 'registration', 'Lib', version), {
      ...leaf,
      '@type': ['Package', 'catalog:Permalink'],
      listed: version.listed,
      published: leaf.catalogEntry.published,
    });
    t.deepEqual(
      registrationPage(addresses, 'registration', 'Lib', { lower: '1.0.0-A', upper: '2.0.0' }, [version, version]),
      {
        '@id': `${base}/registration/lib/page/1.0.0-a/2.0.0.json`,
        '@type': 'catalog:CatalogPage',
        count: 2,
        items: [leaf, leaf],
        parent: `${base}/registration/lib/index.json`,
        lower: '1.0.0-A',
        upper: '2.0.0',
      },
    );
  }
});

test('an index has its pages with their versions, or their addresses', (t) => {
  const [version, leaf] = leafOf({});
  const address = `${base}/registration/lib/index.json`;
  const pages = [
    { lower: '1.0.0', upper: '2.0.0', count: 1, items: [version] },
    { lower: '3.0.0', upper: '4.0.0', count: 64 },
  ];
  const page = { '@type': 'catalog:CatalogPage', parent: address };
  t.deepEqual(registrationIndex(addresses, 'registration', 'Lib', pages), {
    '@id': address,
    '@type': ['catalog:CatalogRoot', 'PackageRegistration', 'catalog:Permalink'],
    count: 2,
    items: [
      { ...page, '@id': `${address}#page/1.0.0/2.0.0`, count: 1, items: [leaf], lower: '1.0.0', upper: '2.0.0' },
      {
        ...page,
        '@id': `${base}/registration/lib/page/3.0.0/4.0.0.json`,
        count: 64,
        items: undefined,
        lower: '3.0.0',
        upper: '4.0.0',
      },
    ],
  });
});

const told = (severity: number) => ({ severity, url: 'https://a.test/', versions: '[1.0.0]' });

const digest = (text: string) => digestOf(text).slice('sha256:'.length, 'sha256:'.length + 24);

const page = (upstream: string, name: string) => ({ upstream, name, updated: 'then' }) as never;

test('the vulnerability index has at most 16 pages, with names that clients take', (t) => {
  const own = {
    '@name': 'base',
    '@id': `${base}/vulnerabilities/base.json`,
    '@updated': '2024-01-01T00:00:00.0000000Z',
  };
  const none = { page: {}, changedAt: undefined };
  t.deepEqual(vulnerabilityIndex(addresses, none, []), [own]);
  const many = Array.from({ length: 16 }, (_, index) => page('up', String(index)));
  const shown = vulnerabilityIndex(addresses, none, many);
  t.is(shown.length, 16);
  t.deepEqual(shown[15], { '@name': 'up-14', '@id': `${base}/vulnerabilities/up/14.json`, '@updated': 'then' });
  const names = ['a', 'a'.repeat(29), 'a'.repeat(28), 'a.b', 'a b'];
  t.deepEqual(
    vulnerabilityIndex(
      addresses,
      none,
      names.map((name) => page('up.', name)).concat(names.map((name) => page('up', name))),
    )
      .slice(1)
      .map((each) => each['@name']),
    [
      ...names.map((name) => digest(`up.-${name}`)),
      'up-a',
      `up-${'a'.repeat(29)}`,
      `up-${'a'.repeat(28)}`,
      digest('up-a.b'),
      digest('up-a b'),
    ],
  );
  t.is(vulnerabilityIndex(addresses, none, [page('up', 'a'.repeat(30))])[1]!['@name'], digest(`up-${'a'.repeat(30)}`));
  const advisory = {
    id: 'x',
    packageId: 'Lib',
    versions: '[1.0.0]',
    severity: 2,
    url: 'https://a.test/',
    createdAt: 5,
  };
  const given = vulnerabilityPage([
    advisory,
    { ...advisory, packageId: 'App' },
    { ...advisory, packageId: 'LIB', severity: 1 },
  ]);
  t.deepEqual(given, { lib: [told(2), told(1)], app: [told(2)] });
  t.deepEqual(vulnerabilityIndex(addresses, { page: given, changedAt: 1000 }, []), [
    { ...own, '@name': `base-${digest(JSON.stringify(given))}`, '@updated': '1970-01-01T00:00:01.0000000Z' },
  ]);
  t.is(vulnerabilityIndex(addresses, { page: {}, changedAt: 0 }, [])[0]!['@updated'], '1970-01-01T00:00:00.0000000Z');
});
