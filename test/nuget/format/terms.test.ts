import test from 'ava';
import * as fc from 'fast-check';
import { field, lowestStanding, standingOf, termsOf, tier, wordsOf } from '../../../src/nuget/format/terms.ts';

const packageTypes = [{ name: 'Dependency' }];
const tiersOf = (metadata: Partial<Parameters<typeof termsOf>[0]>) =>
  Object.fromEntries(termsOf({ id: 'X', packageTypes, ...metadata }).map(({ term, tier }) => [term, tier]));

test('an id is found by its parts and by the words that capitals separate', (t) => {
  for (const [id, words] of Object.entries({
    'Newtonsoft.Json': ['newtonsoft', 'json'],
    EntityFrameworkCore: ['entityframeworkcore', 'entity', 'framework', 'core'],
    'XMLReader-v2_tools': ['xmlreader', 'xml', 'reader', 'v2', 'v', '2', 'tools'],
    log4net: ['log4net', 'log', '4', 'net'],
    'İd.Ü': [...new Set(['İd'.toLowerCase(), 'ü'])],
  })) {
    t.true(
      words.every((word) => Object.keys(tiersOf({ id })).includes(word)),
      `${id}: ${Object.keys(tiersOf({ id })).join(' ')}`,
    );
  }
});

test('a word has the tier of its best field, and the bits of all its fields', (t) => {
  const metadata = {
    id: 'Acme.Json',
    title: 'Fast JSON',
    tags: ['fast'],
    authors: 'Acme',
    description: 'The fast one for XML.',
    packageTypes,
  };
  const terms = Object.fromEntries(termsOf(metadata).map((term) => [term.term, term]));
  t.deepEqual(terms['acme'], { term: 'acme', tier: tier.start, fields: field.id | field.author });
  t.deepEqual(terms['json'], { term: 'json', tier: tier.id, fields: field.id | field.title });
  t.deepEqual(terms['fast'], { term: 'fast', tier: tier.name, fields: field.title | field.tags | field.text });
  t.deepEqual(terms['xml'], { term: 'xml', tier: tier.mention, fields: field.text });
  t.is(terms['the'], undefined, 'a description’s common words find nothing');
});

test('a word at the start of a term of the id has that tier, whatever field it is in', (t) => {
  t.is(tiersOf({ id: 'Newtonsoft.Json', authors: 'James Newton-King' })['newton'], tier.start);
  t.is(tiersOf({ id: 'Acme.WebTokens', tags: ['token'], description: 'Kens.' })['token'], tier.id);
  t.is(tiersOf({ id: 'Acme.WebTokens', tags: ['token'], description: 'Kens.' })['kens'], tier.mention);
});

test('an id has a term from each of its words to the end of the part', (t) => {
  const idTerms = (id: string) => Object.keys(tiersOf({ id })).filter((term) => term.startsWith('.'));
  t.deepEqual(idTerms('Acme.JsonWebTokens').toSorted(), [
    '.acme',
    '.json',
    '.jsonwebtokens',
    '.tokens',
    '.web',
    '.webtokens',
  ]);
  t.is(tiersOf({ id: 'Acme.Json' })['.acme'], tier.start);
  t.is(tiersOf({ id: 'Acme.Json' })['.json'], tier.id);
});

test('the longest ids have few and short terms', (t) => {
  for (const id of ['Aa1'.repeat(33), 'A1'.repeat(50), 'a.'.repeat(49), 'x'.repeat(100)]) {
    const terms = termsOf({ id, packageTypes });
    t.true(terms.length <= 128, id);
    t.true(
      terms.every(({ term }) => term.length <= 100),
      id,
    );
  }
});

test('no search text equals the term of a package type', (t) => {
  const types = [{ name: 'DotnetTool' }, { name: 'Dependency' }];
  t.deepEqual(
    Object.keys(tiersOf({ packageTypes: types })).filter((term) => term.startsWith('#')),
    ['#dotnettool'],
  );
  t.deepEqual(wordsOf('#DotnetTool c# C++ a#b'), ['dotnettool', 'c#', 'c++', 'a#', 'b']);
});

test('more downloads never make the standing worse, and all standings are within the range', (t) => {
  const downloads = fc.oneof(fc.nat(100), fc.maxSafeNat());
  fc.assert(
    fc.property(downloads, downloads, (a, b) => {
      const [less, more] = [standingOf(Math.min(a, b)), standingOf(Math.max(a, b))];
      return more <= less && more >= 0 && less <= lowestStanding;
    }),
  );
  t.is(standingOf(0), lowestStanding);
  t.deepEqual(
    [1, 2, 3, 4, 5, 6, 8, 12, 16].map((count) => lowestStanding - standingOf(count)),
    [1, 2, 3, 4, 4, 5, 6, 7, 8],
  );
});
