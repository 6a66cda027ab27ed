import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { Addresses } from '../../../src/nuget/feed/addresses.ts';
import { addSearching } from '../../../src/nuget/feed/search-routes.ts';
import { searchResult } from '../../../src/nuget/feed/search-result.ts';
import { searchTargets } from '../../../src/nuget/format/frameworks.ts';
import type { SearchHit } from '../../../src/nuget/format/search-hit.ts';
import { parseQuery } from '../../../src/nuget/search/search-query.ts';
import { feedRoutes, routeJson } from '../../support/feed-routes.ts';

const hit = (id: string): SearchHit => ({
  version: '1.0.0',
  fullVersion: '1.0.0',
  hasIcon: false,
  metadata: { id, description: 'd', packageTypes: [{ name: 'Dependency' }] },
  totalDownloads: 1,
  versions: [{ version: '1.0.0', fullVersion: '1.0.0', downloads: 1 }],
});
const hits = [hit('B'), hit('A')];
const everyone = { kind: 'token', accountId: 1, names: undefined };

/** The routes of searches, with what they ask for. */
async function searching(t: Parameters<typeof feedRoutes>[0], principal: object = everyone) {
  const asked: unknown[][] = [];
  const search = {
    find: (...given: unknown[]) => {
      asked.push(['find', ...given]);
      return Promise.resolve({ served: 'stale', value: { totalHits: 7, data: hits } });
    },
    findIds: (...given: unknown[]) => {
      asked.push(['findIds', ...given]);
      return Promise.resolve({ served: 'hit', value: { totalHits: 2, data: ['B', 'A'] } });
    },
    versions: (...given: unknown[]) => {
      asked.push(['versions', ...given]);
      return Promise.resolve(given[1] === 'none' ? undefined : { served: 'miss', value: ['1.0.0'] });
    },
  };
  const { ask } = await feedRoutes(t, (router, answering) => addSearching(router, answering, { search } as never), {
    principal,
  } as never);
  return { ask, asked };
}

const addresses = new Addresses('https://here.test');
const plain = (value: unknown) => JSON.parse(JSON.stringify(value));
const defaults = {
  prerelease: false,
  semVer2: false,
  skip: 0,
  take: 20,
  only: undefined,
  mirroredOnly: false,
};

test('hits are answered in their order, with addresses of the hive that the client reads', async (t) => {
  const { ask } = await searching(t);
  for (const [query, hive] of [
    ['', 'registration'],
    ['?semVerLevel=2.0.0', 'registration-gz-semver2'],
  ] as const) {
    const answer = await ask(`/search${query}`);
    t.deepEqual(answer.needs, ['read', undefined, 'searches']);
    t.deepEqual(routeJson(answer), {
      totalHits: 7,
      data: plain(hits.map((each) => searchResult(addresses, hive, each))),
    });
    t.deepEqual(
      ['content-type', 'cache-control', 'cache-status'].map((name) => answer.headers.get(name)),
      ['application/json', 'private, no-cache', 'entrepot; hit; detail=stale'],
    );
  }
});

test('parameters are read with their names in any case, and wrong ones count as not given', async (t) => {
  const { ask, asked } = await searching(t);
  for (const [query, options] of [
    ['', {}],
    ['?PreRelease=TRUE', { prerelease: true }],
    ['?prerelease=1', {}],
    ['?semVerLevel=2.0.0', { semVer2: true }],
    ['?SEMVERLEVEL=2.9', { semVer2: true }],
    ['?semVerLevel=2', {}],
    ['?semVerLevel=12.0.0', {}],
    ['?skip=5&take=7', { skip: 5, take: 7 }],
    ['?Skip=5&Take=0', { skip: 5, take: 0 }],
    ['?skip=-1&take=x', {}],
    ['?skip=1x&take=1.5', {}],
    ['?take=1000', { take: 1000 }],
    ['?take=1001', { take: 1000 }],
    ['?skip=3000&take=5', { skip: 3000, take: 5 }],
    ['?skip=3001&take=5', { skip: 3000, take: 0 }],
    ['?take=3&Take=4', { take: 3 }],
    ['?Take=3&tAKE=4', { take: 3 }],
  ] as const) {
    await ask(`/search${query}`);
    t.deepEqual(asked.splice(0)[0]![3], { ...defaults, ...options }, query);
  }
});

const request = (text: string, packageType?: string, names: string[] = [], words: string[] = []) => {
  const targets = searchTargets(names, words);
  const query = parseQuery(text, { packageType, idOnly: false, frameworks: targets?.usable });
  return { text, packageType, targets, query };
};

test('text, package type and target frameworks are passed on as they were typed and as they are understood', async (t) => {
  const { ask, asked } = await searching(t);
  const requestOf = async (query: string) => {
    await ask(`/search${query}`);
    return asked.splice(0)[0]![2];
  };
  t.deepEqual(await requestOf(''), request(''));
  t.deepEqual(await requestOf('?q=id:lib%20json'), request('id:lib json'));
  t.deepEqual(await requestOf('?Q=a'), request('a'));
  for (const name of ['packageType', 'packageTypeFilter', 'PACKAGETYPE'])
    t.deepEqual(await requestOf(`?${name}=DotnetTool`), request('', 'DotnetTool'));
  t.deepEqual(await requestOf('?packageType=&packageTypeFilter=Template'), request('', 'Template'));
  t.deepEqual(await requestOf('?packageType='), request(''));
  t.deepEqual(
    await requestOf('?supportedFramework=.NETFramework,Version%3Dv4.7.2&SupportedFramework=net8.0'),
    request('', undefined, ['.NETFramework,Version=v4.7.2', 'net8.0']),
  );
  t.deepEqual(
    await requestOf('?tfms=net8.0,%20netstandard2.0,&frameworks=net,%20,netstandard'),
    request('', undefined, ['net8.0', ' netstandard2.0'], ['net', 'netstandard']),
  );
  t.deepEqual(await requestOf('?supportedFramework=net6.0&tfms=net8.0'), request('', undefined, ['net6.0', 'net8.0']));
  t.deepEqual(await requestOf('?tfms=unknown1.0'), request('', undefined, ['unknown1.0']));
});

test('ids are completed by what was typed, with what the reader may see', async (t) => {
  const names = { of: () => new NameSet(['lib*']) };
  for (const principal of [everyone, { ...everyone, names }, { kind: 'anonymous', reads: 'mirrored', accountId: 1 }]) {
    const { ask, asked } = await searching(t, principal);
    const answer = await ask('/autocomplete?q=co&take=3&prerelease=true');
    t.deepEqual(answer.needs, ['read', undefined, 'searches']);
    t.deepEqual(routeJson(answer), { totalHits: 2, data: ['B', 'A'] });
    t.is(answer.headers.get('cache-status'), 'entrepot; hit');
    const only = 'names' in principal ? principal.names?.of() : undefined;
    t.deepEqual(asked, [
      [
        'findIds',
        [{ accountId: 1, only }],
        {
          text: 'co',
          packageType: undefined,
          targets: undefined,
          query: parseQuery('co', { packageType: undefined, idOnly: true, frameworks: undefined }),
        },
        { ...defaults, prerelease: true, take: 3, only, mirroredOnly: principal.kind === 'anonymous' },
      ],
    ]);
    asked.length = 0;
    await ask('/search?q=co');
    t.deepEqual([asked[0]![0], asked[0]![1]], ['find', [{ accountId: 1, only }]]);
  }
});

test('versions are completed for the owner of an id, and there are none for what is no id', async (t) => {
  const shared = {
    ownerOf: (_account: number, _kind: string, id: string) => (id === 'Theirs' ? 2 : 1),
    lists: () => [],
  };
  const { ask, asked } = await searching(t, { ...everyone, shared });
  const answer = await ask('/autocomplete?id=Lib&q=x');
  t.deepEqual(answer.needs, ['read', undefined, 'searches']);
  t.deepEqual(routeJson(answer), { data: ['1.0.0'] });
  t.deepEqual(
    ['content-type', 'cache-control', 'cache-status'].map((name) => answer.headers.get(name)),
    ['application/json', 'private, no-cache', 'entrepot; fwd=miss; stored'],
  );
  await ask('/autocomplete?ID=Theirs&prerelease=true&semVerLevel=2.0.0');
  t.deepEqual(asked, [
    ['versions', 1, 'Lib', { ...defaults, isShared: false }],
    ['versions', 2, 'Theirs', { ...defaults, prerelease: true, semVer2: true, isShared: true }],
  ]);
  const none = await ask('/autocomplete?id=none');
  t.deepEqual(routeJson(none), { data: [] });
  t.is(none.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  asked.length = 0;
  t.deepEqual(routeJson(await ask('/autocomplete?id=')), { data: [] });
  t.deepEqual(routeJson(await ask('/autocomplete?id=a..b')), { data: [] });
  t.deepEqual(asked, []);
});
