import * as fc from 'fast-check';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { makeNuspec, pngPixel, type NupkgOptions } from '../../support/builders/nupkg.ts';
import { startTestServer } from '../../support/server.ts';
import { databaseOf, defaultAccountOf, flushUsage, rowsOf } from '../../support/inside.ts';

async function startFeed(t: ExecutionContext, dialect: Dialect, packages: readonly NupkgOptions[] = []) {
  const feed = new TestFeed(await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } }));
  await feed.publish(...packages.map((each) => ({ payloadBytes: 0, description: 'Nothing.', ...each })));
  return feed;
}

/** Downloads a version `times` times, and writes the counts to the database. */
async function download(feed: TestFeed, id: string, times: number): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    await (await feed.fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`)).arrayBuffer();
  }
  await flushUsage(feed.server);
}

const idsOf = async (feed: TestFeed, query: string) =>
  (await feed.json(`/search?${query}`)).data.map((hit: any) => hit.id);

for (const dialect of dialects) {
  test(`the id itself, then ids that start with the text, then words of the id, then of the tags, then mentions; each by downloads (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [
      { id: 'Mention', description: 'Reads json of all kinds.' },
      { id: 'Acme.Json' },
      { id: 'Acme.Tagged', tags: 'xml json' },
      { id: 'Acme.JsonTitle', title: 'All about Json' },
      { id: 'JsonNet' },
      { id: 'Json.More' },
      { id: 'Json' },
      { id: 'Other' },
    ]);
    await download(feed, 'mention', 9);
    await download(feed, 'acme.tagged', 5);
    await download(feed, 'acme.json', 2);
    await download(feed, 'json.more', 1);
    const order = ['Json', 'Json.More', 'JsonNet', 'Acme.Json', 'Acme.JsonTitle', 'Acme.Tagged', 'Mention'];
    t.deepEqual(await idsOf(feed, 'q=json'), order);
    t.deepEqual(await idsOf(feed, 'q=JSON'), order);
    await download(feed, 'acme.json', 20);
    await download(feed, 'jsonnet', 3);
    t.deepEqual(await idsOf(feed, 'q=json'), [
      'Json',
      'JsonNet',
      'Json.More',
      'Acme.Json',
      'Acme.JsonTitle',
      'Acme.Tagged',
      'Mention',
    ]);
    const { data } = await feed.json('/search?q=packageid:acme.json');
    t.is(data[0].totalDownloads, 22);
    t.is(data[0].versions[0].downloads, 22);
    for (let skip = 0; skip < 7; skip += 2) {
      const page = await feed.json(`/search?q=json&skip=${skip}&take=2`);
      t.is(page.totalHits, 7);
      t.deepEqual(
        page.data.map((hit: any) => hit.id),
        (await idsOf(feed, 'q=json')).slice(skip, skip + 2),
      );
    }
  });

  test(`fields, phrases and several words (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [
      { id: 'Newtonsoft.Json', authors: 'James Newton-King', tags: 'serializer', title: 'Json.NET', version: '13.0.1' },
      { id: 'EntityFramework', authors: 'Contoso', tags: 'orm data c# for', title: 'Entities', description: 'Rows.' },
      { id: 'Contoso.Json.Data', authors: 'Contoso, Ltd', tags: 'data', title: 'Data as json', version: '1.0.0' },
      { id: 'Contoso.Tool', packageTypes: [{ name: 'DotnetTool' }] },
      { id: 'Contoso.Rare', packageTypes: [{ name: 'Peculiar' }, { name: 'Template' }] },
    ]);
    const cases: Record<string, string[]> = {
      'newtonsoft.json': ['Newtonsoft.Json'],
      Newton: ['Newtonsoft.Json'],
      'newtonsoft json': ['Newtonsoft.Json'],
      'json newtonsoft': ['Newtonsoft.Json'],
      'json data': ['Contoso.Json.Data'],
      '"json data"': ['Contoso.Json.Data'],
      entityframe: ['EntityFramework'],
      framework: ['EntityFramework'],
      'c#': ['EntityFramework'],
      // Words that are common in texts count only if there are no others.
      for: ['EntityFramework'],
      'the for': [],
      'for the json': ['Contoso.Json.Data', 'Newtonsoft.Json'],
      'json zebra': [],
      'id:json': ['Contoso.Json.Data', 'Newtonsoft.Json'],
      'id:Newtonsoft.Json': ['Newtonsoft.Json'],
      'packageid:newtonsoft.json': ['Newtonsoft.Json'],
      'PackageId:json': [],
      'id: json': ['Contoso.Json.Data', 'Newtonsoft.Json'],
      'packageid:EntityFramework"': ['EntityFramework'],
      'packageid:" newtonsoft.json "': ['Newtonsoft.Json'],
      'version:" 13.0.1.0 "': ['Newtonsoft.Json'],
      'version:newest': [],
      '"" entityframework': ['EntityFramework'],
      'packageid:entityframework packageid:contoso.tool': ['Contoso.Tool', 'EntityFramework'],
      'packageid:entityframework json': [],
      'version:13.0.1': ['Newtonsoft.Json'],
      'version:1.0 id:contoso': ['Contoso.Json.Data', 'Contoso.Rare', 'Contoso.Tool'],
      'version:9.9.9': [],
      'title:entities': ['EntityFramework'],
      'title:"data as json"': ['Contoso.Json.Data'],
      'tags:data': ['Contoso.Json.Data', 'EntityFramework'],
      'tags:data json': ['Contoso.Json.Data'],
      'author:contoso': ['Contoso.Json.Data', 'EntityFramework'],
      'author:king tags:serializer': ['Newtonsoft.Json'],
      'owner:contoso': [],
      'tags:"': ['Contoso.Json.Data', 'Contoso.Rare', 'Contoso.Tool', 'EntityFramework', 'Newtonsoft.Json'],
      'tags:!!': [],
      'tags:!! json': [],
      'tag:data': ['Contoso.Json.Data', 'EntityFramework'],
      'authors:king': ['Newtonsoft.Json'],
      'owners:contoso': [],
      'description:rows': ['EntityFramework'],
      'summary:rows': ['EntityFramework'],
      'tags:rows': [],
      // Eight words in fields count.
      [`${'tags:data '.repeat(8)}tags:zebra`]: ['Contoso.Json.Data', 'EntityFramework'],
      [`${'tags:data '.repeat(7)}tags:zebra`]: [],
      '...': [],
      'unknown:json': [],
      // Of a text, the first 400 characters count.
      [`json${' '.repeat(391)}zebra`]: [],
      [`json${' '.repeat(396)}zebra`]: ['Contoso.Json.Data', 'Newtonsoft.Json'],
    };
    for (const [q, ids] of Object.entries(cases)) {
      const found = await feed.json(`/search?q=${encodeURIComponent(q)}`);
      t.deepEqual(found.data.map((hit: any) => hit.id).toSorted(), ids, q);
      t.is(found.totalHits, ids.length, q);
    }
    for (const name of ['packageType', 'packageTypeFilter', 'PACKAGETYPE']) {
      t.deepEqual(await idsOf(feed, `${name}=dotnettool`), ['Contoso.Tool'], name);
      t.deepEqual(await idsOf(feed, `q=contoso&${name}=Peculiar`), ['Contoso.Rare'], name);
      t.deepEqual(await idsOf(feed, `q=contoso.rare&${name}=template`), ['Contoso.Rare'], name);
      t.is((await idsOf(feed, `q=&${name}=Dependency`)).length, 3, name);
      t.deepEqual(await idsOf(feed, `q=json&${name}=DotnetTool`), [], name);
      t.deepEqual(await idsOf(feed, `${name}=Nothing`), [], name);
    }
  });

  test(`each client sees the versions that it supports (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [
      { id: 'Grown', version: '1.0.0', description: 'old' },
      { id: 'Grown', version: '1.1.0-beta' },
      { id: 'Grown', version: '1.2.0-beta.1' },
      { id: 'Grown', version: '1.1.5+meta' },
      { id: 'OnlyPre', version: '1.0.0-beta' },
      { id: 'OnlyTwo', version: '1.0.0-a.b' },
    ]);
    const cases: [query: string, seen: Record<string, [string, ...string[]]>][] = [
      ['', { Grown: ['1.0.0', '1.0.0'] }],
      ['prerelease=true', { Grown: ['1.1.0-beta', '1.0.0', '1.1.0-beta'], OnlyPre: ['1.0.0-beta', '1.0.0-beta'] }],
      ['semVerLevel=2.0.0', { Grown: ['1.1.5+meta', '1.0.0', '1.1.5+meta'] }],
      [
        'prerelease=TRUE&semVerLevel=2.0.0',
        {
          Grown: ['1.2.0-beta.1', '1.0.0', '1.1.0-beta', '1.1.5+meta', '1.2.0-beta.1'],
          OnlyPre: ['1.0.0-beta', '1.0.0-beta'],
          OnlyTwo: ['1.0.0-a.b', '1.0.0-a.b'],
        },
      ],
    ];
    for (const [query, seen] of cases) {
      const { data, totalHits } = await feed.json(`/search?q=&${query}`);
      t.is(totalHits, Object.keys(seen).length, query);
      for (const hit of data) {
        const [latest, ...versions] = seen[hit.id as string]!;
        t.is(hit.version, latest, query);
        t.deepEqual(
          hit.versions.map((each: any) => each.version),
          versions,
          query,
        );
        t.is((await feed.fetch(hit.registration)).status, 200);
        for (const each of hit.versions) t.is((await feed.fetch(each['@id'])).status, 200);
      }
      for (const [id, [, ...versions]] of Object.entries(seen)) {
        t.deepEqual((await feed.json(`/autocomplete?id=${id}&${query}`)).data, versions);
        t.deepEqual((await feed.json(`/autocomplete?q=${id}&${query}`)).data, [id]);
      }
    }
  });

  test(`unlisted and deleted packages are no longer found, at once (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [
      { id: 'Going', version: '1.0.0', tags: 'early' },
      { id: 'Going', version: '2.0.0', tags: 'late' },
    ]);
    const versions = async () =>
      (await feed.json('/search?q=going')).data.map((hit: any) => [hit.version, hit.versions.length]);
    t.deepEqual(await versions(), [['2.0.0', 2]]);
    t.deepEqual(await idsOf(feed, 'q=tags:early'), [], 'the newest version decides');
    await feed.fetch('/push/going/2.0.0', { method: 'DELETE' });
    t.deepEqual(await versions(), [['1.0.0', 1]]);
    t.deepEqual([await idsOf(feed, 'q=late'), await idsOf(feed, 'q=early')], [[], ['Going']]);
    await feed.fetch('/push/going/1.0.0', { method: 'DELETE' });
    t.deepEqual(await versions(), []);
    t.deepEqual((await feed.json('/autocomplete?q=going')).data, []);
    t.deepEqual((await feed.json('/autocomplete?id=going')).data, []);
    t.is((await rowsOf(feed.server, 'SELECT * FROM package_terms')).length, 0);
    await feed.fetch('/push/going/2.0.0', { method: 'POST' });
    t.deepEqual(await versions(), [['2.0.0', 1]]);
    t.is((await feed.server.fetch('/v1/packages/going/2.0.0', { method: 'DELETE' })).status, 204);
    t.deepEqual(await versions(), []);
  });

  test(`more hits than a page, and more than are counted (${dialect})`, async (t) => {
    const ids = Array.from({ length: 45 }, (_, index) => `Many.P${String(index).padStart(2, '0')}`);
    const feed = await startFeed(t, dialect);
    for (let start = 0; start < ids.length; start += 9) {
      await Promise.all(ids.slice(start, start + 9).map((id) => feed.publish({ id, payloadBytes: 0 })));
    }
    for (const q of ['', 'many', 'ma', 'about', 'about many']) {
      const found: string[] = [];
      for (let skip = 0; skip < 60; skip += 20) {
        const page = await feed.json(`/search?q=${q}&skip=${skip}`);
        t.is(page.totalHits, 45, q);
        found.push(...page.data.map((hit: any) => hit.id));
      }
      t.deepEqual(found.toSorted(), ids, q);
    }
    t.is((await feed.json('/search?take=0')).totalHits, 45);
    t.is((await feed.json('/search?take=0')).data.length, 0);
    t.is((await feed.json('/search?take=99999')).data.length, 45);
    t.is((await feed.json('/search?take=-1&skip=x')).data.length, 20, 'an invalid value counts as not given');
    t.is((await feed.json('/search?take=10&take=20')).data.length, 10);
    t.is((await feed.json('/autocomplete?q=many')).totalHits, 45);
  });

  test(`any text may be searched for (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [{ id: 'Some.Package', tags: 'a b' }]);
    const word = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 20 }),
      fc.constantFrom(
        '"',
        ':',
        'id:',
        'tags:"',
        '%',
        '_',
        '\\',
        "'",
        '?',
        '*',
        '\0',
        '\u{10ffff}',
        'some',
        'İ',
        'x'.repeat(3000),
      ),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(word, { maxLength: 12 }), async (words) => {
        const q = encodeURIComponent(words.join(' ').toWellFormed());
        const response = await feed.fetch(`/search?q=${q}&packageType=${q.slice(0, 3)}`);
        t.is(response.status, 200, q);
        t.is((await feed.fetch(`/autocomplete?q=${q}`)).status, 200, q);
        t.is((await feed.fetch(`/autocomplete?id=${q}`)).status, 200, q);
      }),
      { numRuns: 60 },
    );
  });
}

test('a hit has the fields that clients show', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const nuspec = makeNuspec({
    id: 'Contoso.Hit',
    version: '1.0.0-Beta+build',
    title: 'Hit',
    description: 'Well.',
    summary: 'Short.',
    authors: 'Ann, Bob,',
    tags: 'one two',
    projectUrl: 'https://example.com/',
    iconUrl: 'https://example.com/icon.png',
    packageTypes: [{ name: 'DotnetTool', version: '1.0' }, { name: 'Template' }],
    dependencies: [{ id: 'Other' }],
  });
  const more = '<owners>Cid , Dan</owners><licenseUrl>https://example.com/license</licenseUrl><title>';
  await feed.publish({ id: 'Contoso.Hit', nuspec: nuspec.replace('<title>', more) }, { id: 'Bare', icon: pngPixel });
  const found = await feed.fetch('/search?semVerLevel=2.0.0&prerelease=true');
  t.is(found.headers.get('cache-control'), 'private, no-cache');
  t.is(found.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  const at = (id: string) => `${feed.server.url}/v3/registration-gz-semver2/${id}`;
  t.deepEqual(await found.json(), {
    totalHits: 2,
    data: [
      {
        '@id': `${at('bare')}/index.json`,
        '@type': 'Package',
        registration: `${at('bare')}/index.json`,
        id: 'Bare',
        version: '1.0.0',
        description: 'About Bare',
        summary: '',
        title: 'Bare',
        iconUrl: `${feed.server.url}/v3/package/bare/1.0.0/icon`,
        tags: [],
        authors: ['Some Author'],
        owners: [],
        totalDownloads: 0,
        verified: false,
        packageTypes: [{ name: 'Dependency' }],
        versions: [{ version: '1.0.0', downloads: 0, '@id': `${at('bare')}/1.0.0.json` }],
      },
      {
        '@id': `${at('contoso.hit')}/index.json`,
        '@type': 'Package',
        registration: `${at('contoso.hit')}/index.json`,
        id: 'Contoso.Hit',
        version: '1.0.0-Beta+build',
        description: 'Well.',
        summary: 'Short.',
        title: 'Hit',
        iconUrl: 'https://example.com/icon.png',
        licenseUrl: 'https://example.com/license',
        projectUrl: 'https://example.com/',
        tags: ['one', 'two'],
        authors: ['Ann', 'Bob'],
        owners: ['Cid', 'Dan'],
        totalDownloads: 0,
        verified: false,
        packageTypes: [{ name: 'DotnetTool' }, { name: 'Template' }],
        versions: [{ version: '1.0.0-Beta+build', downloads: 0, '@id': `${at('contoso.hit')}/1.0.0-beta.json` }],
      },
    ],
  });
  const [plain] = (await feed.json('/search')).data;
  t.is(plain.registration, `${feed.server.url}/v3/registration/bare/index.json`);
  const completed = await feed.fetch('/autocomplete?q=bare');
  t.is(completed.headers.get('cache-control'), 'private, no-cache');
  t.deepEqual(await completed.json(), { totalHits: 1, data: ['Bare'] });
  const versions = await feed.fetch('/autocomplete?id=contoso.hit&prerelease=true&semVerLevel=2.0.0');
  t.is(versions.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  t.deepEqual(await versions.json(), { data: ['1.0.0-Beta+build'] });
  const none = await feed.fetch('/autocomplete?id=..');
  t.is(none.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  t.deepEqual(await none.json(), { data: [] });
  // Of a parameter that is given twice, the exact name counts, then the first one.
  t.deepEqual((await feed.json('/autocomplete?Q=contoso&q=bare')).data, ['Bare']);
  t.deepEqual((await feed.json('/autocomplete?Q=bare&Q=contoso')).data, ['Bare']);
  t.deepEqual(
    (await feed.json('/search?packageType=DotnetTool&packageTypeFilter=Dependency&prerelease=true')).data,
    [],
  );
});

test('a package is not found any more by a type with spaces that its newest version lacks', async (t) => {
  const [from, to] = ['My Own Type', 'Other Type'].map((name) => [{ name }]);
  const feed = await startFeed(t, 'sqlite', [{ id: 'Contoso.Tool', version: '1.0.0', packageTypes: from! }]);
  const found = async (type: string) => (await feed.json(`/search?packageType=${encodeURIComponent(type)}`)).totalHits;
  t.deepEqual([await found('my own type'), await found('Other Type'), await found('My')], [1, 0, 0]);
  await feed.publish({ id: 'Contoso.Tool', version: '2.0.0', packageTypes: to! });
  t.deepEqual([await found('my own type'), await found('Other Type'), await found('My')], [0, 1, 0]);
});

test('a page has at most 1000 hits, and is empty behind 3000, so that a client that reads all pages ends', async (t) => {
  const feed = await startFeed(t, 'sqlite');
  const digits = ['a', 'b', 'c'].map((name) => `(SELECT value AS ${name} FROM json_each('[0,1,2,3,4,5,6,7,8,9]'))`);
  const number = 'd.value * 1000 + a * 100 + b * 10 + c';
  // The database itself makes the packages, with only what a completion reads. The first IDs come first.
  await databaseOf(feed.server).transaction((tx) =>
    tx.run(
      `INSERT INTO packages (account_id, package_key, package_id, version_count, download_count, standing, flags,
         latest_stable2, id_terms, created_at, updated_at)
       SELECT ?, ${number}, ${number}, 1, 0, 63, 15, ${number}, '', 1, 1
       FROM json_each('[1,2,3,4]') AS d JOIN ${digits.join(' JOIN ')} ORDER BY ${number}`,
      [defaultAccountOf(feed.server)],
    ),
  );
  const ids = async (query: string): Promise<string[]> => (await feed.json(`/autocomplete?${query}`)).data;
  const all = await ids('take=1000');
  t.deepEqual([all.length, all.at(-1)], [1000, '1999']);
  t.deepEqual(await ids('take=1001'), all);
  t.deepEqual(await ids('take=999'), all.slice(0, -1));
  t.deepEqual(await ids('take=99999999999999999999'), all);
  t.deepEqual(await ids(''), all.slice(0, 20));
  for (const skip of ['-1', '1.5', '', 'x']) t.deepEqual(await ids(`skip=${skip}&take=2`), all.slice(0, 2), skip);
  for (const take of ['-1', '1.5', '', 'x']) t.deepEqual(await ids(`take=${take}`), all.slice(0, 20), take);
  for (const [skip, first] of [
    ['1', '1001'],
    ['2999', '3999'],
    ['3000', '4000'],
  ] as const)
    t.deepEqual(await ids(`skip=${skip}&take=1`), [first], skip);
  for (const skip of ['3001', '4000', '99999999999999999999']) t.deepEqual(await ids(`skip=${skip}&take=1`), [], skip);
});
