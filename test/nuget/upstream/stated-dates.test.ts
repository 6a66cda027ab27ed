import test from 'ava';
import { notAsked } from '../../../src/mirror/stored-only.ts';
import { parseVersion } from '../../../src/nuget/format/version.ts';
import { datesOf, statedOf } from '../../../src/nuget/upstream/package-dates.ts';
import type { Owner, PackageMirror } from '../../../src/nuget/upstream/package-mirror.ts';
import type { ListedPage, ListedVersion } from '../../../src/nuget/upstream/registration-pages.ts';
import type { UpstreamRegistrations } from '../../../src/nuget/upstream/upstream-registration.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';

// The dates of versions, of registrations in memory.

const upstream = { id: 'one' } as Upstream;
const owner: Owner = { upstream };

interface Setup {
  /** The list of versions; undefined if the upstream has no such package. */
  versions?: readonly string[] | Error | undefined;
  /** Dates of stored versions that the upstream does not offer. */
  withdrawn?: Record<string, number | undefined>;
  isOffered?: boolean;
  /** The pages of the registration; each version of them has its place in `versions` as its date. */
  pages?: readonly ListedPage[];
  /** The versions of pages that are documents of their own, by their lower bounds. */
  further?: Record<string, readonly string[]>;
  hash?: string;
}

const listed = (version: string, publishedAt: number | undefined): ListedVersion => ({
  version,
  publishedAt,
  bytes: 1,
  json: '{}',
});

function page(
  lower: string,
  upper: string,
  more: Pick<Partial<ListedPage>, 'count' | 'changedAt' | 'versions'> = {},
): ListedPage {
  return { lower, upper, first: parseVersion(lower)!, last: parseVersion(upper)!, count: 2, ...more };
}

function start({ versions, withdrawn = {}, isOffered = true, pages, further = {}, hash }: Setup) {
  const asked: unknown[][] = [];
  const packages = {
    allVersions: async (...given: unknown[]) => {
      asked.push(['versions', ...given]);
      if (versions instanceof Error) throw versions;
      return versions && { value: versions, outcome: 'hit' };
    },
    withdrawn: {
      dates: async (...given: unknown[]) => {
        asked.push(['withdrawn', ...given]);
        return new Map(Object.entries(withdrawn));
      },
    },
  } as unknown as PackageMirror;
  const registrations = {
    areOffered: async () => isOffered,
    index: async (...given: unknown[]) => {
      asked.push(['index', ...given]);
      return pages && { value: pages, outcome: 'hit' };
    },
    allVersions: async (_owner: Owner, _key: string, _semVer2: boolean, { lower, versions: inside }: ListedPage) => {
      asked.push(['page', _owner, _key, _semVer2, lower]);
      return inside ?? further[lower]!.map((each, at) => listed(each, 100 + at));
    },
    storedHash: async (...given: unknown[]) => {
      asked.push(['hash', ...given]);
      return hash;
    },
  } as unknown as UpstreamRegistrations;
  return { packages, registrations, asked };
}

async function dates(setup: Setup, settledBefore?: number) {
  const { packages, registrations, asked } = start(setup);
  const found = await datesOf(packages, registrations, owner, 'lib', settledBefore);
  return { dates: found && [...found], asked };
}

const numbered = (count: number) => Array.from({ length: count }, (_, at) => `1.${at}.0`);

test('without a registration no version has a date, and without a package only withdrawn ones have', async (t) => {
  t.deepEqual(await dates({ versions: ['1.0.0'], isOffered: false }), {
    dates: [['1.0.0', undefined]],
    asked: [
      ['versions', owner, 'lib'],
      ['withdrawn', upstream, 'lib'],
    ],
  });
  const { dates: undated, asked } = await dates({ versions: ['1.0.0'], withdrawn: { '0.9.0': 5, '1.0.0': 6 } });
  t.deepEqual(undated, [
    ['0.9.0', 5],
    ['1.0.0', undefined],
  ]);
  t.deepEqual(asked.at(-1), ['index', owner, 'lib', true]);
  t.is((await dates({})).dates, undefined);
  t.deepEqual((await dates({ withdrawn: { '0.9.0': 5 } })).dates, [['0.9.0', 5]]);
});

test('the versions of pages have their dates, by their keys, and others have none', async (t) => {
  const inside = [listed('1.0.0-Beta', 7), listed('1.1.0', undefined), listed('1.1.5', 9)];
  const { dates: found, asked } = await dates({
    versions: ['1.0.0-beta', '1.1.0', '1.2.0', '2.0.0', '2.1.0'],
    pages: [page('1.0.0-Beta', '1.1.5', { versions: inside }), page('2.0.0', '2.1.0')],
    further: { '2.0.0': ['2.0.0', '2.1.0'] },
  });
  t.deepEqual(found, [
    ['1.0.0-beta', 7],
    ['1.1.0', undefined],
    ['1.2.0', undefined],
    ['2.0.0', 100],
    ['2.1.0', 101],
  ]);
  t.deepEqual(asked.slice(3), [
    ['page', owner, 'lib', true, '1.0.0-Beta'],
    ['page', owner, 'lib', true, '2.0.0'],
  ]);
});

test('a page that is settled has the time of its change, if the list has as many versions of it', async (t) => {
  const changedAt = 50;
  const versions = numbered(6);
  const pagesWith = (...counts: readonly [number, number, number]) => [
    page('1.0.0', '1.1.0', { count: counts[0], changedAt }),
    page('1.2.0', '1.3.0', { count: counts[1], changedAt }),
    page('1.4.0', '1.5.0', { count: counts[2], changedAt }),
  ];
  const further = { '1.0.0': versions.slice(0, 2), '1.2.0': versions.slice(2, 4), '1.4.0': versions.slice(4) };
  const datesWith = async (pages: readonly ListedPage[], settledBefore: number, list = versions) => {
    const { dates: found, asked } = await dates({ versions: list, pages, further }, settledBefore);
    return [found!.map(([, date]) => date), asked.filter(([what]) => what === 'page').map((each) => each[4])];
  };
  t.deepEqual(await datesWith(pagesWith(2, 2, 2), 50), [[50, 50, 50, 50, 50, 50], []]);
  t.deepEqual(await datesWith(pagesWith(2, 2, 2), 49), [
    [100, 101, 100, 101, 100, 101],
    ['1.0.0', '1.2.0', '1.4.0'],
  ]);
  // Counts that are wrong: those pages are fetched, and others are not.
  t.deepEqual(await datesWith(pagesWith(3, 2, 2), 50), [[100, 101, 50, 50, 50, 50], ['1.0.0']]);
  t.deepEqual(await datesWith(pagesWith(2, 1, 2), 50), [[50, 50, 100, 101, 50, 50], ['1.2.0']]);
  t.deepEqual(await datesWith(pagesWith(2, 2, 9), 50), [[50, 50, 50, 50, 100, 101], ['1.4.0']]);
  // A version between pages, before and behind them is of none.
  const more = ['0.1.0', '1.0.0', '1.1.0', '1.1.5', '1.2.0', '1.3.0', '1.4.0', '1.5.0', '1.6.0'];
  t.deepEqual(await datesWith(pagesWith(2, 2, 2), 50, more), [
    [undefined, 50, 50, undefined, 50, 50, 50, 50, undefined],
    [],
  ]);
  const fewer = ['1.0.0', '1.2.0', '1.3.0', '1.5.0'];
  t.deepEqual(await datesWith(pagesWith(2, 2, 2), 50, fewer), [
    [100, 50, 50, 101],
    ['1.0.0', '1.4.0'],
  ]);
  const inside = pagesWith(2, 2, 2).map((each) => ({ ...each, versions: [listed(each.lower, 3)] }));
  t.deepEqual(await datesWith(inside, 50), [
    [3, undefined, 3, undefined, 3, undefined],
    ['1.0.0', '1.2.0', '1.4.0'],
  ]);
  const unknown = pagesWith(2, 2, 2).map(({ changedAt: _changed, ...each }) => each);
  t.is((await datesWith(unknown, Infinity))[1]!.length, 3);
});

test('what stored documents say of a version, without a request', async (t) => {
  const versions = ['1.0.0', '2.0.0'];
  const stated = async (setup: Setup, version = '1.0.0') => {
    const { packages, registrations, asked } = start(setup);
    const found = await statedOf(packages, registrations, owner, 'lib', version);
    for (const each of asked.filter(([what]) => what === 'versions' || what === 'index' || what === 'hash'))
      t.deepEqual(each[1], { upstream, silence: notAsked });
    return { found, asked };
  };
  const dated = {
    versions,
    hash: 'abc=',
    pages: [page('1.0.0', '2.0.0', { versions: [listed('1.0.0', 7)], changedAt: 9 })],
  };
  const first = await stated(dated);
  t.deepEqual(first.found, { sha512: 'abc=', publishedAt: 7 });
  t.deepEqual(first.asked[0], ['hash', { upstream, silence: notAsked }, 'lib', '1.0.0']);
  t.deepEqual((await stated(dated, '2.0.0')).found, { sha512: 'abc=', publishedBy: undefined });
  const settled = { versions, pages: [page('1.0.0', '2.0.0', { changedAt: 9 })], further: { '1.0.0': ['1.0.0'] } };
  t.deepEqual((await stated(settled)).found, { sha512: undefined, publishedAt: 100 });
  t.deepEqual((await stated(settled, '2.0.0')).found, { sha512: undefined, publishedBy: 9 });
  t.deepEqual((await stated({ versions: notAsked })).found, { sha512: undefined, publishedBy: undefined });
  const broken = new Error('it broke');
  await t.throwsAsync(stated({ versions: broken }), { is: broken });
});
