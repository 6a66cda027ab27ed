import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import type { Database, Dialect, Value } from '../../../src/database/database.ts';
import { parseQuery } from '../../../src/nuget/search/search-query.ts';
import { Search, type SearchedAccounts } from '../../../src/nuget/search/search.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { hostRows } from '../../support/hosted-rows.ts';

interface Setup {
  dialect?: Dialect;
  /** Packages that each list of the page has. */
  hits?: number | number[];
  /** The number of packages whose id begins with the text. */
  start?: number;
  /** Hits that a statement counts. */
  counted?: number;
}

/** What a search reads of a database with so many hits: for each statement of a page or a count, the bound of its rows. */
async function readsOf(
  q: string,
  { dialect = 'sqlite', hits = 0, start = 0, counted = 0 }: Setup,
  page: { skip: number; take: number },
  parse: Parameters<typeof parseQuery>[1] = {},
) {
  const reads: string[] = [];
  const left = [hits].flat();
  const database = {
    dialect,
    get: async (sql: string) => {
      const isSize = sql.includes(' AS size0');
      if (!isSize) reads.push(`count ${[...sql.matchAll(/LIMIT (\d+)\) AS/g)].map(([, limit]) => limit).join(' ')}`);
      return Object.fromEntries(
        Array.from({ length: 9 }, (_, at) => [
          [`size${at}`, at === 0 ? start : 0],
          [`c${at}`, counted],
        ]).flat() as [string, number][],
      );
    },
    select: async (sql: string, values: readonly Value[]) => {
      if (sql.includes('package_id')) return values.map((id) => ({ id, package_id: `P${String(id)}` }));
      reads.push(
        `page ${[...sql.matchAll(/LIMIT (\d+)\) AS/g)].map(([, limit]) => limit).join(' ')} ${String(values.at(-1))}`,
      );
      const count = left.length > 1 ? left.shift()! : left[0]!;
      return Array.from({ length: count }, (_, at) => ({ listIndex: 0, id: at + 1, standing: at }));
    },
  } as unknown as Database;
  const { totalHits, data } = await new Search(database).findIds(
    [{ accountId: 1, only: undefined }],
    parseQuery(q, parse),
    { prerelease: false, semVer2: true, ...page },
  );
  return [totalHits, data.join(' '), ...reads];
}

const frameworks = new Map([['net', 8000]]);

test('MySQL reads the first rows of a long list, and all if those have too few hits', async (t) => {
  const page = { skip: 0, take: 3 };
  const read = (setup: Setup) => readsOf('', { start: 1000, counted: 4, ...setup }, page, { frameworks });
  t.deepEqual(await read({ hits: 4 }), [4, 'P1 P2 P3', 'page 10000 4', 'count 253']);
  t.deepEqual(await read({ dialect: 'mysql', hits: 4 }), [4, 'P1 P2 P3', 'page 1003 4', 'count 253']);
  t.deepEqual(await read({ dialect: 'mysql', hits: [3, 4] }), [
    4,
    'P1 P2 P3',
    'page 1003 4',
    'page 10000 4',
    'count 253',
  ]);
  t.deepEqual(await read({ dialect: 'mysql', hits: [2, 2] }), [2, 'P1 P2', 'page 1003 4', 'page 10000 4']);
  t.deepEqual(await read({ dialect: 'mysql', hits: 2, start: 999 }), [2, 'P1 P2', 'page  4']);
});

test('the hits behind a page are counted, or at least as many as the size of the list says', async (t) => {
  const page = { skip: 2, take: 2 };
  t.deepEqual(await readsOf('', { hits: 4 }, page), [4, 'P3 P4', 'page  5']);
  t.deepEqual(await readsOf('', { hits: 5, counted: 9 }, page), [9, 'P3 P4', 'page  5', 'count 1004']);
  t.deepEqual(await readsOf('', { hits: 5, counted: 5 }, page), [5, 'P3 P4', 'page  5', 'count 1004']);
  t.deepEqual(
    await readsOf('', { hits: 5, counted: 3 }, page),
    [5, 'P3 P4', 'page  5', 'count 1004'],
    'some left since',
  );
  t.deepEqual(await readsOf('', { hits: 5, start: 1000 }, page), [1005, 'P3 P4', 'page  5']);
  t.deepEqual(await readsOf('', { hits: 6, counted: 9 }, page), [9, 'P3 P4', 'page  5', 'count 1004']);
  t.deepEqual(await readsOf('title:...', { hits: 5 }, page), [0, '']);
});

test('hits have the versions that the client sees, and accounts follow each other with each id once', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await hostRows(database, 1, 'Own', ['0.9.0', '1.0.0-Rc', { version: '1.0.0-a.1', listed: false }, '1.0.0+build'], {
    standing: 5,
    download_count: 8,
  });
  await hostRows(database, 1, 'Both', ['1.0.0'], { standing: 6, download_count: 7 });
  await hostRows(database, 2, 'BOTH', ['2.0.0'], { standing: 1 });
  await hostRows(database, 2, 'Shared', ['2.0.0'], { standing: 2 });
  await hostRows(database, 2, 'Secret', ['2.0.0'], { standing: 3 });
  const search = new Search(database);
  const all: SearchedAccounts = [
    { accountId: 1, only: undefined },
    { accountId: 3, only: new NameSet([]) },
    { accountId: 2, only: new NameSet(['both', 'shared']) },
  ];
  const options = { prerelease: true, semVer2: true, skip: 0, take: 10 };
  const { totalHits, data } = await search.find(all, parseQuery(''), options);
  t.is(totalHits, 4);
  t.deepEqual(
    data.map(({ metadata }) => metadata.id),
    ['Own', 'Both', 'Shared'],
  );
  const { metadata, ...own } = data[0]!;
  t.like(metadata, { id: 'Own', dependencyGroups: undefined, deprecation: undefined });
  t.deepEqual(own, {
    version: '1.0.0',
    fullVersion: '1.0.0+build',
    hasIcon: false,
    totalDownloads: 8,
    versions: [
      { version: '0.9.0', fullVersion: '0.9.0', downloads: 0 },
      { version: '1.0.0-Rc', fullVersion: '1.0.0-Rc', downloads: 0 },
      { version: '1.0.0', fullVersion: '1.0.0+build', downloads: 0 },
    ],
  });
  const versionsOf = async (more: object) =>
    (await search.find(all, parseQuery(''), { ...options, ...more })).data[0]!.versions.map(({ version }) => version);
  t.deepEqual(await versionsOf({ prerelease: false }), ['0.9.0', '1.0.0']);
  t.deepEqual(await versionsOf({ semVer2: false }), ['0.9.0', '1.0.0-Rc']);
  for (const [skip, take, expected] of [
    [0, 1, 'Own'],
    [1, 2, 'Both'],
    [1, 3, 'Both Shared'],
    [2, 2, 'BOTH Shared'],
    [3, 2, 'Shared'],
    [4, 2, ''],
  ] as const) {
    const page = { ...options, skip, take };
    const found = await search.findIds(all, parseQuery(''), page);
    t.deepEqual([found.totalHits, found.data.join(' ')], [4, expected], `${skip} ${take}`);
    const hits = await search.find(all, parseQuery(''), page);
    t.deepEqual(hits.data.map(({ metadata: { id } }) => id).join(' '), expected);
  }
});
