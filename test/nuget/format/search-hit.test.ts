import test from 'ava';
import { limitHits, maxVersions, versionsEach, type SearchHit } from '../../../src/nuget/format/search-hit.ts';

const versionsOf = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    version: `1.0.${index}`,
    fullVersion: `1.0.${index}+x`,
    downloads: index,
  }));
const hit = (versions: number, metadata: object = {}): SearchHit => ({
  version: '1.0.0',
  fullVersion: '1.0.0+x',
  hasIcon: true,
  metadata: { id: 'Lib', packageTypes: [], ...metadata },
  totalDownloads: 3,
  versions: versionsOf(versions),
});
/** The most characters of each text of one of 1,000 hits. */
const each = Math.floor((4 * 2 ** 20) / 1000 / 6);

test('a few hits are complete', (t) => {
  const deprecation = { reasons: ['Legacy'], message: 'm'.repeat(4000), alternatePackage: undefined };
  const text = 'x'.repeat(4000);
  const texts = { description: text, summary: text, authors: text, owners: text, title: 'T', tags: ['a', 'b'] };
  const hits = [hit(maxVersions - 1, { ...texts, deprecation }), hit(1)];
  t.deepEqual(JSON.parse(JSON.stringify(limitHits(hits))), JSON.parse(JSON.stringify(hits)));
  t.deepEqual(limitHits([]), []);
});

test('of many hits each has the first part of its texts, and all else', (t) => {
  const text = 'x'.repeat(each + 1);
  const tags = ['a'.repeat(each - 1), 'b', 'c'];
  const deprecation = { reasons: ['Legacy'], message: text, alternatePackage: { id: 'New', range: '*' } };
  const long = { description: text, summary: text, authors: text, owners: text, tags, deprecation, title: text };
  const hits = Array.from({ length: 1000 }, () => hit(2, long));
  const cut = 'x'.repeat(each);
  const shown = limitHits(hits);
  t.is(shown.length, 1000);
  t.deepEqual(shown[999], {
    ...hits[0]!,
    metadata: {
      id: 'Lib',
      packageTypes: [],
      title: text,
      description: cut,
      summary: cut,
      authors: cut,
      owners: cut,
      tags: tags.slice(0, 2),
      deprecation: { ...deprecation, message: cut },
    },
  });
  const short = limitHits(Array.from({ length: 1000 }, () => hit(1)))[0]!.metadata;
  t.deepEqual([short.tags, short.deprecation, short.description], [undefined, undefined, undefined]);
});

test('hits that have too many versions together have their newest ones', (t) => {
  t.deepEqual([versionsEach(0), versionsEach(1), versionsEach(3)], [20_000, 20_000, 6666]);
  const all = limitHits([hit(19_000), hit(1000)]);
  t.deepEqual(
    all.map(({ versions }) => versions.length),
    [19_000, 1000],
  );
  const some = limitHits([hit(19_000), hit(1001)]);
  t.deepEqual(
    some.map(({ versions }) => [versions.length, versions[0]!.version, versions.at(-1)!.version]),
    [
      [10_000, '1.0.9000', '1.0.18999'],
      [1001, '1.0.0', '1.0.1000'],
    ],
  );
});
