import test, { type ExecutionContext } from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import type { SearchHit } from '../../../src/nuget/format/search-hit.ts';
import type { FeedContext } from '../../../src/nuget/hosted/feed-context.ts';
import { parseQuery } from '../../../src/nuget/search/search-query.ts';
import { MergedSearch, type SearchRequest } from '../../../src/nuget/source/merged-search.ts';
import { PackageSource } from '../../../src/nuget/source/package-source.ts';
import type { FeedViews } from '../../../src/nuget/upstream/feed-view.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { hostRows } from '../../support/hosted-rows.ts';

const upstreamOf = (id: string, exclude: readonly string[] = []) =>
  ({ id, name: `${id}.test`, config: { include: ['*'], exclude }, serves: () => true }) as unknown as Upstream;
const one = upstreamOf('one');
const two = upstreamOf('two', ['Kept.*']);
const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
const broken = new Error('it broke');

const hit = (id: string) => ({ version: '1.0.0', metadata: { id } }) as SearchHit;

interface Results {
  upstream: Upstream;
  served: 'hit' | 'miss';
  totalHits: number;
  data: readonly string[];
}

interface Setup {
  results?: readonly Results[];
  hasUpstreams?: boolean;
  /** The versions that autocompletion of the upstream has. */
  completed?: { served: 'hit' | 'miss'; value: readonly string[] };
  mirror?: { owner?: () => Promise<unknown>; versions?: () => Promise<unknown> };
}

/** Account 1 hosts `Alpha`, `Beta` and the merged `Merged`; account 2 hosts `Shared` and `Secret.Thing`, and shares the first. */
async function start(t: ExecutionContext, { results = [], hasUpstreams = true, completed, mirror = {} }: Setup = {}) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await hostRows(database, 1, 'Alpha', ['1.0.0']);
  await hostRows(database, 1, 'Beta', ['1.0.0', '2.0.0-Rc', { version: '3.0.0', listed: false }, '4.0.0-rc.1']);
  await hostRows(database, 1, 'Merged', ['1.0.0', { version: '2.0.0', listed: false }]);
  await hostRows(database, 2, 'Shared', ['1.0.0']);
  await hostRows(database, 2, 'Secret.Thing', ['1.0.0']);
  const policy = new UpstreamPolicy([one, two], undefined, ['Reserved.*'], ['Merged']);
  const asked: unknown[][] = [];
  const view = {
    mirror: { origin: policy, owner: async () => ({ upstream: one }), versions: async () => undefined, ...mirror },
    search: {
      hasUpstreams,
      query: async (parameters: URLSearchParams) => {
        asked.push(['query', parameters.toString()]);
        return results.map((each) => ({ ...each, data: each.data.map(hit) }));
      },
      autocomplete: async (parameters: URLSearchParams) => {
        asked.push(['autocomplete', parameters.toString()]);
        return results;
      },
      versions: async (upstream: Upstream, parameters: URLSearchParams) => {
        asked.push(['versions', upstream.id, parameters.toString()]);
        return completed;
      },
    },
  };
  const views = { of: async () => view } as unknown as FeedViews;
  const source = new PackageSource({ feed: { database } as unknown as FeedContext, views, policy });
  return { search: new MergedSearch(database, source, views), asked };
}

const own = { accountId: 1, only: undefined };
const shared = { accountId: 2, only: new NameSet(['shared']), without: 1 };
const options = { prerelease: false, semVer2: true, skip: 0, take: 10 };
const request = (text: string, q = ''): SearchRequest => ({
  text,
  packageType: undefined,
  targets: undefined,
  query: parseQuery(q),
});

/** The ids that both searches find, which have the same order. */
async function found(
  t: ExecutionContext,
  { search }: Awaited<ReturnType<typeof start>>,
  more: Partial<Parameters<MergedSearch['find']>[2]> = {},
  asked = request('lib'),
  accounts: Parameters<MergedSearch['find']>[0] = [own, shared],
) {
  const hits = await search.find(accounts, asked, { ...options, ...more });
  const ids = await search.findIds(accounts, asked, { ...options, ...more });
  const { data } = hits.value;
  t.deepEqual(ids, { ...hits, value: { ...hits.value, data: data.map(({ metadata: { id } }) => id) } });
  return [ids.served, ids.value.totalHits, ids.value.data.join(' ')];
}

const theirs: Results[] = [
  { upstream: one, served: 'hit', totalHits: 100, data: ['ALPHA', 'Gamma', 'SHARED', 'Delta', 'Merged', 'Reserved.X'] },
  { upstream: two, served: 'hit', totalHits: 50, data: ['delta', 'Kept.Y', 'Epsilon', 'Secret.Thing'] },
];

test('hosted hits come first, then those of upstreams that are nobody else’s, each once', async (t) => {
  const feed = await start(t, { results: theirs });
  const ours = 'Alpha Beta Merged Shared';
  // Of the first upstream four are dropped, of the second two.
  const total = 4 + 100 - 4 + 50 - 2;
  t.deepEqual(await found(t, feed), ['hit', total, `${ours} Gamma Delta Epsilon Secret.Thing`]);
  t.deepEqual(await found(t, feed, { take: 5 }), ['hit', total, `${ours} Gamma`]);
  t.deepEqual(await found(t, feed, { take: 3 }), ['hit', total, 'Alpha Beta Merged']);
  t.deepEqual(await found(t, feed, { skip: 3, take: 2 }), ['hit', total, 'Shared Gamma']);
  t.deepEqual(await found(t, feed, { skip: 5, take: 2 }), ['hit', total, 'Delta Epsilon']);
  t.deepEqual(await found(t, feed, { skip: 8, take: 2 }), ['hit', total, '']);
  t.deepEqual(await found(t, feed, {}, request('lib'), [own]), [
    'hit',
    total,
    'Alpha Beta Merged Gamma SHARED Delta Epsilon Secret.Thing',
  ]);
});

test('one new answer of an upstream makes a miss, and without an answer the hits are hosted', async (t) => {
  const results = [theirs[0]!, { ...theirs[1]!, served: 'miss' as const }];
  t.is((await found(t, await start(t, { results })))[0], 'miss');
  const none = ['hosted', 4, 'Alpha Beta Merged Shared'];
  t.deepEqual(await found(t, await start(t)), none);
  const without = await start(t, { hasUpstreams: false, results: theirs });
  t.deepEqual(await found(t, without), none);
  t.deepEqual(without.asked, []);
  const empty = [{ ...theirs[0]!, totalHits: 0, data: ['Alpha'] }];
  t.deepEqual((await found(t, await start(t, { results: empty })))[1], 4, 'never fewer than are hosted');
});

test('a limited reader finds its names, and mirrored ones alone if it may see no hosted ones', async (t) => {
  const feed = await start(t, { results: theirs });
  const only = new NameSet(['alpha', 'gamma', 'epsilon']);
  t.deepEqual(await found(t, feed, { only }, request('lib'), [{ accountId: 1, only }]), [
    'hit',
    3,
    'Alpha Gamma Epsilon',
  ]);
  feed.asked.length = 0;
  const empty = new NameSet([]);
  t.deepEqual(await found(t, feed, { only: empty }, request('lib'), [{ accountId: 1, only: empty }]), [
    'hosted',
    0,
    '',
  ]);
  t.deepEqual(feed.asked, []);
  t.deepEqual((await found(t, feed, { mirroredOnly: true }))[2], 'Gamma Delta Epsilon Secret.Thing');
});

test('a search that would tell a private id is not sent to upstreams', async (t) => {
  const feed = await start(t, { results: theirs });
  const isSent = async (
    text: string,
    more: object = {},
    accounts?: Parameters<MergedSearch['find']>[0],
    type?: string,
  ) => {
    feed.asked.length = 0;
    await found(t, feed, more, { ...request(text), packageType: type }, accounts);
    return feed.asked.length > 0;
  };
  for (const text of ['alpha', 'alpha.more', 'reserved.x', 'shared', 'x shared.y']) t.false(await isSent(text), text);
  for (const text of ['merged', 'lib', 'secret.thing', 'secret.th']) t.true(await isSent(text), text);
  t.true(await isSent('shared', {}, [own]));
  t.false(await isSent('lib', {}, [own], 'Alpha'));
  // Of ids that the reader may not see, those that it cannot read count only as a whole.
  const hidden = { accountId: 2, only: undefined };
  t.false(await isSent('secret.th', {}, [hidden]));
  t.true(await isSent('secret.th', { only: new NameSet(['other']) }, [hidden]));
  t.true(await isSent('secret.th', { mirroredOnly: true }, [hidden]));
  t.false(await isSent('secret.thing', { mirroredOnly: true }, [hidden]));
});

test('upstreams get the text as it was typed, and more hits than a page has', async (t) => {
  const { search, asked } = await start(t);
  const all = { q: 'a "b"', skip: '0', take: '30', prerelease: 'false', semVerLevel: '2.0.0' };
  const parameters = (more: Record<string, string> = {}) => new URLSearchParams({ ...all, ...more }).toString();
  await search.find([own], request('a "b"'), options);
  await search.findIds([own], request('a "b"'), { ...options, skip: 5, prerelease: true, semVer2: false });
  await search.find([own], { ...request('a "b"'), packageType: 'DotnetTool' }, { ...options, skip: 970 });
  const targets = {
    usable: new Map(),
    parameters: [
      ['framework', 'net8.0'],
      ['framework', 'net9.0'],
    ] as const,
  };
  await search.find([own], { ...request('a "b"'), targets }, { ...options, skip: 971 });
  t.deepEqual(asked, [
    ['query', parameters()],
    ['autocomplete', parameters({ take: '35', prerelease: 'true', semVerLevel: '1.0.0' })],
    ['query', parameters({ take: '1000', packageType: 'DotnetTool' })],
    ['query', `${parameters({ take: '1000' })}&framework=net8.0&framework=net9.0`],
  ]);
});

const seen = { ...options, isShared: false };
const completionOf = (id: string, prerelease: string, semVerLevel: string) =>
  new URLSearchParams({ id, prerelease, semVerLevel }).toString();

test('the versions of an id are the hosted ones, and those that its upstream completes', async (t) => {
  const completed = { served: 'miss', value: ['1.0', '2.0.0', '5.0.0-a'] } as const;
  const { search, asked } = await start(t, { completed });
  t.deepEqual(await search.versions(1, 'Beta', seen), { served: 'hosted', value: ['1.0.0'] });
  t.deepEqual(await search.versions(1, 'Beta', { ...seen, prerelease: true }), {
    served: 'hosted',
    value: ['1.0.0', '2.0.0-Rc', '4.0.0-rc.1'],
  });
  t.deepEqual((await search.versions(1, 'Beta', { ...seen, prerelease: true, semVer2: false })).value, [
    '1.0.0',
    '2.0.0-Rc',
  ]);
  t.deepEqual(await search.versions(2, 'Shared', { ...seen, isShared: true }), { served: 'hosted', value: ['1.0.0'] });
  t.deepEqual(asked, []);
  t.deepEqual(await search.versions(1, 'Lib', seen), completed);
  t.deepEqual(await search.versions(1, 'Merged', { ...seen, prerelease: true, semVer2: false }), {
    served: 'miss',
    value: ['1.0.0', '5.0.0-a'],
  });
  t.deepEqual(asked.splice(0), [
    ['versions', 'one', completionOf('Lib', 'false', '2.0.0')],
    ['versions', 'one', completionOf('Merged', 'true', '1.0.0')],
  ]);
  const none = { served: 'hosted', value: [] } as const;
  t.deepEqual(await search.versions(1, 'Lib', { ...seen, only: new NameSet(['other']) }), none);
  t.deepEqual(await search.versions(1, 'Alpha', { ...seen, only: new NameSet(['other']) }), none);
  for (const id of ['Alpha', 'Merged', 'Reserved.X'])
    t.deepEqual(await search.versions(1, id, { ...seen, mirroredOnly: true }), none, id);
  t.deepEqual(asked, []);
  t.deepEqual(await search.versions(1, 'LIB', { ...seen, mirroredOnly: true, only: new NameSet(['lib']) }), completed);
  t.deepEqual((await search.versions(1, 'Alpha', { ...seen, only: new NameSet(['alpha']) })).value, ['1.0.0']);
});

test('where an upstream completes nothing, its list of versions says which ones a client wants', async (t) => {
  const value = ['1.0.0', '1.5.0', '2.0.0-a', '3.0.0-a.1', '4.0.0'];
  const versions = async () => ({ value, outcome: 'stale' });
  const feed = await start(t, { mirror: { versions } });
  const of = async (prerelease: boolean, semVer2: boolean) => {
    const { served, value } = await feed.search.versions(1, 'Lib', { ...seen, prerelease, semVer2 });
    t.is(served, 'stale');
    return value;
  };
  t.deepEqual(await of(true, true), value);
  t.deepEqual(await of(false, true), ['1.0.0', '1.5.0', '4.0.0']);
  t.deepEqual(await of(true, false), ['1.0.0', '1.5.0', '2.0.0-a', '4.0.0']);
  t.deepEqual(await of(false, false), ['1.0.0', '1.5.0', '4.0.0']);
  t.is(feed.asked.length, 4);
  const silent = await start(t, {
    mirror: { versions, owner: async () => ({ upstream: one, silence: down }) },
    completed: { served: 'hit', value: ['9.0.0'] },
  });
  t.deepEqual((await silent.search.versions(1, 'Lib', seen)).value, ['1.0.0', '1.5.0', '4.0.0']);
  t.deepEqual(silent.asked, [], 'an upstream that is not to be asked is not asked');
  t.deepEqual(await (await start(t)).search.versions(1, 'Lib', seen), { served: 'hosted', value: [] });
  const empty = await start(t, { completed: { served: 'hit', value: [] } });
  t.deepEqual(await empty.search.versions(1, 'Merged', seen), { served: 'hosted', value: ['1.0.0'] });
});

function failing(t: ExecutionContext, error: Error) {
  const owner = async () => {
    throw error;
  };
  return start(t, { mirror: { owner } });
}

test('while the upstream fails, a merged id has its hosted versions, and another id none', async (t) => {
  const { search } = await failing(t, down);
  t.deepEqual(await search.versions(1, 'Merged', seen), { served: 'hosted', value: ['1.0.0'] });
  await t.throwsAsync(search.versions(1, 'Lib', seen), { is: down });
  await t.throwsAsync((await failing(t, broken)).search.versions(1, 'Merged', seen), { is: broken });
});
