import test from 'ava';
import { field } from '../../../src/nuget/format/terms.ts';
import { parseQuery } from '../../../src/nuget/search/search-query.ts';

const termsOf = (q: string) => parseQuery(q).words.map(({ term }) => term);
const filtersOf = (q: string) => parseQuery(q).filters.map(({ term, fields }) => [term, fields]);

test('without text, a query has no words', (t) => {
  t.deepEqual(parseQuery(''), {
    idStart: undefined,
    words: [],
    idOnly: false,
    filters: [],
    type: undefined,
    frameworks: undefined,
    ids: [],
    versions: [],
    hopeless: false,
  });
  t.deepEqual(parseQuery(' "" " " '), parseQuery(''));
});

test('the words of the free text are in any field but the type, and together the start of an id', (t) => {
  const { idStart, words } = parseQuery('Json "Net Tools" json');
  t.is(idStart, 'json.net tools.json');
  t.deepEqual(
    words.map(({ term }) => term),
    ['json', 'net', 'tools'],
  );
  t.true(words.every(({ fields }) => fields === Object.values(field).reduce((sum, bit) => sum | bit, 0) - field.type));
  t.is(parseQuery('say"s').idStart, 'says');
});

test('common words count only if there is no other, and words after the eighth do not', (t) => {
  t.deepEqual(termsOf('the json for you'), ['json']);
  t.deepEqual(termsOf('for the'), ['for', 'the']);
  t.deepEqual(termsOf('w1 w2 w3 w4 w5 w6 w7 w8 w9'), ['w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7', 'w8']);
  t.is(parseQuery('title:"w1 w2 w3 w4 w5 w6 w7 w8 w9"').filters.length, 8);
  t.deepEqual(termsOf(`${' '.repeat(399)}ab`), ['a']);
});

test('a field name before a word or a phrase limits it to that field', (t) => {
  for (const [name, bit] of Object.entries({
    id: field.id,
    title: field.title,
    tag: field.tags,
    tags: field.tags,
    author: field.author,
    authors: field.author,
    owner: field.owner,
    owners: field.owner,
    description: field.text,
    summary: field.text,
  })) {
    t.deepEqual(filtersOf(`${name}:word`), [['word', bit]]);
    t.deepEqual(filtersOf(`${name.toUpperCase()}: "Two Words"`), [
      ['two', bit],
      ['words', bit],
    ]);
  }
  t.is(parseQuery('id:word').idStart, undefined);
  t.deepEqual([parseQuery('other:word').idStart, filtersOf('other:word')], ['other:word', []]);
});

test('a field without a word in it finds nothing', (t) => {
  t.true(parseQuery('title:...').hopeless);
  t.false(parseQuery('title:a').hopeless);
  t.false(parseQuery('...').hopeless);
});

test('ids and versions are found by their keys', (t) => {
  const { ids, versions, words } = parseQuery(
    'packageid:Contoso.LIB PackageId:Other version:1.0 version:01.2.0-Beta version:x',
  );
  t.deepEqual([ids, versions, words], [['contoso.lib', 'other'], ['1.0.0', '1.2.0-beta', 'x'], []]);
});

const typeOf = (packageType: string) => parseQuery('', { packageType }).type;

test('a package type has a term or a flag', (t) => {
  t.deepEqual(typeOf('Dependency'), { term: undefined, flag: 16 });
  t.deepEqual(typeOf('DotnetTool'), { term: '#dotnettool', flag: 32 });
  t.deepEqual(typeOf('Other'), { term: '#other', flag: undefined });
  t.true(parseQuery('a', { idOnly: true }).idOnly);
});
