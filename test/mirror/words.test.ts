import test from 'ava';
import { MirrorCounts } from '../../src/mirror/store/counts.ts';
import { addWords, nameQuery, placeOf, storedNames, suffixesOf, takeFrom } from '../../src/mirror/store/words.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { digestOf } from '../../src/runtime/digest.ts';

// The words of names, and how many of them a search reads.

test('a name is found under each of its words, up to a number and a length', (t) => {
  t.deepEqual(suffixesOf('A/b_C-d'), ['a.b.c.d', 'b.c.d', 'c.d', 'd']);
  t.deepEqual(suffixesOf('a..b.'), ['a..b.', '.b.', 'b.']);
  t.deepEqual(suffixesOf(''), []);
  const deep = Array.from({ length: 20 }, (_, at) => `w${at}`);
  const suffixes = suffixesOf(deep.join('/'));
  t.is(suffixes.length, 16);
  t.is(suffixes.at(-1), 'w15.w16.w17.w18.w19');
  t.is(suffixesOf(`${'x'.repeat(150)}.end`)[0], 'x'.repeat(100));
});

test('of a search text, the first eight words count, and the longest one begins the search', (t) => {
  const words = ['bb', 'a', 'cc', 'd', 'eee', 'f', 'g', 'h', 'iiii', 'j'];
  t.deepEqual(nameQuery(words.join(' ')), { start: 'eee', others: ['bb', 'cc', 'a', 'd', 'f', 'g', 'h'] });
  t.deepEqual(nameQuery(' \n x  y '), { start: 'x', others: ['y'] });
  t.is(nameQuery(''), undefined);
});

test('a place in a list is a text, and another text is none', (t) => {
  t.is(placeOf(''), undefined);
  t.deepEqual(placeOf('["a.b","u","n"]'), ['a.b', 'u', 'n']);
  t.deepEqual(placeOf('["a",7]'), ['a', '7']);
  for (const text of ['[]', '{}', '"a"']) t.is(placeOf(text), undefined, text);
});

async function* numbers(count: number, read: (number: number) => void) {
  for (let each = 0; each < count; each += 1) {
    read(each);
    yield each;
  }
}

async function take(count: number, limit: number, isWanted: (number: number) => boolean) {
  let last = -1;
  const parts: number[] = [];
  const pick = (some: readonly number[]) => {
    parts.push(some.length);
    return Promise.resolve(some.filter(isWanted));
  };
  const found = await takeFrom(
    numbers(count, (each) => (last = each)),
    limit,
    pick,
  );
  return { found, parts, last };
}

test('results are picked in parts until there are enough', async (t) => {
  t.deepEqual(await take(10, 3, () => true), { found: [0, 1, 2], parts: [3], last: 2 });
  t.deepEqual(await take(10, 3, (each) => each % 2 === 1), { found: [1, 3, 5], parts: [3, 3], last: 5 });
  t.deepEqual(await take(5, 3, (each) => each > 2), { found: [3, 4], parts: [3, 2], last: 4 });
  t.deepEqual(await take(0, 3, () => true), { found: [], parts: [], last: -1 });
});

for (const dialect of dialects) {
  test(`${dialect}: a search goes on where the last one ended, and reads a bounded number of rows`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const upstreams = ['first', 'second'];
    const names = Array.from({ length: 2600 }, (_, at) => `lib.n${String(at).padStart(4, '0')}`);
    const entries = upstreams.flatMap((upstream) => names.map((name) => ({ upstream, name })));
    for (let start = 0; start < entries.length; start += 650)
      await database.transaction(async (tx) => {
        const some = entries.slice(start, start + 650);
        await tx.insertNew(
          'mirror_entries',
          some.map(({ upstream, name }) => ({
            ...mirrorEntry(digestOf(`${upstream} ${name}`)),
            id: `${upstream} ${name}`,
            upstream,
            kind: 'nupkg',
            name,
          })),
        );
        await tx.insertNew(
          'mirror_words',
          some.map((each) => ({ kind: 'nupkg', suffix: each.name, ...each })),
        );
      });
    const search = async (position: string, limit = Infinity) => {
      const found: string[] = [];
      let last: string | undefined;
      const query = nameQuery('LIB')!;
      for await (const row of storedNames(database, 'nupkg', query, { place: placeOf(position) })) {
        found.push(`${row.upstream} ${row.name}`);
        last = JSON.stringify([row.suffix, row.upstream, row.name]);
        if (found.length === limit) break;
      }
      return { found, last };
    };
    const all = names.flatMap((name) => upstreams.map((upstream) => `${upstream} ${name}`));
    t.deepEqual((await search('')).found, all.slice(0, 5000), 'up to 5000 rows');
    const { last } = await search('', 701);
    t.deepEqual((await search(last!)).found, all.slice(701));
    await database.transaction(async (tx) => {
      await addWords(tx, { upstream: 'first', kind: 'nupkg', name: names[0]!, reference: '1' });
      await addWords(tx, { upstream: 'first', kind: 'nupkg', name: '', reference: '1' });
    });
    const words = "SELECT suffix FROM mirror_words WHERE upstream = 'first' AND name IN (?, '')";
    t.is((await database.select(words, [names[0]!])).length, 1, 'its words are written already');
  });
}

test('requests to the mirror are summed by the kind of their upstreams', (t) => {
  const counts = new MirrorCounts();
  const [one, two] = [counts.of('nuget', 'one'), counts.of('nuget', 'two')];
  t.is(counts.of('nuget', 'one'), one);
  t.not(counts.of('registry', 'one'), one);
  one.requests.hit += 2;
  two.requests.hit += 3;
  two.requests.failed += 1;
  [one.saved, two.saved] = [5, 6];
  t.like(counts.requests('nuget'), { hit: 5, failed: 1, miss: 0 });
  t.is(counts.saved('nuget'), 11);
  t.deepEqual([counts.requests('other').hit, counts.saved('other')], [0, 0]);
});
