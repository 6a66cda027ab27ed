import test from 'ava';
import { packageOperations } from '../../../src/nuget/operations/management.ts';
import { packageChanges } from '../../../src/nuget/operations/change-operations.ts';
import { noticeOperations } from '../../../src/nuget/operations/management-deprecation.ts';
import type { Finding } from '../../../src/nuget/operations/findings.ts';
import { addDownloads } from '../../../src/nuget/hosted/downloads.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { makeNupkg, pngPixel, type NupkgOptions } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';
import { named, noted, runOf, scopes } from '../../support/operations.ts';

const account = 7;
const anonymous = { kind: 'anonymous', reads: 'mirrored' };
const everyone = { names: undefined };
const finding = (id: string, version: string, severity?: number, isDeprecated = false): Finding => ({
  key: id.toLowerCase(),
  id,
  version,
  upstream: null,
  vulnerabilities: severity === undefined ? [] : [{ severity, url: 'https://example.com/a' }],
  isDeprecated,
});

/** What is known of the packages of the test. */
function knownOf(...findings: Finding[]) {
  const byKey = Map.groupBy(findings, ({ key }) => key);
  const byPackage = new Map([...byKey].map(([key, all]) => [key, new Map(all.map((each) => [each.version, each]))]));
  return { byPackage, isComplete: true };
}

interface Given {
  mirrored?: Record<string, unknown>;
  findings?: Finding[];
  source?: object;
}

/** The operations on hosted packages, and mirrored ones that answer as `mirrored` says. `asked` has what they were asked. */
async function operationsOf(t: Parameters<typeof HostedPackages.open>[0], given: Given = {}) {
  const hosted = await HostedPackages.open(t);
  const asked: unknown[] = [];
  const answers = {
    list: [],
    ranked: [],
    total: { count: 0, bytes: 0 },
    get: undefined,
    versions: undefined,
    version: undefined,
    historyOwners: [],
    deleteVersion: false,
    isUpstreamOnly: true,
    ...given.mirrored,
  };
  const mirrored = Object.fromEntries(
    Object.entries(answers).map(([name, answer]) => [
      name,
      typeof answer === 'function' ? answer : noted(asked, name, answer),
    ]),
  );
  const known = knownOf(...(given.findings ?? []));
  const findings = {
    within: noted(asked, 'within', known),
    of: noted(asked, 'of', known),
    known: (...what: unknown[]) => {
      asked.push(['known', ...what]);
      return known;
    },
  };
  const parts = { feed: hosted.context, mirrored, findings, source: given.source ?? {}, views: {} } as never;
  const run = runOf([
    ...noticeOperations(hosted.context),
    ...packageChanges(hosted.context, findings as never),
    ...packageOperations(parts),
  ]);
  const push = async (options: NupkgOptions) => {
    const bytes = await makeNupkg(options);
    await hosted.push(bytes, { account });
    hosted.clock.now += 1000;
    return bytes;
  };
  return { hosted, asked, run, push };
}

const time = (ms: number) => new Date(ms).toISOString();

const mirroredApp = {
  key: 'mid',
  id: 'Mid',
  packageTypes: [],
  latestVersion: '3.0.0',
  versionCount: 1,
  sizeBytes: 50,
  downloadCount: 3,
  createdAt: 100,
  updatedAt: 200,
  lastDownloadedAt: 300,
  upstream: 'up.test',
};
const shownMid = {
  id: 'Mid',
  package_type: 'Dependency',
  latest_version: '3.0.0',
  version_count: 1,
  size_bytes: 50,
  download_count: 3,
  created_at: time(100),
  updated_at: time(200),
  last_downloaded_at: time(300),
  origin: 'mirrored',
  upstream: 'up.test',
  severity: null,
  deprecated: false,
};

test('hosted and mirrored packages are one list by key, each with its marks', async (t) => {
  const { hosted, asked, run, push } = await operationsOf(t, {
    mirrored: {
      list: [mirroredApp],
      ranked: [{ rank: [1, 'mid'], item: mirroredApp }],
      total: { count: 1, bytes: 50 },
    },
    findings: [finding('Lib', '2.0.0', 3), finding('Lib', '1.0.0', undefined, true)],
  });
  const sizes = [
    (await push({ id: 'Lib', version: '1.0.0' })).length,
    (await push({ id: 'Lib', version: '2.0.0' })).length,
    (await push({ id: 'Zoo', packageTypes: [{ name: 'DotnetTool' }, { name: 'Template' }] })).length,
  ];
  const hostedOne = { download_count: 0, last_downloaded_at: null, origin: 'hosted', upstream: null };
  const lib = {
    ...hostedOne,
    id: 'Lib',
    package_type: 'Dependency',
    latest_version: '2.0.0',
    version_count: 2,
    size_bytes: sizes[0]! + sizes[1]!,
    created_at: time(1000),
    updated_at: time(2000),
    severity: 'critical',
    deprecated: true,
  };
  const zoo = {
    ...hostedOne,
    id: 'Zoo',
    package_type: 'DotnetTool',
    latest_version: '1.0.0',
    version_count: 1,
    size_bytes: sizes[2]!,
    created_at: time(3000),
    updated_at: time(3000),
    severity: null,
    deprecated: false,
  };
  const list = (query: object, principal: object = everyone) => run('listPackages', { query }, principal);
  t.deepEqual(await list({}), { items: [lib, shownMid, zoo], next_cursor: null });
  t.deepEqual(asked, [
    ['within', 300, account],
    ['list', account, 51, undefined, undefined],
  ]);
  asked.length = 0;
  const first = await list({ limit: '1' });
  t.deepEqual(first['items'], [lib]);
  asked.length = 0;
  const second = await list({ limit: '1', cursor: first['next_cursor'] });
  t.deepEqual(second['items'], [shownMid]);
  t.deepEqual(asked[1], ['list', account, 2, 'lib', undefined]);
  t.deepEqual((await list({ origin: 'hosted' }))['items'], [lib, zoo]);
  t.deepEqual((await list({ origin: 'mirrored' }))['items'], [shownMid]);
  t.deepEqual((await list({}, { ...everyone, ...anonymous }))['items'], [shownMid]);
  asked.length = 0;
  t.deepEqual((await list({}, named('zoo', 'mid')))['items'], [shownMid, zoo]);
  t.is((asked[1] as any[])[4].includes('zoo'), true);
  const zeros = Array.from({ length: 30 }, () => 0);
  t.deepEqual((await list({ daily: '1', origin: 'hosted' }))['items'], [
    { ...lib, daily_downloads: zeros },
    { ...zoo, daily_downloads: zeros },
  ]);
  t.deepEqual(await list({ sort: 'size', total: '1' }), {
    items: [lib, zoo, shownMid],
    next_cursor: null,
    total: { count: 3, size_bytes: sizes[0]! + sizes[1]! + sizes[2]! + 50 },
  });
  asked.length = 0;
  t.deepEqual((await list({ q: 'O', total: '1' }))['items'], [shownMid, zoo]);
  t.deepEqual(
    asked.slice(1).map((each) => (each as any[]).slice(0, 3)),
    [
      ['total', account, 'o'],
      ['ranked', account, { by: undefined, text: 'o', only: undefined }],
    ],
  );
  asked.length = 0;
  t.deepEqual((await list({ sort: 'downloads', origin: 'hosted', total: '1' }))['total'], {
    count: 2,
    size_bytes: sizes[0]! + sizes[1]! + sizes[2]!,
  });
  t.deepEqual((await list({ sort: 'updated', origin: 'hosted' }))['items'], [zoo, lib]);
  t.deepEqual(
    asked.filter((each) => (each as unknown[])[0] !== 'within'),
    [],
  );
  t.deepEqual((await list({ sort: 'used' }, { ...everyone, ...anonymous }))['items'], [shownMid]);
  t.deepEqual((asked.at(-1) as any[])[2].by, 'usedAt');
  t.is((await hosted.rows('SELECT id FROM packages')).length, 2);
});

test('one package is shown with its versions, the mirrored one before the hosted one', async (t) => {
  const version = {
    version: '3.0.0',
    listed: true,
    publishedAt: 10,
    sizeBytes: 50,
    sha512: 'abc',
    downloadCount: 2,
    cachedAt: 20,
    withdrawnAt: null,
  };
  const get = (...given: unknown[]) =>
    Promise.resolve(given[1] === 'MID' ? { ...mirroredApp, versions: [{ ...version, order: 'x' }] } : undefined);
  const { run, push, asked } = await operationsOf(t, {
    mirrored: { get },
    findings: [finding('Mid', '3.0.0', 1), finding('Lib', '1.0.0', undefined, true)],
  });
  const bytes = await push({ id: 'Lib' });
  const one = (id: string, more: object = {}, principal: object = everyone) =>
    run('getPackage', { params: { id }, owner: account, query: {}, ...more }, principal);
  const shown = {
    version: '3.0.0',
    listed: true,
    published_at: time(10),
    size_bytes: 50,
    sha512: 'abc',
    download_count: 2,
    cached_at: time(20),
    withdrawn_at: null,
    severity: 'moderate',
    deprecated: false,
  };
  t.deepEqual(await one('MID'), { ...shownMid, severity: 'moderate', versions: [shown] });
  t.deepEqual(asked, [['within', 300, account]]);
  const lib = await one('LIB', { query: { daily: '1' } });
  t.deepEqual(
    [lib['id'], lib['deprecated'], lib['daily_downloads'].length, lib['versions']],
    [
      'Lib',
      true,
      30,
      [
        {
          ...shown,
          version: '1.0.0',
          published_at: time(1000),
          size_bytes: bytes.length,
          sha512: lib['versions'][0].sha512,
          download_count: 0,
          cached_at: null,
          severity: null,
          deprecated: true,
        },
      ],
    ],
  );
  t.false('daily_downloads' in (await one('LIB')));
  await t.throwsAsync(one('none'), { name: 'NotFound', message: 'This account has no package none.' });
  await t.throwsAsync(one('Lib', {}, { ...everyone, ...anonymous }), { name: 'NotFound' });
});

test('the versions of a package are in the order that is asked for, of those that are asked for', async (t) => {
  const stored = ['2.0.0', '1.0.0', '1.0.0-rc'].map((version, index) => ({
    version,
    order: String(9 - index),
    listed: true,
    publishedAt: 10,
    sizeBytes: [5, 9, 7][index],
    sha512: 'abc',
    downloadCount: index,
    cachedAt: 20,
    withdrawnAt: null,
  }));
  const versions = (_owner: number, id: string) => Promise.resolve(id === 'Mid' ? stored : undefined);
  const { hosted, run, push } = await operationsOf(t, {
    mirrored: { versions },
    findings: [finding('Lib', '2.0.0', 0)],
  });
  await push({ id: 'Lib', version: '1.0.0', payloadBytes: 3000 });
  await push({ id: 'Lib', version: '2.0.0', payloadBytes: 100 });
  await push({ id: 'Lib', version: '1.0.0-RC', payloadBytes: 1500 });
  await hosted.store.database.transaction((tx) =>
    addDownloads(tx, {
      accountId: account,
      name: 'lib',
      versions: new Map([
        ['1.0.0', 1],
        ['1.0.0-rc', 2],
      ]),
      last: 5,
    }),
  );
  const list = async (id: string, query: object) => {
    const all: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await run(
        'listPackageVersions',
        {
          params: { id },
          query: { limit: '1', ...query, ...(cursor !== undefined && { cursor }) },
        },
        everyone,
      );
      all.push(...page['items'].map((each: any) => each.version));
      cursor = page['next_cursor'] ?? undefined;
    } while (cursor !== undefined);
    return all.map((each) => each.toLowerCase());
  };
  for (const [id, bySize] of [
    ['Lib', ['1.0.0', '1.0.0-rc', '2.0.0']],
    ['Mid', ['1.0.0', '1.0.0-rc', '2.0.0']],
  ] as const) {
    t.deepEqual(await list(id, {}), ['2.0.0', '1.0.0', '1.0.0-rc'], id);
    t.deepEqual(await list(id, { sort: 'oldest' }), ['1.0.0-rc', '1.0.0', '2.0.0'], id);
    t.deepEqual(await list(id, { sort: 'size' }), [...bySize], id);
    t.deepEqual(await list(id, { sort: 'downloads' }), ['1.0.0-rc', '1.0.0', '2.0.0'], id);
    t.deepEqual(await list(id, { q: '1.0.0-R' }), ['1.0.0-rc'], id);
    t.deepEqual(await list(id, { q: '1' }), ['1.0.0', '1.0.0-rc'], id);
    t.deepEqual(await list(id, { q: '1', sort: 'size' }), ['1.0.0', '1.0.0-rc'], id);
    t.deepEqual(await list(id, { range: '[1.0.0, )' }), ['2.0.0', '1.0.0'], id);
    t.deepEqual(await list(id, { range: '(, 2.0.0)', q: '1.0.0-', sort: 'oldest' }), ['1.0.0-rc'], id);
    t.deepEqual(await list(id, { q: '0' }), [], id);
  }
  const page = await run('listPackageVersions', { params: { id: 'Lib' }, query: {} }, everyone);
  t.deepEqual(page['items'][0], {
    version: '2.0.0',
    listed: true,
    published_at: time(2000),
    size_bytes: page['items'][0].size_bytes,
    sha512: page['items'][0].sha512,
    download_count: 0,
    cached_at: null,
    withdrawn_at: null,
    severity: 'low',
    deprecated: false,
  });
  const [newest, oldest] = await Promise.all(
    [{ limit: '1' }, { limit: '1', sort: 'oldest' }].map((query) =>
      run('listPackageVersions', { params: { id: 'Mid' }, query }, everyone),
    ),
  );
  await t.throwsAsync(list('Mid', { cursor: oldest!['next_cursor'] }), { name: 'Invalid' });
  await t.throwsAsync(list('Mid', { sort: 'oldest', cursor: newest!['next_cursor'] }), { name: 'Invalid' });
  await t.throwsAsync(list('none', {}), { name: 'NotFound' });
  await t.throwsAsync(run('listPackageVersions', { query: { range: '[1' } }), { message: /expected a range such as/ });
});

test('the history of a package has its mirrored versions, and none of another account', async (t) => {
  const { run, asked } = await operationsOf(t);
  const history = (owner: number, principal: object) =>
    run('getPackageHistory', { params: { id: 'Lib' }, owner, query: {} }, principal);
  t.deepEqual(await history(account, everyone), { items: [], next_cursor: null });
  t.deepEqual(asked.splice(0), [['historyOwners', account, 'Lib']]);
  t.deepEqual(await history(8, everyone), { items: [], next_cursor: null });
  t.deepEqual(asked, []);
  await t.throwsAsync(history(account, { ...everyone, ...anonymous }), { name: 'Unauthorized' });
});

test('a version is deleted where it is hosted, else its copy, which needs the scope operate', async (t) => {
  let found = true;
  const allowed: unknown[] = [];
  const deleteVersion = (owner: number, id: string, version: string, permit: () => void) => {
    allowed.push([owner, id, version]);
    if (found) permit();
    return Promise.resolve(found);
  };
  const { hosted, run, push } = await operationsOf(t, { mirrored: { deleteVersion } });
  await push({ id: 'Lib' });
  const remove = (version: string, principal: object = {}) =>
    run('deletePackageVersion', { params: { id: 'LIB', version } }, { ...everyone, ...principal });
  t.is(await remove('1.0'), undefined as never);
  t.deepEqual(await hosted.rows('SELECT id FROM package_versions'), []);
  t.deepEqual(allowed, []);
  await t.throwsAsync(remove('1.0'), { name: 'ScopeMissing' });
  await remove('1.0', scopes('operate'));
  found = false;
  await t.throwsAsync(remove('1.0'), { name: 'NotFound', message: 'LIB 1.0 does not exist in this feed.' });
  t.deepEqual(
    allowed,
    [1, 2, 3].map(() => [account, 'LIB', '1.0']),
  );
  await push({ id: 'Lib', version: '2.0.0' });
  await hosted.store.database.transaction((tx) =>
    tx.insert('permanence', {
      account_id: account,
      rules: '{"freeze":{"images":[]},"keep":{"packages":["*"],"images":[]}}',
      changed_at: 0,
    }),
  );
  await t.throwsAsync(remove('2.0.0'), { name: 'Kept' });
  t.is(allowed.length, 3);
});

test('versions are listed and unlisted by operations', async (t) => {
  const { hosted, run, push } = await operationsOf(t);
  await push({ id: 'Lib' });
  const change = (id: string) => run(id, { params: { id: 'LIB', version: '1.0' } }, everyone);
  const listed = () => hosted.rows('SELECT listed FROM package_versions');
  t.is(await change('unlistPackageVersion'), undefined as never);
  t.deepEqual(await listed(), [{ listed: 0 }]);
  await change('relistPackageVersion');
  t.deepEqual(await listed(), [{ listed: 1 }]);
});

test('dependents are listed with their ranges and marks, and those that lose their last version', async (t) => {
  const { run, push, asked } = await operationsOf(t, { findings: [finding('App', '1.0.0', 2)] });
  for (const version of ['1.0.0', '1.5.0', '2.0.0']) await push({ id: 'Lib', version });
  await push({ id: 'App', dependencies: [{ id: 'Lib', version: '[1.0.0, 2.0.0)' }] });
  await push({ id: 'Bib', dependencies: [{ id: 'Lib', version: '2.0.0' }] });
  await push({ id: 'Cob', dependencies: [{ id: 'Lib', version: '3.0.0' }] });
  const list = (query: object = {}, principal: object = {}, id = 'LIB') =>
    run('listDependents', { params: { id }, query }, { ...everyone, ...principal });
  const app = { id: 'App', version: '1.0.0', ranges: ['[1.0.0, 2.0.0)'], severity: 'high', deprecated: false };
  const bib = { id: 'Bib', version: '1.0.0', ranges: ['[2.0.0, )'], severity: null, deprecated: false };
  const cob = { ...bib, id: 'Cob', ranges: ['[3.0.0, )'] };
  t.deepEqual(await list(), { items: [app, bib, cob], next_cursor: null });
  t.deepEqual(asked, [['known', account]]);
  const first = await list({ limit: '2' });
  t.deepEqual(first['items'], [app, bib]);
  t.deepEqual((await list({ limit: '2', cursor: first['next_cursor'] }))['items'], [cob]);
  for (const [without, items] of [
    ['1.0.0', []],
    ['1.0.0,1.5.0', [app]],
    [' 1.0 , 1.5.0.0', [app]],
    ['2.0.0', [bib]],
    ['1.0.0,1.5.0,2.0.0', [app, bib]],
    ['', []],
    ['x', []],
  ] as const)
    t.deepEqual((await list({ without }))['items'], [...items], without);
  t.deepEqual((await list({ without: '1.0.0' }, {}, 'none'))['items'], []);
  t.deepEqual((await list({}, named('bib')))['items'], [bib]);
  t.deepEqual((await list({}, anonymous))['items'], []);
  t.deepEqual((await list({}, { kind: 'anonymous', reads: 'all' }))['items'], [app, bib, cob]);
});

test('deprecations are listed, set and ended for one version, several or all', async (t) => {
  const { hosted, run, push } = await operationsOf(t);
  for (const version of ['1.0.0', '1.5.0-RC', '2.0.0']) await push({ id: 'Lib', version });
  const list = async (query: object = {}, principal: object = {}) =>
    run('listDeprecations', { params: { id: 'LIB' }, query }, { ...everyone, ...principal });
  const state = async () =>
    Object.fromEntries((await list())['items'].map((each: any) => [each.version, each.deprecation]));
  const params = { id: 'LIB', version: '1.5-rc' };
  const body = { reasons: ['Other', 'Legacy'], message: ' why ', alternative: { id: 'New', range: '2.0' } };
  t.is(await run('deprecatePackageVersion', { params, body }, everyone), undefined as never);
  const full = { reasons: ['Legacy', 'Other'], message: 'why', alternative: { id: 'New', range: '[2.0.0, )' } };
  t.deepEqual(await list(), {
    items: [
      { version: '2.0.0', listed: true, deprecation: null },
      { version: '1.5.0-RC', listed: true, deprecation: full },
      { version: '1.0.0', listed: true, deprecation: null },
    ],
    next_cursor: null,
  });
  const first = await list({ limit: '2' });
  t.deepEqual((await list({ limit: '2', cursor: first['next_cursor'] }))['items'], [
    { version: '1.0.0', listed: true, deprecation: null },
  ]);
  await run('undeprecatePackageVersion', { params }, everyone);
  t.deepEqual(await state(), { '2.0.0': null, '1.5.0-RC': null, '1.0.0': null });
  const legacy = { reasons: ['Legacy'], message: null, alternative: null };
  const many = (versions: unknown) =>
    run('deprecatePackageVersions', { params: { id: 'lib' }, body: { versions, reasons: ['Legacy'] } }, everyone);
  t.is(await many(['1.0', '2.0']), undefined as never);
  t.deepEqual(await state(), { '2.0.0': legacy, '1.5.0-RC': null, '1.0.0': legacy });
  await many('all');
  t.deepEqual(await state(), { '2.0.0': legacy, '1.5.0-RC': legacy, '1.0.0': legacy });
  const end = (versions: string) =>
    run('undeprecatePackageVersions', { params: { id: 'lib' }, query: { versions } }, everyone);
  t.is(await end('1.0, 1.5-rc '), undefined as never);
  t.deepEqual(await state(), { '2.0.0': legacy, '1.5.0-RC': null, '1.0.0': null });
  await end('all');
  t.deepEqual(await state(), { '2.0.0': null, '1.5.0-RC': null, '1.0.0': null });
  await t.throwsAsync(list({}, anonymous), { name: 'Unauthorized' });
  await t.throwsAsync(many(['3.0']), { name: 'NotFound' });
  t.is((await hosted.rows("SELECT id FROM events WHERE type = 'package.deprecated'")).length, 3);
});

test('advisories are reported, listed by package and name, and deleted', async (t) => {
  const { hosted, run, push } = await operationsOf(t);
  await push({ id: 'Lib' });
  await push({ id: 'App' });
  const report = (id: string, principal: object = scopes('write')) => {
    hosted.clock.now += 1000;
    const body = { package: id, versions: '[1.0.0]', severity: 2, url: 'https://example.com/a' };
    return run('createAdvisory', { body }, { ...everyone, ...principal });
  };
  const list = async (query: object = {}, principal: object = {}) =>
    run('listAdvisories', { query }, { ...everyone, ...principal });
  const lib = await report('LIB');
  t.deepEqual(lib, {
    id: lib['id'],
    package: 'Lib',
    versions: '[1.0.0, 1.0.0]',
    severity: 2,
    url: 'https://example.com/a',
    created_at: time(4000),
  });
  await t.throwsAsync(report('App', { ...scopes('write'), ...named('lib') }), { name: 'NameDenied' });
  const app = await report('App', { ...scopes('write'), ...named('app') });
  t.deepEqual(await list(), { items: [lib, app], next_cursor: null });
  const first = await list({ limit: '1' });
  t.deepEqual(first['items'], [lib]);
  t.deepEqual((await list({ limit: '1', cursor: first['next_cursor'] }))['items'], [app]);
  t.deepEqual((await list({ package: 'APP' }))['items'], [app]);
  t.deepEqual((await list({}, named('app')))['items'], [app]);
  await t.throwsAsync(list({}, anonymous), { name: 'Unauthorized' });
  const remove = (id: string, principal: object = {}) =>
    run('deleteAdvisory', { params: { id } }, { ...everyone, ...principal });
  await t.throwsAsync(remove(lib['id'], named('app')), { name: 'NotFound' });
  t.is(await remove(lib['id']), undefined as never);
  t.deepEqual((await list())['items'], [app]);
});

const dependencyGroups = [
  {
    targetFramework: 'net8.0',
    dependencies: [
      { id: 'Dep', version: '1.0.0' },
      { id: 'Free', version: '(, 2.0.0]' },
    ],
  },
];
const rich: NupkgOptions = {
  id: 'Lib',
  version: '1.0.0-RC',
  title: 'The Lib',
  description: 'what it does',
  authors: 'Ada',
  tags: 'a b',
  projectUrl: 'https://example.com/p',
  releaseNotes: `${'n'.repeat(4000)}more`,
  developmentDependency: true,
  minClientVersion: '5.0',
  license: { type: 'file', value: 'LICENSE' },
  repository: { type: 'git', url: 'https://example.com/r', commit: 'abc' },
  packageTypes: [{ name: 'DotnetTool', version: '1.0' }, { name: 'Template' }],
  dependencyGroups,
  icon: pngPixel,
};
const described = {
  id: 'Lib',
  package_types: ['DotnetTool', 'Template'],
  title: 'The Lib',
  description: 'what it does',
  authors: 'Ada',
  tags: ['a', 'b'],
  copyright: null,
  release_notes: 'n'.repeat(4000),
  project_url: 'https://example.com/p',
  repository_url: 'https://example.com/r',
  repository_commit: 'abc',
  license_expression: null,
  license_file: 'LICENSE',
  license_url: null,
  requires_license_acceptance: false,
  development_dependency: true,
  min_client_version: '5.0',
  dependency_groups: [
    {
      target_framework: 'net8.0',
      dependencies: [
        { id: 'Dep', range: '[1.0.0, )', severity: 'critical', deprecated: false },
        { id: 'Free', range: '(, 2.0.0]', severity: null, deprecated: false },
      ],
    },
  ],
  has_icon: true,
};

test('a hosted version is described from its package, with its notices and the marks of its dependencies', async (t) => {
  const { hosted, run, push, asked } = await operationsOf(t, { findings: [finding('Dep', '1.0.0', 3)] });
  const readme = `\uFEFF${'r'.repeat(100_000)}`;
  const bytes = await push({ ...rich, readme });
  const detail = (version: string, principal: object = {}) =>
    run('getPackageVersion', { params: { id: 'LIB', version } }, { ...everyone, ...principal });
  const found = await detail('1.0-rc');
  t.deepEqual(found, {
    ...described,
    version: '1.0.0-RC',
    published_at: time(1000),
    cached_at: null,
    withdrawn_at: null,
    size_bytes: bytes.length,
    sha512: found['sha512'],
    download_count: 0,
    listed: true,
    origin: 'hosted',
    upstream: null,
    readme: 'r'.repeat(100_000),
    is_readme_whole: true,
    deprecation: null,
    vulnerabilities: [],
    is_advice_known: true,
  });
  t.deepEqual(asked, [['within', 300, account]]);
  const body = { reasons: ['Legacy'], message: 'old', alternative: { id: 'New' } };
  await run('deprecatePackageVersion', { params: { id: 'lib', version: '1.0.0-rc' }, body }, everyone);
  const url = 'https://example.com/a';
  await run(
    'createAdvisory',
    { body: { package: 'lib', versions: '(, )', severity: 3, url } },
    { ...everyone, ...scopes('write') },
  );
  await run('unlistPackageVersion', { params: { id: 'lib', version: '1.0.0-rc' } }, everyone);
  const changed = await detail('1.0-rc', named('lib'));
  t.deepEqual(
    [changed['listed'], changed['deprecation'], changed['vulnerabilities']],
    [
      false,
      { reasons: ['Legacy'], message: 'old', alternate_package: { id: 'New', range: '*' } },
      [{ advisory_url: url, severity: 'critical' }],
    ],
  );
  t.is(changed['dependency_groups'][0].dependencies[0].severity, null, 'the token may not know of it');
  await push({ ...rich, version: '1.5.0', readme: 'lost' });
  await hosted.store.driver.delete(digestOf('lost'));
  const damaged = await detail('1.5.0');
  t.deepEqual([damaged['readme'], damaged['is_readme_whole'], damaged['title']], [null, true, 'The Lib']);
  for (const version of ['2.0.0', 'x'])
    await t.throwsAsync(detail(version), { name: 'NotFound', message: `LIB ${version} does not exist in this feed.` });
  await t.throwsAsync(detail('1.0-rc', anonymous), { name: 'NotFound' });
});

test('a mirrored version is described from its stored package, with what its upstream says in time', async (t) => {
  const readme = 'r'.repeat(100_001);
  const bytes = await makeNupkg({ ...rich, readme });
  const digest = digestOf(bytes);
  const row = {
    version: '1.0.0-RC',
    publishedAt: 10,
    cachedAt: 20,
    withdrawnAt: 30,
    sizeBytes: bytes.length,
    sha512: 'abc',
    downloadCount: 4,
    listed: true,
    id: 'LIB',
    upstream: 'up.test',
    nupkg: { digest, size: bytes.length },
  };
  const [one, other] = ['https://example.com/a', 'https://example.com/b'];
  const registered = {
    version: '1.0.0-rc',
    listed: false,
    metadata: {
      deprecation: { reasons: ['CriticalBugs'], message: undefined, alternatePackage: undefined },
      vulnerabilities: [{ advisoryUrl: one, severity: '9' }],
    },
  };
  const asked: unknown[] = [];
  let answer: () => Promise<unknown> = () => Promise.resolve({ value: [{ version: '1.0.0' }, registered] });
  const source = {
    versions: (...given: unknown[]) => {
      asked.push(given);
      return answer();
    },
  };
  const version = (...given: unknown[]) => {
    asked.push(['version', ...given]);
    return Promise.resolve(given[2] === '1.0.0-rc' ? row : undefined);
  };
  const known = finding('Lib', '1.0.0-RC');
  const vulnerabilities = [
    { severity: 3, url: one },
    { severity: 0, url: other },
  ];
  const { hosted, run } = await operationsOf(t, {
    mirrored: { version },
    source,
    findings: [{ ...known, upstream: 'up.test', vulnerabilities }, finding('Dep', '1.0.0', 3)],
  });
  const arrival = await hosted.store.blobs.stageBytes(bytes);
  await hosted.store.blobs.commit([arrival], () => Promise.resolve());
  const detail = (principal: object = {}, owner = account, name = '1.0-RC') =>
    run('getPackageVersion', { params: { id: 'Lib', version: name }, owner }, { ...everyone, ...principal });
  const shown = {
    ...described,
    version: '1.0.0-RC',
    published_at: time(10),
    cached_at: time(20),
    withdrawn_at: time(30),
    size_bytes: bytes.length,
    sha512: 'abc',
    download_count: 4,
    listed: false,
    origin: 'mirrored',
    upstream: 'up.test',
    readme: 'r'.repeat(100_000),
    is_readme_whole: false,
    deprecation: { reasons: ['CriticalBugs'], message: null, alternate_package: null },
    vulnerabilities: [
      { advisory_url: one, severity: '9' },
      { advisory_url: other, severity: 'low' },
    ],
    is_advice_known: true,
  };
  t.deepEqual(await detail(), shown);
  t.deepEqual(asked.splice(0), [
    ['version', account, 'Lib', '1.0.0-rc'],
    [account, 'Lib', true, '1.0.0-rc', '1.0.0-rc'],
  ]);
  const unknown = {
    ...shown,
    listed: true,
    deprecation: null,
    vulnerabilities: [
      { advisory_url: one, severity: 'critical' },
      { advisory_url: other, severity: 'low' },
    ],
    is_advice_known: false,
  };
  answer = () => Promise.resolve({ value: [{ ...registered, version: '1.0.0' }] });
  t.deepEqual(await detail(), unknown);
  answer = () => Promise.resolve(undefined);
  t.deepEqual(await detail(), unknown);
  const failure = new Error('a defect');
  answer = () => Promise.reject(failure);
  await t.throwsAsync(detail(), { is: failure });
  answer = () => Promise.resolve(undefined);
  const hidden = await detail({ ...anonymous });
  t.is(hidden['dependency_groups'][0].dependencies[0].severity, null);
  for (const [owner, name] of [
    [8, '1.0-RC'],
    [account, '2.0'],
    [account, 'x'],
  ] as const)
    await t.throwsAsync(detail({}, owner, name), {
      name: 'NotFound',
      message: `Lib ${name} does not exist in this feed.`,
    });
  row.nupkg = { digest: digestOf('lost'), size: 4 };
  const damaged = await detail();
  t.deepEqual(
    [
      damaged['id'],
      damaged['title'],
      damaged['package_types'],
      damaged['dependency_groups'],
      damaged['has_icon'],
      damaged['readme'],
    ],
    ['LIB', null, [], [], false, null],
  );
});
