import test from 'ava';
import { parseVersion, normalize } from '../../../src/nuget/format/version.ts';
import {
  pagesIn,
  versionsIn,
  withKept,
  type ListedPage,
  type ListedVersion,
} from '../../../src/nuget/upstream/registration-pages.ts';

const page = (lower: string, upper: string): ListedPage => ({
  lower,
  upper,
  first: parseVersion(lower)!,
  last: parseVersion(upper)!,
  count: 2,
});
const kept = (version: string): ListedVersion => ({ version, bytes: 1, publishedAt: undefined, json: '{}' });

async function placesOf(pages: readonly ListedPage[], ...versions: readonly string[]) {
  const found = await withKept(pages, versions.map(kept));
  return found.map((each) => [
    normalize(each.first),
    normalize(each.last),
    (each.kept ?? []).map(({ version }) => version),
  ]);
}

test('a kept version is on the first page that does not end before it, and else on the last one', async (t) => {
  const pages = [page('1.0.0', '1.9.0'), page('2.0.0', '2.9.0')];
  t.deepEqual(await placesOf(pages, '1.0.0', '1.9.0', '2.5.0'), [
    ['1.0.0', '1.9.0', ['1.0.0', '1.9.0']],
    ['2.0.0', '2.9.0', ['2.5.0']],
  ]);
  t.deepEqual(await placesOf(pages, '0.1.0', '1.9.5', '3.0.0'), [
    ['0.1.0', '1.9.0', ['0.1.0']],
    ['1.9.5', '3.0.0', ['1.9.5', '3.0.0']],
  ]);
  t.deepEqual(
    pages.map(({ first, last, kept: own }) => [normalize(first), normalize(last), own]),
    [
      ['1.0.0', '1.9.0', undefined],
      ['2.0.0', '2.9.0', undefined],
    ],
    'the given pages stay as they are',
  );
});

test('kept versions of a package without pages are on one page', async (t) => {
  t.deepEqual(await placesOf([], '2.0.0', '1.0.0', '3.0.0'), [['1.0.0', '3.0.0', ['2.0.0', '1.0.0', '3.0.0']]]);
  const [made] = await withKept([], [kept('2.0.0')]);
  t.like(made, { lower: '2.0.0', upper: '2.0.0', count: 0, versions: [] });
});

test('the lines of a reader are pages and their versions', async (t) => {
  const own = '{"lower":"1.0.0","upper":"2.0.0","count":2,"versions":2}';
  const other = '{"lower":"3.0.0","upper":"4.0.0","count":5,"address":"https://feed.test/page"}';
  const lines = [own, '12 1.0.0 99 {"a": 1}', '13 2.0.0  {"b": 2}', other];
  const { value, items } = await pagesIn(lines);
  const versions = [
    { bytes: 12, version: '1.0.0', publishedAt: 99, json: '{"a": 1}' },
    { bytes: 13, version: '2.0.0', publishedAt: undefined, json: '{"b": 2}' },
  ];
  t.deepEqual(
    value.map((each) => [normalize(each.first), normalize(each.last), each.count, each.address, each.versions]),
    [
      ['1.0.0', '2.0.0', 2, undefined, versions],
      ['3.0.0', '4.0.0', 5, 'https://feed.test/page', undefined],
    ],
  );
  t.is(items, 12);
  t.deepEqual(await versionsIn(lines.slice(1, 3)), { value: versions, items: 2 });
});
