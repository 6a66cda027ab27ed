import test, { type ExecutionContext } from 'ava';
import type { Database, Dialect, Row } from '../../../src/database/database.ts';
import { migrate } from '../../../src/database/migrate.ts';
import { parseQuery } from '../../../src/nuget/search/search-query.ts';
import { Search } from '../../../src/nuget/search/search.ts';
import { describeTerms, idTermsOf } from '../../../src/nuget/hosted/term-index.ts';
import { standingOf, termsOf, tier, tierWidth, typeFlags } from '../../../src/nuget/format/terms.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

// The way a list is read depends on the number of hits: here are enough packages for every way.

interface Made {
  row: number;
  id: string;
  key: string;
  standing: number;
  downloads: number;
  type: string;
  words: Map<string, number>;
}

const count = 2300;
const options = { prerelease: false, semVer2: true };

/** Every third id starts with `Common`, each has `shared` in its tags, every other one is a tool, a few are templates. */
function make(index: number): Made & { metadata: string; terms: ReturnType<typeof termsOf> } {
  const start = index % 3 === 0 ? 'Common' : `Vendor${index % 40}`;
  const id = `${start}.P${(index * 7919) % count}`;
  const type = index % 2 === 0 ? 'DotnetTool' : index % 101 === 0 ? 'Template' : 'Dependency';
  const metadata = {
    id,
    tags: ['shared', `mod${index % 5}`, ...(index % 300 === 0 ? ['seldom'] : [])],
    packageTypes: [{ name: type }],
  };
  const downloads = (index * 31) % 97;
  const standing = standingOf(downloads);
  const terms = termsOf(metadata);
  const words = new Map(terms.map(({ term, tier }) => [term, tier]));
  return {
    row: index + 1,
    id,
    key: id.toLowerCase(),
    standing,
    downloads,
    type,
    words,
    metadata: JSON.stringify(metadata),
    terms,
  };
}

const made = Array.from({ length: count }, (_, index) => make(index));

async function fill(t: ExecutionContext, dialect: Dialect): Promise<Database> {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  const packages = made.map(({ row, id, key, standing, downloads, type, terms }): Row => ({
    id: row,
    account_id: 1,
    package_key: key,
    package_id: id,
    version_count: 1,
    download_count: downloads,
    standing,
    flags: 15 | typeFlags([{ name: type }]),
    latest_stable2: row,
    terms: describeTerms(terms),
    id_terms: idTermsOf(terms),
    created_at: 1,
    updated_at: 1,
  }));
  const version = {
    version_key: '1.0.0',
    version: '1.0.0',
    full_version: '1.0.0',
    sort_key: '1',
    prerelease: 0,
    semver2: 0,
  };
  const file = { published_at: 1, size_bytes: 1, sha512: '', nupkg_digest: '', nuspec_digest: '' };
  const versions = made.map(({ row, metadata }): Row => ({
    id: row,
    package_row: row,
    listed: 1,
    ...version,
    ...file,
    metadata,
  }));
  const terms = made.flatMap(({ row, standing, type, terms }) =>
    terms.map(({ term, tier, fields }): Row => ({
      account_id: 1,
      term,
      package_row: row,
      standing: tier * tierWidth + standing,
      fields,
      flags: 15 | typeFlags([{ name: type }]),
    })),
  );
  await database.transaction(async (tx) => {
    for (const [table, rows] of [
      ['packages', packages],
      ['package_versions', versions],
      ['package_terms', terms],
    ] as const) {
      for (let start = 0; start < rows.length; start += 100) await tx.insertNew(table, rows.slice(start, start + 100));
    }
  });
  return database;
}

/** The expected hits, in order. */
function expected(start: string | undefined, words: readonly string[], type?: string): Made[] {
  return expectedGroups(start, words, type).flat();
}

/** The expected hits of each group, in order. Those that mention the words are a group for each tier. */
function expectedGroups(start: string | undefined, words: readonly string[], type?: string): Made[][] {
  const all = made.filter((each) => type === undefined || each.type.toLowerCase() === type.toLowerCase());
  const byKey = (a: Made, b: Made) => a.standing - b.standing || (a.key < b.key ? -1 : 1);
  if (start === undefined) return [all.toSorted(byKey)];
  const starting = all.filter(({ key }) => key.startsWith(start));
  const inId = ({ words: has }: Made, word: string) => [...has.keys()].some((term) => term.startsWith(`.${word}`));
  const others = all.filter((each) => !each.key.startsWith(start));
  const named = others.filter((each) => words.every((word) => inId(each, word)));
  const mentioning = others.filter(
    (each) => !named.includes(each) && words.every((word) => each.words.has(word) || inId(each, word)),
  );
  const byRow = (a: Made, b: Made) => a.standing - b.standing || a.row - b.row;
  const tierOf = (each: Made) => (inId(each, words[0]!) ? tier.id : each.words.get(words[0]!)!);
  return [
    starting.filter(({ key }) => key === start),
    starting.filter(({ key }) => key !== start).toSorted(byKey),
    named.toSorted(byRow),
    ...Map.groupBy(
      mentioning.toSorted((a, b) => tierOf(a) - tierOf(b) || byRow(a, b)),
      tierOf,
    ).values(),
  ];
}

const all = [{ accountId: 1, only: undefined }] as const;

for (const dialect of dialects) {
  test(`the pages together are the complete result, for any number of hits (${dialect})`, async (t) => {
    const database = await fill(t, dialect);
    const search = new Search(database);
    const cases: [q: string, start: string | undefined, words: string[], type?: string][] = [
      ['', undefined, []],
      ['shared', 'shared', ['shared']],
      ['common', 'common', ['common']],
      ['comm', 'comm', ['comm']],
      ['common.p1', 'common.p1', ['common', 'p1']],
      ['vendor7', 'vendor7', ['vendor7']],
      ['mod3', 'mod3', ['mod3']],
      // Parts of ids with the number of their packages: `P10` to `P19` and others.
      ['p10', 'p10', ['p10']],
      ['p2', 'p2', ['p2']],
      // A part of every id, beside longer ones.
      ['p', 'p', ['p']],
      ['shared p2', 'shared.p2', ['p2', 'shared']],
      ['p10 vendor', 'p10.vendor', ['p10', 'vendor']],
      ['p1 seldom', 'p1.seldom', ['seldom', 'p1']],
      ['seldom', 'seldom', ['seldom']],
      ['shared seldom', 'shared.seldom', ['seldom', 'shared']],
      ['mod1 shared', 'mod1.shared', ['mod1', 'shared']],
      ['', undefined, [], 'DotnetTool'],
      ['common', 'common', ['common'], 'DotnetTool'],
      ['shared', 'shared', ['shared'], 'dependency'],
      ['shared', 'shared', ['shared'], 'Template'],
      ['vendor3', 'vendor3', ['vendor3'], 'Template'],
      ['mod2 seldom', 'mod2.seldom', ['seldom', 'mod2'], 'DotnetTool'],
    ];
    for (const [q, start, words, type] of cases) {
      const wanted = expected(start, words, type);
      const query = parseQuery(q, { packageType: type });
      const label = `${q} ${type ?? ''}`;
      const found: string[] = [];
      for (let skip = 0; skip < Math.min(wanted.length, 130); skip += 50) {
        const { totalHits, data } = await search.findIds(all, query, { ...options, skip, take: 50 });
        found.push(...data);
        t.true(totalHits >= Math.min(wanted.length, skip + 51), `${label}: ${totalHits} of ${wanted.length}`);
        if (wanted.length <= 250) t.is(totalHits, wanted.length, label);
      }
      t.deepEqual(
        found,
        wanted.slice(0, found.length).map(({ id }) => id),
        label,
      );
      const deep = await search.findIds(all, query, { ...options, skip: 0, take: 3000 });
      t.deepEqual(
        deep.data,
        wanted.map(({ id }) => id),
        label,
      );
      t.is(deep.totalHits, wanted.length, label);
    }
  });
}

test('hits of equal standing are ordered by downloads, and no other ones', async (t) => {
  const search = new Search(await fill(t, 'sqlite'));
  const cases: [q: string, start: string | undefined, words: string[], several: boolean][] = [
    ['', undefined, [], false],
    ['mod3', 'mod3', ['mod3'], false],
    ['common.p1', 'common.p1', ['common', 'p1'], false],
    ['vendor3 p1', 'vendor3.p1', ['p1', 'vendor3'], true],
  ];
  for (const [q, start, words, several] of cases) {
    const groups = expectedGroups(start, words).filter(({ length }) => length > 0);
    t.is(groups.length > 1, several, q);
    for (const skip of [0, 7]) {
      const page = new Set(groups.flat().slice(skip, skip + 90));
      const wanted = groups.flatMap((group) =>
        group.filter((each) => page.has(each)).toSorted((a, b) => a.standing - b.standing || b.downloads - a.downloads),
      );
      t.notDeepEqual(wanted, [...page], q);
      const hits = (await search.find(all, parseQuery(q), { ...options, skip, take: 90 })).data;
      t.deepEqual(
        hits.map(({ metadata, totalDownloads }) => `${metadata.id} ${totalDownloads}`),
        wanted.map(({ id, downloads }) => `${id} ${downloads}`),
        q,
      );
    }
  }
  const { data } = await search.find(all, parseQuery('seldom'), { ...options, skip: 0, take: 20 });
  const downloads = data.map(({ totalDownloads }) => totalDownloads);
  t.deepEqual(
    downloads,
    downloads.toSorted((a, b) => b - a),
  );
  t.is(new Set(downloads).size, 8);
});
