import test from 'ava';
import { SourceFeed, type SourceId } from '../../../src/nuget/import/source-feed.ts';
import { flatIndex } from '../../../src/nuget/upstream/documents.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { fakeRemote, type FakeAnswer } from '../../support/upstreams/fake-remote.ts';

const { signal } = new AbortController();
const base = 'http://old.test/v3/index.json';
const resource = (type: unknown, id: unknown) => ({ '@type': type, '@id': id });
const flat = resource('PackageBaseAddress/3.0.0', 'http://old.test/flat');
const search = resource('SearchQueryService', 'http://old.test/query?a=b');
const completion = resource('SearchAutocompleteService', 'http://old.test/auto');

type Query = Record<string, string>;
type OnQuery = (query: Query, which: string) => FakeAnswer | undefined;

/** A feed with these resources, and what it was asked besides its index. */
function feedOf(resources: unknown, onQuery: OnQuery = () => undefined) {
  const asked: (Query & { path: string })[] = [];
  const fake = fakeRemote(
    (path): FakeAnswer | undefined => {
      if (path === '/v3/index.json')
        return resources === undefined ? undefined : { body: JSON.stringify({ resources }) };
      const url = new URL(path, base);
      const query = Object.fromEntries(url.searchParams);
      asked.push({ ...query, path: url.pathname });
      return onQuery(query, url.pathname);
    },
    { kind: 'nuget', base },
  );
  return { ...fake, feed: new SourceFeed(fake.remote, signal), queries: asked };
}

async function read(items: AsyncIterable<SourceId>): Promise<[id: string, downloads: Record<string, number>][]> {
  const found: [string, Record<string, number>][] = [];
  for await (const { id, downloads } of items) found.push([id, Object.fromEntries(downloads)]);
  return found;
}

const hit = (id: string, ...versions: [version: string, downloads: number][]) => ({
  id,
  version: versions.at(-1)?.[0] ?? '1.0.0',
  versions: versions.map(([version, downloads]) => ({ version, downloads })),
});
const hits = (total: number, ...data: object[]): FakeAnswer => ({ body: JSON.stringify({ totalHits: total, data }) });
const ids = (total: number, ...data: string[]): FakeAnswer => ({ body: JSON.stringify({ totalHits: total, data }) });

test('the resources of a feed are read once: the first type that it has, at an address with http', async (t) => {
  const { feed, requests } = feedOf([
    resource(['A/1.0.0', 'B'], 'http://old.test/one?x=y'),
    resource('C', 'http://me:secret@old.test/two/'),
    resource('Bad', 'ftp://old.test/'),
    null,
  ]);
  const found = [['None', 'B', 'C'], ['C', 'B'], ['None'], ['Bad']].map((types) => feed.resource(types));
  t.deepEqual(
    (await Promise.all(found)).map((each) => each?.href),
    ['http://old.test/one?x=y', 'http://old.test/two/', undefined, undefined],
  );
  t.is((await feed.place(['B'])).href, 'http://old.test/one/');
  await t.throwsAsync(feed.place(['None/1.0.0', 'Other']), {
    name: 'Invalid',
    message: 'The source has no None/1.0.0, so it is not a complete feed.',
  });
  t.deepEqual(requests, [{ url: base, subject: 'the service index', signal, isDocument: true }]);
});

test('a document that is missing, cannot be read or is no service index', async (t) => {
  await t.throwsAsync(feedOf(undefined).feed.resource(['A']), {
    name: 'Invalid',
    message: 'The source has no service index at this address.',
  });
  await t.throwsAsync(feedOf('text').feed.resource(['A']), {
    name: 'Invalid',
    message: 'The source sent a document that cannot be read: it is no service index.',
  });
  let answers: (FakeAnswer | undefined)[] = [];
  const { feed, requests } = feedOf([], () => answers.shift());
  const url = new URL('http://old.test/flat/a/index.json');
  answers = [{ body: '{"versions":["2.0","1.0.0"]}' }];
  t.deepEqual(await feed.document(url, 'a', flatIndex), ['1.0.0', '2.0.0']);
  t.deepEqual(requests, [{ url: url.href, subject: 'a', signal, isDocument: true }]);
  t.is(await feed.document(url, 'a', flatIndex), undefined);
  answers = [{ body: '[]' }];
  await t.throwsAsync(feed.document(url, 'a', flatIndex), { name: 'Invalid' });
  const down = new UpstreamError('UpstreamUnavailable', 'It is down.', { retryAfter: 0 });
  answers = [down, down, { body: '{"versions":[]}' }];
  t.is(await t.throwsAsync(feed.document(url, 'a', flatIndex, 2)), down);
  t.deepEqual([await feed.document(url, 'a', flatIndex, 1), answers], [[], []]);
});

test('the ids of a feed: two searches and two completions, page after page, each id once with its downloads', async (t) => {
  const answers: Record<string, FakeAnswer> = {
    '/query true 0': hits(3, hit('Lib.A', ['1.0', 5], ['2.0.0-Beta', 7]), hit('Lib.B')),
    '/query true 2': hits(3, hit('LIB.a', ['1.0', 9])),
    '/auto true 0': ids(1, 'Lib.C', 'not an id!', 'Lib.A'),
    '/query false 0': hits(0),
    '/auto false 0': ids(4, 'Lib.D'),
  };
  const { feed, queries, requests } = feedOf(
    [flat, search, completion],
    ({ prerelease, skip }, path) => answers[`${path} ${prerelease} ${skip}`],
  );
  const warnings: string[] = [];
  const found = await read(feed.ids((text) => void warnings.push(text)));
  t.deepEqual(found, [
    ['Lib.A', { '1.0.0': 5, '2.0.0-beta': 7 }],
    ['Lib.B', {}],
    ['Lib.C', {}],
    ['Lib.D', {}],
  ]);
  t.deepEqual(warnings, []);
  const query = { take: '200', semVerLevel: '2.0.0', q: '' };
  const of = { ...query, path: '/query', a: 'b' };
  const completed = { ...query, path: '/auto' };
  t.deepEqual(queries, [
    { ...of, prerelease: 'true', skip: '0' },
    { ...of, prerelease: 'true', skip: '2' },
    { ...completed, prerelease: 'true', skip: '0' },
    { ...of, prerelease: 'false', skip: '0' },
    { ...completed, prerelease: 'false', skip: '0' },
    { ...completed, prerelease: 'false', skip: '1' },
  ]);
  t.deepEqual(
    requests.map(({ subject }) => subject),
    ['the service index', 'search', 'search', 'autocompletion', 'search', 'autocompletion', 'autocompletion'],
  );
});

test('a feed without a search and without completion is refused, with one of them it is read', async (t) => {
  await t.throwsAsync(read(feedOf([flat]).feed.ids(() => undefined)), {
    name: 'Invalid',
    message: 'The source has no search. List the packages in a file, and name it with --names.',
  });
  const completed = feedOf([completion], () => ids(1, 'A'));
  t.deepEqual(await read(completed.feed.ids(() => undefined)), [['A', {}]]);
  const searched = feedOf([flat, search], () => hits(1, hit('A')));
  t.deepEqual(await read(searched.feed.ids(() => undefined)), [['A', {}]]);
  await t.throwsAsync(read(feedOf([search], () => hits(1, hit('A'))).feed.ids(() => undefined)), {
    message: 'The source has no PackageBaseAddress/3.0.0, so it is not a complete feed.',
  });
});

test('a list ends after five pages without a new id, and where a later page is refused', async (t) => {
  const repeating = feedOf([completion], () => ids(0, 'A'));
  t.deepEqual(await read(repeating.feed.ids(() => undefined)), [['A', {}]]);
  t.is(repeating.queries.length, 2, 'a page that tells no more ends it');
  const endless = feedOf([completion], ({ q }) => (q === '' ? ids(100, 'A') : ids(0)));
  const warnings: string[] = [];
  t.deepEqual(await read(endless.feed.ids((text) => void warnings.push(text))), [['A', {}]]);
  const whole = endless.queries.filter(({ q, prerelease }) => q === '' && prerelease === 'true');
  t.deepEqual(
    whole.map(({ skip }) => skip),
    ['0', '1', '2', '3', '4', '5'],
  );
  t.deepEqual(warnings, [
    'The source tells of 100 packages and lists 1: some may be missing. List them in a file, and name it with --names.',
  ]);
  const refusing = feedOf([completion], ({ q, skip }) => {
    if (q !== '') return ids(0);
    return skip === '0' ? ids(2, 'A') : new UpstreamError('UpstreamUnavailable', 'Too far.', { denied: true });
  });
  t.deepEqual(await read(refusing.feed.ids(() => undefined)), [['A', {}]]);
  const denied = new UpstreamError('UpstreamUnavailable', 'No.', { denied: true });
  const refused = feedOf([completion], () => denied);
  t.is(await t.throwsAsync(read(refused.feed.ids(() => undefined))), denied);
  const broken = feedOf([completion], ({ skip }) => (skip === '0' ? ids(2, 'A') : { body: 'no JSON' }));
  await t.throwsAsync(read(broken.feed.ids(() => undefined)), { name: 'Invalid' });
});

test('a list that ends early is asked by beginnings, each as far as it still ends early', async (t) => {
  const all = ['ab1', 'AB2', 'ab3', 'b', '-', '.a', '_'];
  // No more than two ids of any list are shown.
  const { feed, queries } = feedOf([completion], ({ q, skip }) => {
    const found = all.filter((each) => each.toLowerCase().startsWith(q!));
    return ids(found.length, ...(Number(skip) > 0 ? [] : found.slice(0, 2)));
  });
  const warnings: string[] = [];
  const found = (await read(feed.ids((text) => void warnings.push(text)))).map(([id]) => id);
  t.deepEqual(found.toSorted(), ['AB2', '_', 'ab1', 'ab3', 'b']);
  const letters = Array.from('abcdefghijklmnopqrstuvwxyz0123456789._-');
  const asked = queries
    .filter(({ skip, q }) => skip === '0' && q !== '')
    .map(({ q, prerelease }) => `${q} ${prerelease}`);
  t.deepEqual(
    asked,
    letters
      .flatMap((one) =>
        one === 'a'
          ? [
              'a',
              ...letters.flatMap((two) =>
                two === 'b' ? ['ab', ...letters.map((three) => `ab${three}`)] : [`a${two}`],
              ),
            ]
          : [one],
      )
      .map((each) => `${each} true`),
  );
  t.regex(warnings.join(), /^The source tells of 7 packages and lists 5: /);
  const same = feedOf([completion], ({ skip }) => (Number(skip) > 0 ? ids(9) : ids(9, '_'.repeat(20))));
  await read(same.feed.ids(() => undefined));
  t.is(
    same.queries.filter(({ skip, q }) => skip === '0' && q !== '').length,
    letters.length * 12,
    'where no shown id has the beginning it does not go on, and never further than 12 letters',
  );
});

test('named ids have the downloads of the hit with the same id; a search that fails is asked no more', async (t) => {
  const { feed, queries } = feedOf([flat, search], () => hits(2, hit('Other', ['1.0', 1]), hit('LIB.A', ['1.0', 5])));
  const warnings: string[] = [];
  const warn = (text: string) => void warnings.push(text);
  t.deepEqual(await read(feed.named(['Lib.A', 'Lib.B', 'no id!'], warn)), [
    ['LIB.A', { '1.0.0': 5 }],
    ['Lib.B', {}],
    ['no id!', {}],
  ]);
  t.deepEqual(
    queries,
    ['Lib.A', 'Lib.B'].map((q) => ({
      path: '/query',
      a: 'b',
      q,
      prerelease: 'true',
      semVerLevel: '2.0.0',
      take: '20',
    })),
  );
  t.deepEqual(warnings, []);
  const none = feedOf([flat]);
  t.deepEqual([await read(none.feed.named(['A'], warn)), none.queries, warnings], [[['A', {}]], [], []]);
  const missing = feedOf([flat, search]);
  t.deepEqual(
    [await read(missing.feed.named(['A', 'B'], warn)), missing.queries.length, warnings],
    [
      [
        ['A', {}],
        ['B', {}],
      ],
      2,
      [],
    ],
  );
  const down = new UpstreamError('UpstreamUnavailable', 'It is down.', { retryAfter: 0 });
  for (const answer of [{ body: 'no JSON' }, down]) {
    warnings.length = 0;
    const failing = feedOf([flat, search], () => answer);
    await read(failing.feed.named(['A', 'B'], warn));
    t.deepEqual(
      [failing.queries.length, warnings],
      [1, ['The search of the source fails, so packages come without the downloads that it has counted.']],
    );
  }
  const other = new DomainError('TooLarge', 'It is too large.');
  t.is(await t.throwsAsync(read(feedOf([flat, search], () => other).feed.named(['A'], warn))), other);
});
