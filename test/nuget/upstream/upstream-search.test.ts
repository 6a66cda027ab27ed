import { Readable } from 'node:stream';
import test from 'ava';
import { Cache } from '../../../src/cache/cache.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import type { PackageMirror } from '../../../src/nuget/upstream/package-mirror.ts';
import {
  autocompleteTypes,
  searchTypes,
  UpstreamSearch,
  type SearchesUnderWay,
} from '../../../src/nuget/upstream/upstream-search.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { testClock } from '../../support/clock.ts';
import { until } from '../../support/until.ts';

// Searches of upstreams that answer from lists.

type Answer = string | number | Error | Promise<string>;

interface Setup {
  /** Of each upstream, what it answers to each request. */
  answers?: Record<string, Answer[]>;
  /** Of each id, the versions that lists do not show; the id alone is limited with none of them. */
  hidden?: Record<string, readonly string[]>;
  /** What the list of versions of an id is. */
  versions?: Record<string, readonly string[] | Error>;
  wait?: number;
  timeout?: number;
}

async function start({ answers = {}, hidden = {}, versions = {}, wait = 60_000, timeout = 60_000 }: Setup = {}) {
  const sent: object[] = [];
  const logged: unknown[][] = [];
  const asked: unknown[][] = [];
  const clock = testClock(1000);
  const upstreams = Object.keys(answers).map((id) => ({
    id,
    name: `${id}.test`,
    base: new URL(`http://${id}.test/v3/index.json`),
    config: { freshFor: 50, timeout },
    send: async ({ url, ...request }: { url: URL }) => {
      sent.push({ url: url.href, ...request });
      const answer = await answers[id]!.shift()!;
      if (answer instanceof Error) throw answer;
      const [status, text] = typeof answer === 'number' ? [answer, ''] : [200, answer];
      return { status, headers: {}, body: Readable.from([Buffer.from(text)]) };
    },
    bodyFailed: (error: unknown) => error,
  })) as unknown as Upstream[];
  const packages = {
    origin: { all: upstreams },
    resource: async ({ id }: Upstream, types: readonly string[]) => {
      asked.push([id, types]);
      return `http://${id}.test/${types === searchTypes ? 'query' : 'complete'}?key=1`;
    },
    flat: async ({ id }: Upstream) => `http://${id}.test/flat/`,
    isLimited: async (_upstream: Upstream, key: string) => key in hidden,
    listed: async <T>(_upstream: Upstream, key: string, items: readonly T[], versionOf: (item: T) => string) =>
      items.filter((each) => !hidden[key]?.includes(versionOf(each))),
    allVersions: async (owner: { upstream: Upstream }, key: string) => {
      asked.push([owner, key]);
      const found = versions[key];
      if (found instanceof Error) throw found;
      return found && { value: found, outcome: 'hit' };
    },
  } as unknown as PackageMirror;
  const log = { info: (...line: unknown[]) => void logged.push(line) } as never;
  const cache = await Cache.open(undefined, clock.time, () => undefined);
  const underWay: SearchesUnderWay = new Map();
  const search = new UpstreamSearch(packages, cache, underWay, log, wait);
  return { search, upstreams, sent, logged, asked, clock, underWay, cache };
}

const hit = (id: string, ...versions: readonly string[]) => ({
  id,
  version: versions.at(-1)!,
  totalDownloads: 5,
  versions: versions.map((version) => ({ version, downloads: 2 })),
});
const found = (...data: readonly unknown[]) => JSON.stringify({ totalHits: 70 + data.length, data });
const q = (text: string) => new URLSearchParams({ q: text, take: '20' });

const request = (id: string) => ({
  url: `http://${id}.test/query?key=1&q=a+b&take=20`,
  subject: `http://${id}.test/query?key=1&q=a+b&take=20`,
  headers: { 'accept-encoding': 'gzip' },
  service: 'search',
});

test('each upstream is asked once while its answer is fresh, with the parameters and nothing else', async (t) => {
  const answers = { one: [found(hit('A', '1.0.0')), found(hit('A', '2.0.0'))], two: [found(), found()] };
  const { search, upstreams, sent, clock, asked, underWay, logged } = await start({ answers });
  t.true(search.hasUpstreams);
  const [first, second] = await search.query(q('a b'));
  t.deepEqual([first!.upstream, first!.served, first!.totalHits], [upstreams[0]!, 'miss', 71]);
  t.like(first!.data[0], { version: '1.0.0', fullVersion: '1.0.0', hasIcon: false, totalDownloads: 5 });
  t.deepEqual(first!.data[0]!.versions, [{ version: '1.0.0', fullVersion: '1.0.0', downloads: 2 }]);
  t.is(first!.data[0]!.metadata.id, 'A');
  t.deepEqual(second as object, { upstream: upstreams[1]!, served: 'miss', totalHits: 70, data: [] });
  t.deepEqual(sent, [request('one'), request('two')]);
  t.deepEqual(asked, [
    ['one', searchTypes],
    ['two', searchTypes],
  ]);
  clock.now! += 49;
  const again = await search.query(q('a b'));
  t.deepEqual(
    again.map(({ served, totalHits, data }) => [served, totalHits, data]),
    [
      ['hit', 71, first!.data],
      ['hit', 70, []],
    ],
  );
  t.is(sent.length, 2);
  clock.now! += 1;
  t.deepEqual(
    (await search.query(q('a b'))).map(({ served, data }) => [served, data[0]?.version]),
    [
      ['miss', '2.0.0'],
      ['miss', undefined],
    ],
  );
  t.is(underWay.size, 0);
  t.deepEqual(logged, []);
  t.false((await start()).search.hasUpstreams);
});

test('answers to other parameters, of other upstreams and of other services are other answers', async (t) => {
  const answers = { one: [found(hit('A', '1.0.0')), found(hit('B', '1.0.0')), found('C', 'D')] };
  const { search, sent, asked } = await start({ answers });
  const idsOf = async (text: string) => (await search.query(q(text)))[0]!.data.map(({ metadata }) => metadata.id);
  t.deepEqual(await idsOf('a'), ['A']);
  t.deepEqual(await idsOf('b'), ['B']);
  const [completed] = await search.autocomplete(q('a'));
  t.deepEqual([completed!.served, completed!.totalHits, completed!.data], ['miss', 72, ['C', 'D']]);
  t.deepEqual((await search.autocomplete(q('a')))[0]!.served, 'hit');
  t.is(sent.length, 3);
  t.deepEqual(asked.at(-1), ['one', autocompleteTypes]);
});

test('an upstream that fails, refuses or sends anything else is left out, and another error is not hidden', async (t) => {
  const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
  const busy = new DomainError('TooManyRequests', 'It is busy.');
  const form = 'sent an answer that is not of the expected form';
  const answers = {
    down: [down],
    busy: [busy],
    form: ['[]'],
    text: ['<html>'],
    moved: [302],
    gone: [404],
    broken: [500],
    fine: [found('Lib')],
  };
  const { search, upstreams, logged, underWay } = await start({ answers });
  t.deepEqual(await search.autocomplete(q('a')), [
    { upstream: upstreams.at(-1)!, served: 'miss', totalHits: 71, data: ['Lib'] },
  ]);
  const reasons = {
    down: 'It is down.',
    busy: 'It is busy.',
    form: `The upstream form.test ${form}.`,
    text: `The upstream text.test ${form}.`,
    moved: 'The upstream moved.test answered 302.',
  };
  t.deepEqual(
    logged.toSorted(([a], [b]) =>
      (a as Upstream & { upstream: string }).upstream < (b as { upstream: string }).upstream ? -1 : 1,
    ),
    Object.entries(reasons)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([upstream, reason]) => [{ upstream, reason }, 'left out of a search']),
  );
  t.is(underWay.size, 0);
  const other = await start({ answers: { one: [new DomainError('Invalid', 'It broke.')] } });
  await t.throwsAsync(other.search.query(q('a')), { name: 'Invalid', message: 'It broke.' });
  t.deepEqual(other.logged, []);
});

test('an answer that is not kept is asked for again', async (t) => {
  const { search, sent } = await start({ answers: { one: [404, 500, found('Lib')] } });
  t.deepEqual(await search.autocomplete(q('a')), []);
  t.deepEqual(await search.autocomplete(q('a')), []);
  t.deepEqual((await search.autocomplete(q('a')))[0]!.data, ['Lib']);
  t.is(sent.length, 3);
});

test('equal searches at the same time share a request', async (t) => {
  const { promise, resolve } = Promise.withResolvers<string>();
  const { search, sent, underWay } = await start({ answers: { one: [promise, found('Other')] } });
  const waiting = [search.autocomplete(q('a')), search.autocomplete(q('a'))];
  await until(() => sent.length > 0 && underWay.size > 0);
  const [other] = await search.autocomplete(q('b'));
  t.deepEqual(other!.data, ['Other']);
  resolve(found('Lib'));
  for (const [each] of await Promise.all(waiting)) t.deepEqual([each!.served, each!.data], ['miss', ['Lib']]);
  t.is(sent.length, 2);
  t.is(underWay.size, 0);
});

for (const [what, limits] of [
  ['a search', { wait: 20 }],
  ['its upstream', { timeout: 100 }],
] as const) {
  test(`an upstream that is slower than ${what} waits is left out, and its later answer is kept`, async (t) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const { search, sent, underWay, logged } = await start({ answers: { one: [promise] }, ...limits });
    t.deepEqual(await search.autocomplete(q('a')), []);
    t.deepEqual(logged, []);
    resolve(found('Lib'));
    await until(() => underWay.size === 0);
    t.deepEqual((await search.autocomplete(q('a')))[0]!.served, 'hit');
    t.is(sent.length, 1);
  });
}

test('a hit has the versions that lists show, and is under the newest of them if its own is hidden', async (t) => {
  const hidden = { part: ['2.0.0'], own: ['3.0.0'], all: ['1.0.0', '2.0.0', '3.0.0'], open: [] };
  const three = ['1.0.0', '2.0.0', '3.0.0'];
  const hits = ['Free', 'Part', 'Own', 'All', 'Open'].map((id) => hit(id, ...three));
  const { search } = await start({
    answers: { one: [found(...hits, { ...hit('Own', '2.0-B'), versions: [] })] },
    hidden,
  });
  const [{ totalHits, data }] = (await search.query(q('a'))) as [Awaited<ReturnType<typeof search.query>>[number]];
  t.is(totalHits, 76);
  t.deepEqual(
    data.map(({ metadata, version, fullVersion, versions }) => [
      metadata.id,
      version,
      fullVersion,
      versions.map((each) => each.version),
    ]),
    [
      ['Free', '3.0.0', '3.0.0', three],
      ['Part', '3.0.0', '3.0.0', ['1.0.0', '3.0.0']],
      ['Own', '2.0.0', '2.0.0', ['1.0.0', '2.0.0']],
      ['Open', '3.0.0', '3.0.0', three],
      ['Own', '2.0.0-B', '2.0.0-B', []],
    ],
  );
});

test('an id is completed if lists show a version of it, in the order of the upstream', async (t) => {
  const broken = new DomainError('Invalid', 'It broke.');
  const versions = {
    some: ['1.0.0', '2.0.0'],
    all: ['1.0.0'],
    none: [],
    down: new UpstreamError('UpstreamUnavailable', 'It is down.'),
    broken,
  };
  const hidden = { some: ['1.0.0'], all: ['1.0.0'], none: [], gone: [], down: [], broken: [] };
  const many = Array.from({ length: 120 }, (_, at) => `Free${at}`);
  const ids = ['All', 'None', ...many, 'Some', 'Gone', 'Down', 'Free'];
  const { search, asked, upstreams } = await start({
    answers: { one: [found(...ids), found('Broken')] },
    versions,
    hidden,
  });
  const [{ data }] = (await search.autocomplete(q('a'))) as [Awaited<ReturnType<typeof search.autocomplete>>[number]];
  t.deepEqual(data, [...many, 'Some', 'Free']);
  const owner = { upstream: upstreams[0]! };
  t.deepEqual(
    asked.slice(1),
    ['all', 'none', 'some', 'gone', 'down'].map((key) => [owner, key]),
  );
  await t.throwsAsync(search.autocomplete(q('b')), { is: broken });
});

const id = (text: string) => new URLSearchParams({ id: text });

test('the versions of an id as the upstream completes them, in order, without those that lists do not show', async (t) => {
  const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
  const list = JSON.stringify({ data: ['2.0.0-Beta', '1.0', 'x', '10.0.0', '2.0.0'] });
  const { search, upstreams, sent, logged } = await start({
    answers: { one: [list, JSON.stringify({ data: [] }), down, JSON.stringify({})] },
    hidden: { lib: ['2.0.0'] },
  });
  const [one] = upstreams as [Upstream];
  const shown = { served: 'miss', value: ['1.0', '2.0.0-Beta', '10.0.0'] } as const;
  t.deepEqual(await search.versions(one, id('Lib')), shown);
  t.deepEqual(await search.versions(one, id('Lib')), { ...shown, served: 'hit' });
  t.deepEqual(
    sent.map((each) => (each as { url: string }).url),
    ['http://one.test/complete?key=1&id=Lib'],
  );
  t.deepEqual(await search.versions(one, id('Empty')), { served: 'miss', value: [] });
  t.is(await search.versions(one, id('Down')), undefined);
  t.is(await search.versions(one, id('Form')), undefined);
  t.is(logged.length, 2);
});

const typesOf = (service: string) => ['/3.5.0', '/3.0.0-rc', '/3.0.0-beta', ''].map((version) => service + version);

test('of the services that an upstream announces, the newest is asked', async (t) => {
  const { search, asked } = await start({ answers: { one: [found(), found()] } });
  await search.query(q('a'));
  await search.autocomplete(q('a'));
  t.deepEqual(asked, [
    ['one', typesOf('SearchQueryService')],
    ['one', typesOf('SearchAutocompleteService')],
  ]);
});
