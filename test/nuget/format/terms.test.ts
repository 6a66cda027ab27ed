import test from 'ava';
import * as fc from 'fast-check';
import {
  field,
  isIdTerm,
  lowestStanding,
  standingOf,
  termsOf,
  tier,
  typeFlag,
  typeFlags,
  wordsOf,
} from '../../../src/nuget/format/terms.ts';

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

test('a package has the words of its own fields and no others', (t) => {
  t.deepEqual(tiersOf({ id: 'Acme.Json2' }), {
    acme: tier.start,
    json2: tier.id,
    json: tier.id,
    '2': tier.id,
    '.acme': tier.start,
    '.json2': tier.id,
    '.json': tier.id,
    '.2': tier.id,
  });
  const fields = { title: 'one', authors: 'two', owners: 'three', description: 'four', summary: 'five', tags: ['six'] };
  const terms = termsOf({ id: 'X', packageTypes: [{ name: 'Template' }], ...fields });
  t.deepEqual(
    terms.map((each) => [each.term, each.tier, each.fields]),
    [
      ['x', tier.start, field.id],
      ['one', tier.name, field.title],
      ['six', tier.name, field.tags],
      ['two', tier.mention, field.author],
      ['three', tier.mention, field.owner],
      ['four', tier.mention, field.text],
      ['five', tier.mention, field.text],
      ['#template', tier.id, field.type],
      ['.x', tier.start, field.id],
    ],
  );
  const twice = termsOf({ id: 'X', packageTypes, title: 'twice', description: 'twice' });
  t.is(twice.find(({ term }) => term === 'twice')!.tier, tier.name, 'of its fields, the best one counts');
  t.deepEqual(Object.keys(tiersOf({ id: '_A__B._' })), ['a', 'b', '.a', '.b']);
  t.deepEqual(Object.keys(tiersOf({ id: '42' })), ['42', '.42']);
});

test('words have a bounded length and number', (t) => {
  t.deepEqual(wordsOf('x'.repeat(101)), ['x'.repeat(100)]);
  t.deepEqual(wordsOf(' - '), []);
  const many = Array.from({ length: 100 }, (_, at) => `w${at}`);
  const found = Object.keys(tiersOf({ title: many.join(' '), packageTypes: [{ name: 'y'.repeat(200) }] }));
  t.is(found.filter((term) => term.startsWith('w')).length, 64);
  t.true(found.includes(`#${'y'.repeat(99)}`));
  const ids = termsOf({ id: 'Aa1'.repeat(33), packageTypes });
  t.is(ids.filter(({ term }) => isIdTerm(term)).length, 64);
  t.deepEqual(['.a', 'a.', 'a'].map(isIdTerm), [true, false, false]);
});

test('the types that are searched for most often have a bit each, in any letter case', (t) => {
  t.deepEqual(['Dependency', 'DotnetTool', 'template', 'Other'].map(typeFlag), [16, 32, 64, undefined]);
  t.is(typeFlags([{ name: 'DotnetTool' }, { name: 'Other' }, { name: 'Template' }]), 96);
  t.is(typeFlags([]), 0);
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
