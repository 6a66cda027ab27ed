import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { createAdvisory } from '../../../src/nuget/hosted/advisories.ts';
import { addDownloads } from '../../../src/nuget/hosted/downloads.ts';
import { changeDeprecation } from '../../../src/nuget/hosted/deprecations.ts';
import { parseDeprecation } from '../../../src/nuget/format/deprecation.ts';
import { deleteVersion } from '../../../src/nuget/hosted/deletion.ts';
import { setListed } from '../../../src/nuget/hosted/publish.ts';
import {
  getPackage,
  getVersion,
  largestPackages,
  listDependents,
  listPackages,
  listVersions,
  newestVersions,
  rankedPackages,
  rankedVersions,
  totalOfPackages,
  type PackageSummary,
} from '../../../src/nuget/hosted/summary.ts';
import { makeNupkg, type NupkgOptions } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

/**
 * Account 1 hosts `Lib` 1.0.0, 2.0.0 and 2.1.0-Beta, `App`, `Tool`, which is unlisted, and `Gone`, which has no version any more;
 * account 2 hosts another `App` and `Zed`.
 */
async function withPackages(t: Parameters<typeof HostedPackages.open>[0]) {
  const hosted = await HostedPackages.open(t);
  const sizes = new Map<string, number>();
  const push = async (options: NupkgOptions, account = 1) => {
    const bytes = await makeNupkg(options);
    sizes.set(`${account} ${options.id} ${options.version ?? '1.0.0'}`, bytes.length);
    await hosted.push(bytes, { account });
    hosted.clock.now += 1000;
  };
  await push({ id: 'Lib', version: '1.0.0', payloadBytes: 5000 });
  await push({ id: 'App', dependencies: [{ id: 'LIB', version: '1.0.0' }] });
  const packageTypes = [{ name: 'DotnetTool' }, { name: 'Template' }];
  await push({ id: 'Tool', packageTypes, payloadBytes: 2000, dependencies: [{ id: 'Lib' }] });
  await push({ id: 'Lib', version: '2.0.0', payloadBytes: 1000 });
  await push({ id: 'Lib', version: '2.1.0-Beta', payloadBytes: 3000 });
  await push({ id: 'Gone' });
  await push({ id: 'App', version: '1.0.0', dependencies: [{ id: 'Lib' }] }, 2);
  await push({ id: 'Zed' }, 2);
  await deleteVersion(hosted.context, 1, 'gone', '1.0.0');
  hosted.clock.now = 20_000;
  await setListed(hosted.context, 1, 'tool', '1.0.0', false);
  const { database } = hosted.store;
  const download = (name: string, versions: Record<string, number>, last: number, accountId = 1) =>
    database.transaction((tx) =>
      addDownloads(tx, { accountId, name, versions: new Map(Object.entries(versions)), last }),
    );
  return { hosted, database, sizes, download };
}

const summary = (id: string, more: Partial<PackageSummary> & { sizeBytes: number }) => ({
  key: id.toLowerCase(),
  id,
  packageTypes: ['Dependency'],
  latestVersion: '1.0.0',
  versionCount: 1,
  downloadCount: 0,
  lastDownloadedAt: null,
  upstream: null,
  ...more,
});

/** What lists show of the packages of account 1. */
function summaries(sizes: ReadonlyMap<string, number>) {
  const of = (name: string) => sizes.get(name)!;
  const sizeBytes = of('1 Lib 1.0.0') + of('1 Lib 2.0.0') + of('1 Lib 2.1.0-Beta');
  return {
    app: summary('App', { sizeBytes: of('1 App 1.0.0'), createdAt: 2000, updatedAt: 2000 }),
    lib: summary('Lib', { sizeBytes, createdAt: 1000, updatedAt: 5000, versionCount: 3, latestVersion: '2.0.0' }),
    tool: summary('Tool', {
      sizeBytes: of('1 Tool 1.0.0'),
      createdAt: 3000,
      updatedAt: 20_000,
      latestVersion: null,
      packageTypes: ['DotnetTool', 'Template'],
    }),
  };
}

test('packages with a version are listed by key, within the names and from a place on', async (t) => {
  const { database, sizes } = await withPackages(t);
  const { app, lib, tool } = summaries(sizes);
  t.deepEqual(await listPackages(database, 1, 10), [app, lib, tool]);
  t.deepEqual(await listPackages(database, 1, 2), [app, lib]);
  t.deepEqual(await listPackages(database, 1, 10, 'app'), [lib, tool]);
  t.deepEqual(await listPackages(database, 1, 1, 'app', new NameSet(['t*', 'app'])), [tool]);
  t.deepEqual(
    (await listPackages(database, 2, 10)).map(({ id }) => id),
    ['App', 'Zed'],
  );
});

test('packages are ranked by a number or by key, filtered by their ids, and counted', async (t) => {
  const { database, sizes, download } = await withPackages(t);
  await download('app', { '1.0.0': 7 }, 500);
  await download('tool', { '1.0.0': 2 }, 900);
  const { lib, ...found } = summaries(sizes);
  const app = { ...found.app, downloadCount: 7, lastDownloadedAt: 500 };
  const tool = { ...found.tool, downloadCount: 2, lastDownloadedAt: 900 };
  const all = { text: '', only: undefined };
  const ranked = async (given: Partial<Parameters<typeof rankedPackages>[2]>, limit = 10, after?: any) =>
    rankedPackages(database, 1, { ...all, sort: undefined, ...given }, limit, after);
  const ids = async (...given: Parameters<typeof ranked>) => (await ranked(...given)).map(({ item }) => item.id);
  t.deepEqual(
    (await ranked({})).map(({ item }) => item),
    [app, lib, tool],
  );
  t.deepEqual(await ids({ sort: 'size' }), ['Lib', 'Tool', 'App']);
  t.deepEqual(await ids({ sort: 'versions' }), ['Lib', 'App', 'Tool']);
  t.deepEqual(await ids({ sort: 'downloads' }), ['App', 'Tool', 'Lib']);
  t.deepEqual(await ids({ sort: 'updated' }), ['Tool', 'Lib', 'App']);
  t.deepEqual(await ids({ sort: 'used' }), ['Tool', 'App', 'Lib']);
  const [first] = await ranked({ sort: 'downloads' }, 1);
  t.deepEqual(first, { rank: [7, 'app'], item: app });
  t.deepEqual(await ids({ sort: 'downloads' }, 1, first!.rank), ['Tool']);
  type Filter = Partial<Parameters<typeof totalOfPackages>[2]>;
  const total = async (given: Filter, account = 1) => totalOfPackages(database, account, { ...all, ...given });
  const cases: [filter: Filter, packages: { sizeBytes: number }[]][] = [
    [{ text: '' }, [app, lib, tool]],
    [{ text: 'o' }, [tool]],
    [{ text: 'p' }, [app]],
    [{ text: 'x' }, []],
    [{ text: '', only: new NameSet(['lib', 'tool']) }, [lib, tool]],
    [{ text: 'l', only: new NameSet(['lib', 'app']) }, [lib]],
    [{ text: '', without: 2 }, [lib, tool]],
    [{ text: '', without: 3 }, [app, lib, tool]],
    [{ text: 'l', only: new NameSet(['*']), without: 2 }, [lib, tool]],
  ];
  for (const [filter, wanted] of cases) {
    t.deepEqual(
      (await ranked(filter)).map(({ item }) => item),
      wanted as never,
    );
    const bytes = wanted.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    t.deepEqual(await total(filter), { count: wanted.length, bytes });
  }
  t.is((await total({ text: '', without: 1 }, 2)).count, 1);
});

const sized = ({ id: name, sizeBytes, updatedAt: changedAt }: any, lastUsedAt: number | null = null) => ({
  name,
  sizeBytes,
  changedAt,
  lastUsedAt,
});

test('the largest packages are those with the most bytes', async (t) => {
  const { database, sizes, download } = await withPackages(t);
  await download('tool', { '1.0.0': 2 }, 900);
  const { app, lib, tool } = summaries(sizes);
  t.deepEqual(await largestPackages(database, 1, 10), [sized(lib), sized(tool, 900), sized(app)]);
  t.deepEqual(await largestPackages(database, 1, 1), [sized(lib)]);
});

test('the newest version is the newest listed release, else the newest listed prerelease', async (t) => {
  const { hosted, database } = await withPackages(t);
  const newest = async (keys: string[], account = 1) => newestVersions(database, account, keys);
  t.deepEqual(await newestVersions({} as never, 1, []), new Map(), 'without a statement');
  t.deepEqual(await newest(['lib']), new Map([['lib', '2.0.0']]));
  t.deepEqual(await newest(['tool', 'none']), new Map([['tool', null]]));
  t.deepEqual(await newest(['lib'], 2), new Map());
  for (const version of ['1.0.0', '2.0.0']) await setListed(hosted.context, 1, 'lib', version, false);
  t.deepEqual(await newest(['lib']), new Map([['lib', '2.1.0-Beta']]));
});

test('a package is shown with its versions, which are listed in both directions and by their numbers', async (t) => {
  const { hosted, database, sizes, download } = await withPackages(t);
  await download('lib', { '1.0.0': 4, '2.1.0-beta': 9, '7.0.0': 1 }, 700);
  await setListed(hosted.context, 1, 'lib', '1.0.0', false);
  const hashes = new Map(
    (
      await hosted.rows<{ version: string; sha512: string; sort_key: string }>(
        'SELECT version, sha512, sort_key FROM package_versions WHERE package_row = 1',
      )
    ).map((each) => [each.version, each]),
  );
  const version = (name: string, publishedAt: number, downloadCount: number, listed = true) => ({
    version: name,
    listed,
    publishedAt,
    sizeBytes: sizes.get(`1 Lib ${name}`)!,
    sha512: hashes.get(name)!.sha512,
    downloadCount,
    cachedAt: null,
    withdrawnAt: null,
    order: hashes.get(name)!.sort_key,
  });
  const [one, two, beta] = [
    version('1.0.0', 1000, 4, false),
    version('2.0.0', 4000, 0),
    version('2.1.0-Beta', 5000, 9),
  ];
  const { lib } = summaries(sizes);
  t.deepEqual(await getPackage(database, 1, 'LIB'), {
    ...lib,
    downloadCount: 14,
    lastDownloadedAt: 700,
    updatedAt: 20_000,
    versions: [beta, two, one],
  } as never);
  for (const account of [1, 2]) {
    const app = await getPackage(database, account, 'app');
    t.deepEqual([app.sizeBytes, app.createdAt], [sizes.get(`${account} App 1.0.0`), account === 1 ? 2000 : 7000]);
  }
  t.deepEqual(await listVersions(database, 1, 'LIB', 2, undefined), [beta, two]);
  t.deepEqual(await listVersions(database, 1, 'lib', 2, beta.order), [two, one]);
  t.deepEqual(await listVersions(database, 1, 'lib', 2, undefined, true), [one, two]);
  t.deepEqual(await listVersions(database, 1, 'lib', 1, one.order, true), [two]);
  const ranked = async (sort: 'size' | 'downloads', limit = 10, after?: any) =>
    rankedVersions(database, 1, 'LIB', sort, limit, after);
  t.deepEqual(await ranked('downloads'), [
    { rank: [9, beta.order], item: beta },
    { rank: [4, one.order], item: one },
    { rank: [0, two.order], item: two },
  ]);
  t.deepEqual(
    (await ranked('size', 2)).map(({ item }) => item),
    [one, beta],
  );
  t.deepEqual(
    (await ranked('size', 2, [one.sizeBytes, one.order])).map(({ item }) => item),
    [beta, two],
  );
  for (const id of ['none', 'gone', 'Zed']) {
    const missing = { name: 'NotFound', message: `This account has no package ${id}.` };
    await t.throwsAsync(getPackage(database, 1, id), missing);
    await t.throwsAsync(listVersions(database, 1, id, 1, undefined), missing);
    await t.throwsAsync(rankedVersions(database, 1, id, 'size', 1, undefined), missing);
  }
  await t.throwsAsync(getPackage(database, 1, 'x'.repeat(101)), {
    message: `This account has no package ${'x'.repeat(100)}.`,
  });
});

test('one version is shown with its metadata, its deprecation and its advisories', async (t) => {
  const { hosted, database } = await withPackages(t);
  const deprecation = parseDeprecation('lib', { reasons: ['Legacy'] });
  await changeDeprecation(hosted.context, 1, 'lib', ['2.0.0'], { deprecation });
  const url = 'https://example.com/';
  await createAdvisory(hosted.context, 1, { packageId: 'lib', versions: '[2.0.0, 3.0.0)', severity: 2, url });
  const found = (await getVersion(database, 1, 'LIB', '2.0.0'))!;
  const [{ order: _order, ...listed }] = (await listVersions(database, 1, 'lib', 10, undefined)).slice(1) as [any];
  t.deepEqual(JSON.parse(JSON.stringify(found)), {
    ...listed,
    id: 'Lib',
    upstream: null,
    metadata: {
      id: 'Lib',
      description: 'About Lib',
      authors: 'Some Author',
      packageTypes: [{ name: 'Dependency' }],
      deprecation: { reasons: ['Legacy'] },
      vulnerabilities: [{ advisoryUrl: url, severity: '2' }],
    },
  });
  const plain = (await getVersion(database, 1, 'lib', '1.0.0'))!;
  t.deepEqual([plain.metadata.deprecation, plain.metadata.vulnerabilities], [undefined, undefined]);
  for (const [account, id, key] of [
    [1, 'lib', '3.0.0'],
    [2, 'lib', '1.0.0'],
    [1, 'none', '1.0.0'],
  ] as const)
    t.is(await getVersion(database, account, id, key), undefined);
});

const dependencies = (...ranges: string[]) =>
  ranges.map((version, index) => ({
    targetFramework: `net${index + 5}.0`,
    dependencies: [{ id: 'lib', version }, { id: 'Other' }],
  }));

test('the packages whose newest listed version depends on an id are listed with its ranges', async (t) => {
  const { hosted, database } = await withPackages(t);
  await hosted.push({
    id: 'Many',
    dependencyGroups: dependencies('1.0', '[1.0.0, )', '2.0', '3.0', '4.0', '5.0', '6.0'),
  });
  await hosted.push({ id: 'Past', version: '1.0.0', dependencies: [{ id: 'Lib' }] });
  await hosted.push({ id: 'Past', version: '2.0.0' });
  const dependents = (...given: [id: string, limit?: number, after?: string, only?: NameSet]) => {
    const [id, limit = 10, after, only] = given;
    return listDependents(database, 1, id, limit, after, only);
  };
  const app = { key: 'app', id: 'App', version: '1.0.0', ranges: ['[1.0.0, )'] };
  const many = {
    key: 'many',
    id: 'Many',
    version: '1.0.0',
    ranges: ['[1.0.0, )', '[2.0.0, )', '[3.0.0, )', '[4.0.0, )', '[5.0.0, )'],
  };
  t.deepEqual(await dependents('LIB'), [app, many]);
  t.deepEqual(await dependents('lib', 1), [app]);
  t.deepEqual(await dependents('lib', 10, 'app'), [many]);
  t.deepEqual(await dependents('lib', 10, '', new NameSet(['many'])), [many]);
  t.deepEqual(
    (await dependents('other')).map(({ id, ranges }) => [id, ranges]),
    [['Many', ['(, )']]],
  );
  t.deepEqual(await dependents('app'), []);
  await setListed(hosted.context, 1, 'past', '2.0.0', false);
  t.deepEqual(
    (await dependents('lib', 10, 'many')).map(({ id, version }) => [id, version]),
    [['Past', '1.0.0']],
  );
});

const term = (standing: number) => ({ account_id: 1, standing });

test('downloads are counted at the package and its versions, and others as mirrored', async (t) => {
  const { hosted, download } = await withPackages(t);
  const state = async () => ({
    packages: await hosted.rows(
      "SELECT account_id, package_key, download_count, last_downloaded_at, standing FROM packages WHERE package_key = 'app' ORDER BY id",
    ),
    versions: (
      await hosted.rows('SELECT download_count FROM package_versions WHERE metadata LIKE \'%"App"%\' ORDER BY id')
    ).map((each) => each['download_count']),
    mirrored: await hosted.rows(
      'SELECT account_id, kind, name, version, downloads FROM mirrored_downloads ORDER BY name',
    ),
    terms: await hosted.rows("SELECT account_id, standing FROM package_terms WHERE term = '.app' ORDER BY account_id"),
  });
  const row = { account_id: 1, package_key: 'app', download_count: 0, last_downloaded_at: null, standing: 63 };
  const other = { ...row, account_id: 2 };
  t.deepEqual(await state(), {
    packages: [row, other],
    versions: [0, 0],
    mirrored: [],
    terms: [term(63), { account_id: 2, standing: 63 }],
  });
  await download('app', { '1.0.0': 2, '2.0.0': 1 }, 700);
  await download('app', { '1.0.0': 1 }, 800);
  await download('none', { '1.0.0': 3, '2.0.0': 1 }, 900);
  const mirrored = { account_id: 1, kind: 'package', name: 'none', version: '1.0.0', downloads: 3 };
  t.deepEqual(await state(), {
    packages: [{ ...row, download_count: 4, last_downloaded_at: 800, standing: 59 }, other],
    versions: [3, 0],
    mirrored: [
      { ...mirrored, name: 'app', version: '2.0.0', downloads: 1 },
      mirrored,
      { ...mirrored, version: '2.0.0', downloads: 1 },
    ],
    terms: [term(59), { account_id: 2, standing: 63 }],
  });
});
