import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import type { AccountList } from '../../../src/accounts/shared-names.ts';
import type { Database, Value } from '../../../src/database/database.ts';
import type { List, SqlPart } from '../../../src/nuget/search/list.ts';
import { SearchLists } from '../../../src/nuget/search/search-lists.ts';
import { parseQuery } from '../../../src/nuget/search/search-query.ts';

// Which lists a search reads, by the number of packages that have its words: a long list is read in the order of an index, and a
// short one is sorted.

interface Sizes {
  /** Packages whose id begins with the text. */
  start?: number;
  /** Packages with a word, and with `.` before it, id terms that begin with it. */
  [word: string]: number | undefined;
}

/** A database that knows only the sizes of the index, and the id terms with their packages. */
function databaseOf(sizes: Sizes, terms: Record<string, number>) {
  const sizeOf = ([, ...values]: readonly Value[], sql: string) => {
    if (sql.includes('FROM packages')) return sizes.start ?? 0;
    return sizes[String(values[0])] ?? 0;
  };
  const rows = Object.entries(terms)
    .flatMap(([term, count]) => Array.from({ length: count }, () => ({ term })))
    .toSorted((a, b) => (a.term < b.term ? -1 : 1));
  return {
    dialect: 'sqlite',
    get: async (sql: string, values: readonly Value[]) => {
      const left = [...values];
      const counted = sql.split(/\) AS size\d+/).slice(0, -1);
      const found = counted.map((each) => sizeOf(left.splice(0, each.split('?').length - 1), each));
      return Object.fromEntries(found.map((size, at) => [`size${at}`, size]));
    },
    select: async (_sql: string, [, after, end, limit]: readonly [number, string, string, number]) =>
      rows.filter(({ term }) => term > after && term < end).slice(0, limit),
  } as unknown as Database;
}

/** A condition in short words. */
function short({ sql, values }: SqlPart): string {
  const left = [...values];
  const text = sql
    .replaceAll(/\s+/g, ' ')
    .replaceAll('?', () => String(left.shift()))
    .trim()
    .replaceAll('\u{10ffff}', '*');
  return [
    [/p\.account_id = (\d+) AND \(p\.flags & (\d+)\) <> 0/g, 'account $1 view $2'],
    [/t0\.account_id = (\d+)/g, 'account $1'],
    [/\((?:p|t0)\.flags & (\d+)\) <> 0/g, 'flag $1'],
    [/p\.package_key = (\S+)/g, 'id is $1'],
    [/p\.package_key > (\S+) AND p\.package_key < \S+/g, 'id begins with $1'],
    [/p\.package_key IN \(([^)]*)\)/g, 'id among $1'],
    [/\(p\.package_key < (\S+) OR p\.package_key >= \S+\)/g, 'id begins otherwise than $1'],
    [/COALESCE\(INSTR\(p\.id_terms, \.(\S+)\), 0\) > 0/g, '$1 in id'],
    [/\((\S+ in id) OR \(SELECT 1 FROM package_terms a WHERE [^)]* LIMIT 1\) IS NOT NULL\)/g, '$1 or anywhere'],
    [/t0\.term = \.(\S+)/g, 'id term $1'],
    [/t0\.term = (\S+) AND \(t0\.fields & (\d+)\) <> 0/g, 'word $1 in $2'],
    [/t0\.term >= \.(\S+) AND t0\.term < \S+/g, 'id terms of $1'],
    [/t0\.term IN \(([^)]*)\)/g, 'id terms $1'],
    [/ AND t0\.standing >= 1000/g, ' after the start'],
    [/ AND t0\.standing >= 2000/g, ' outside of ids'],
    [/ AND t0\.standing < 2000/g, ' in ids'],
    [
      /^JOIN package_terms w\d ON .*? w\d\.term = (\S+) AND .*?fields & (\d+)\) <> 0 AND w\d\.standing < 2000$/g,
      'word $1 in $2 in ids',
    ],
    [/^JOIN package_terms w\d ON .*? w\d\.term = (\S+) AND .*?fields & (\d+)\) <> 0$/g, 'word $1 in $2'],
    [/^JOIN packages p ON p\.id = t0\.package_row AND /g, 'row: '],
    [/\(t0\.standing >= 2000(?: OR (.*))?\)/g, 'mentioned in t0 $1'],
    [/(w\d)\.standing >= 2000(?: OR)?/g, '$1'],
    [/p\.standing IN \(0, 1, [\d, ]* 63\)/g, 'any standing'],
    [
      /\(SELECT 1 FROM package_versions v WHERE v\.package_row = (\S+) .* IN \(([^)]*)\) LIMIT 1\) IS NOT NULL/g,
      '$1 with version $2',
    ],
    [
      /\(\(SELECT 1 FROM package_frameworks f WHERE f\.package_row = (\S+) LIMIT 1\) IS NULL .*\(f\.family = (\S+) AND f\.version <= (\d+)\)+ LIMIT 1\) IS NOT NULL\)/g,
      '$1 usable with $2 $3',
    ],
    [/\(*(id among \S+ OR )?p\.package_key LIKE (\S+) ESCAPE '!'\)+/g, '$1id like $2'],
    [/\(SELECT 1 FROM packages o WHERE o\.account_id = (\d+) .* LIMIT 1\) IS NULL/g, 'not of account $1'],
  ]
    .reduce((result, [pattern, name]) => result.replaceAll(pattern as RegExp, name as string), text)
    .trim();
}

/** A list in short words: where it begins, what it looks up, and how much is read and counted. */
function shown(list: List): string {
  const parts = [...list.joins, ...list.also, ...(list.inOrder ? [list.inOrder] : [])].map(short);
  const ends = [list.scanned ?? 'all', list.counted, list.behind].join(' ');
  const index = { packages_key: 'by id', packages_standing: 'by standing', package_terms_standing: 'terms' }[
    list.index!
  ];
  return `${index}: ${[...list.own.map(short), ...parts].join('; ')}${list.repeats ? '; repeats' : ''}; ${ends}`;
}

interface Search {
  sizes?: Sizes;
  terms?: Record<string, number>;
  options?: Parameters<typeof parseQuery>[1];
  list?: AccountList;
}

const own: AccountList = { accountId: 1, only: undefined };

/** The lists of each group of a search, then those that are counted if they are others. */
async function listsOf(q: string, { sizes = {}, terms = {}, options, list = own }: Search = {}) {
  const groups = await new SearchLists(databaseOf(sizes, terms)).of(list, parseQuery(q, options), 4);
  return groups.map(({ pages, counts }) => {
    const isSame = pages.length === counts.length && pages.every((each, at) => each === counts[at]);
    return [...pages.map(shown), ...(isSame ? [] : counts.map((each) => `counted: ${shown(each)}`))];
  });
}

const many = Object.fromEntries(Array.from({ length: 17 }, (_, at) => [`.json${String.fromCharCode(97 + at)}`, 1]));
const frequent = Object.fromEntries(
  Array.from({ length: 17 }, (_, at) => [`.json${String.fromCharCode(97 + at)}`, 20]),
);

const searches: Record<string, [q: string, search?: Search]> = {
  'all packages': ['', { sizes: { start: 999 } }],
  'all of very many packages': ['', { sizes: { start: 1000 } }],
  'all of very many packages of another account that shares some': [
    '',
    { sizes: { start: 1000 }, list: { accountId: 2, only: new NameSet(['a*', 'b']), without: 1 } },
  ],
  'a rare type': ['', { options: { packageType: 'DotnetTool' }, sizes: { start: 1000, '#dotnettool': 499 } }],
  'a frequent type': ['', { options: { packageType: 'DotnetTool' }, sizes: { start: 1000, '#dotnettool': 500 } }],
  'a type that has no flag': ['', { options: { packageType: 'Other' }, sizes: { start: 1000, '#other': 1000 } }],
  'a type that most packages have': ['', { options: { packageType: 'Dependency' }, sizes: { start: 1000 } }],
  'some versions of very many packages': ['version:1.0 version:2.0', { sizes: { start: 1000 } }],
  'frameworks of very many packages': [
    '',
    { options: { frameworks: new Map([['net', 8000]]) }, sizes: { start: 1000 } },
  ],
  'frameworks of few packages': ['', { options: { frameworks: new Map([['net', 8000]]) }, sizes: { start: 999 } }],
  'fields, the rarest first': ['title:a tags:b author:c', { sizes: { a: 20, b: 10, c: 30 } }],
  'a frequent field': ['title:a tags:b', { sizes: { a: 1000, b: 1000 } }],
  'a field and a type': ['title:a', { options: { packageType: 'Template' }, sizes: { a: 20, '#template': 10 } }],
  'chosen ids': ['packageid:A packageid:B title:x json', {}],
  'chosen ids with words in ids': ['packageid:A json', { options: { idOnly: true } }],
  'a text without words': ['"..."', {}],
  'a word': ['json', { sizes: { start: 1, json: 20, '.json': 30 } }],
  'a word in ids alone': ['json', { sizes: { json: 20, '.json': 30 }, options: { idOnly: true } }],
  'a word that begins 499 ids': ['json', { sizes: { start: 499, json: 499, '.json': 499 } }],
  'a word that begins 500 ids': [
    'json',
    { sizes: { start: 500, json: 500, '.json': 500 }, terms: { '.json': 400, '.jsona': 20, '.jsonb': 19, '.jso': 90 } },
  ],
  'a word that begins very many terms': ['json', { sizes: { start: 1, json: 1000, '.json': 1000 }, terms: many }],
  'a word that begins very many frequent terms': ['json', { sizes: { json: 1000, '.json': 1000 }, terms: frequent }],
  'a part of the text': ['json.', { sizes: { start: 2, json: 1000, '.json': 1000 }, terms: { '.jsona': 20 } }],
  'two words, one of them rare': ['json net', { sizes: { json: 20, '.json': 30, net: 600, '.net': 700 } }],
  'two words, the rarest by its ids': ['json net', { sizes: { start: 1, json: 20, '.json': 31, net: 21, '.net': 30 } }],
  'two words that as many ids have': ['json net', { sizes: { json: 21, '.json': 30, net: 20, '.net': 30 } }],
  'two words that are frequent': ['json net', { sizes: { start: 1, json: 600, '.json': 800, net: 700, '.net': 900 } }],
  'two words in very many packages': [
    'json net',
    { sizes: { start: 1000, json: 1000, '.json': 1000, net: 1000, '.net': 1000 } },
  ],
  'two words, one of them as the start of terms': [
    'json net',
    { sizes: { json: 499, '.json': 800, net: 500, '.net': 900 }, terms: { '.jsona': 30, '.jsonb': 3 } },
  ],
  'three words': [
    'json net core',
    { sizes: { json: 250, '.json': 250, net: 500, '.net': 900, core: 499, '.core': 800 }, terms: { '.jsona': 3 } },
  ],
  'three words, of which each is frequent somewhere': [
    'json net core',
    { sizes: { start: 3, json: 100, '.json': 500, net: 500, '.net': 900, core: 499, '.core': 800 } },
  ],
  'a word and a rare field': ['json title:x', { sizes: { start: 1, json: 20, '.json': 30, x: 10 } }],
  'a word and a field that is as rare': ['json title:x', { sizes: { start: 1, json: 20, '.json': 30, x: 30 } }],
  'a word and a field that is rarer than all': ['json title:x', { sizes: { json: 20, '.json': 30, x: 49 } }],
  'words and a frequent field': [
    'json net title:x',
    { sizes: { json: 900, '.json': 900, net: 950, '.net': 950, x: 500 } },
  ],
  'words and two rare fields': [
    'json net title:x tags:y',
    { sizes: { json: 900, '.json': 900, net: 950, '.net': 950, x: 20, y: 10 } },
  ],
  'words of packages that another account shares': [
    'json net',
    {
      sizes: { json: 1000, '.json': 1000, net: 1000, '.net': 1000 },
      list: { accountId: 2, only: new NameSet(['a*']) },
    },
  ],
  'a word of packages that another account shares': [
    'json',
    {
      sizes: { json: 1000, '.json': 1000 },
      terms: { '.jsona': 20 },
      list: { accountId: 2, only: undefined, without: 1 },
    },
  ],
  'words with a frequent type, versions and frameworks': [
    'json net version:1.0 version:2.0',
    {
      sizes: { json: 1000, '.json': 1000, net: 1000, '.net': 1000, '#dotnettool': 1000 },
      options: { packageType: 'DotnetTool', frameworks: new Map([['net', 8000]]) },
    },
  ],
};

/** What each of the searches reads. */
const expected: Record<string, readonly (readonly string[])[]> = {
  'all packages': [['by standing: account 1 view 4; all 1000 1000']],
  'all of very many packages': [['by standing: account 1 view 4; all 0 1000']],
  'all of very many packages of another account that shares some': [
    ['by standing: account 2 view 4; id among b OR id like a% AND not of account 1; all 1000 1000'],
  ],
  'a rare type': [['terms: account 1; word #dotnettool in 64; flag 4; all 1000 1000']],
  'a frequent type': [['by standing: account 1 view 4; flag 32; all 1000 1000']],
  'a type that has no flag': [['terms: account 1; word #other in 64; flag 4; all 0 1000']],
  'a type that most packages have': [['by standing: account 1 view 4; flag 16; all 1000 1000']],
  'some versions of very many packages': [['by standing: account 1 view 4; p.id with version 1.0.0, 2.0.0; 6000 0 0']],
  'frameworks of very many packages': [['by standing: account 1 view 4; p.id usable with net 8000; 10000 250 0']],
  'frameworks of few packages': [['by standing: account 1 view 4; p.id usable with net 8000; all 250 0']],
  'fields, the rarest first': [['terms: account 1; word b in 4; flag 4; word a in 2; word c in 8; all 250 0']],
  'a frequent field': [['terms: account 1; word a in 2; flag 4; word b in 4; 10000 0 0']],
  'a field and a type': [['terms: account 1; word #template in 64; flag 4; word a in 2; all 250 0']],
  'chosen ids': [['by id: account 1 view 4; id among a, b; json in id or anywhere; word x in 2; all 250 0']],
  'chosen ids with words in ids': [['by id: account 1 view 4; id among a; json in id; all 1000 1000']],
  'a text without words': [
    ['by id: account 1 view 4; id is ...; all 1000 1000'],
    ['by id: account 1 view 4; id begins with ...; all 1000 1000'],
  ],
  'a word': [
    ['by id: account 1 view 4; id is json; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json; all 1000 1000'],
    ['terms: account 1; id terms of json; flag 4; row: id begins otherwise than json; repeats; all 250 0'],
    ['terms: account 1; word json in 63 outside of ids; flag 4; all 1000 1000'],
  ],
  'a word in ids alone': [
    ['by id: account 1 view 4; id is json; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json; all 1000 1000'],
    ['terms: account 1; id terms of json; flag 4; repeats; all 1000 0'],
  ],
  'a word that begins 499 ids': [
    ['by id: account 1 view 4; id is json; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json; all 1000 1000'],
    ['terms: account 1; id terms of json; flag 4; row: id begins otherwise than json; repeats; all 250 0'],
    ['terms: account 1; word json in 63 outside of ids; flag 4; all 1000 1000'],
  ],
  'a word that begins 500 ids': [
    ['by id: account 1 view 4; id is json; all 1000 1000'],
    ['by standing: account 1 view 4; id begins with json; any standing; all 1000 1000'],
    [
      'terms: account 1; id term json after the start; flag 4; all 1000 1000',
      'terms: account 1; id term jsona after the start; flag 4; row: id begins otherwise than json; all 250 0',
      'terms: account 1; id terms .jsonb after the start; flag 4; row: id begins otherwise than json; repeats; all 250 0',
      'counted: terms: account 1; id terms of json after the start; flag 4; row: id begins otherwise than json; repeats; all 250 0',
    ],
    ['terms: account 1; word json in 63 outside of ids; flag 4; all 1000 1000'],
  ],
  'a word that begins very many terms': [
    ['by id: account 1 view 4; id is json; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json; all 1000 1000'],
    [
      'terms: account 1; id term json after the start; flag 4; all 0 1000',
      'terms: account 1; word json in 63 after the start in ids; flag 4; all 0 1000',
      'terms: account 1; id terms .jsona, .jsonb, .jsonc, .jsond, .jsone, .jsonf, .jsong, .jsonh, .jsoni, .jsonj, .jsonk, .jsonl, .jsonm, .jsonn, .jsono after the start; flag 4; row: id begins otherwise than json; repeats; all 0 0',
      'counted: terms: account 1; id terms of json after the start; flag 4; row: id begins otherwise than json; repeats; all 0 0',
    ],
    ['terms: account 1; word json in 63 outside of ids; flag 4; all 0 1000'],
  ],
  'a word that begins very many frequent terms': [
    ['by id: account 1 view 4; id is json; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json; all 1000 1000'],
    [
      'terms: account 1; id term json after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsona after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonb after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonc after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsond after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsone after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonf after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsong after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonh after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsoni after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonj after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonk after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonl after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonm after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsonn after the start; flag 4; all 0 1000',
      'terms: account 1; id term jsono after the start; flag 4; all 0 1000',
      'terms: account 1; word json in 63 after the start in ids; flag 4; all 0 1000',
      'counted: terms: account 1; id terms of json after the start; flag 4; repeats; all 0 0',
    ],
    ['terms: account 1; word json in 63 outside of ids; flag 4; all 0 1000'],
  ],
  'a part of the text': [
    ['by id: account 1 view 4; id is json.; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.; all 1000 1000'],
    [
      'terms: account 1; id term json; flag 4; row: id begins otherwise than json.; 4000 0 0',
      'terms: account 1; id term jsona; flag 4; row: id begins otherwise than json.; 4000 0 0',
      'counted: terms: account 1; id terms of json; flag 4; row: id begins otherwise than json.; repeats; all 0 0',
    ],
    ['terms: account 1; word json in 63 outside of ids; flag 4; row: id begins otherwise than json.; all 0 0'],
  ],
  'two words, one of them rare': [
    ['by id: account 1 view 4; id is json.net; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.net; all 1000 1000'],
    ['terms: account 1; id terms of json; flag 4; row: net in id; repeats; all 250 0'],
    [
      'terms: account 1; word json in 63 outside of ids; flag 4; row: net in id or anywhere; all 250 0',
      'terms: account 1; id terms of json; flag 4; row: net in id or anywhere AND NOT (net in id); repeats; all 250 0',
    ],
  ],
  'two words, the rarest by its ids': [
    ['by id: account 1 view 4; id is json.net; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.net; all 1000 1000'],
    [
      'terms: account 1; id terms of net; flag 4; row: id begins otherwise than json.net AND json in id; repeats; all 250 0',
    ],
    [
      'terms: account 1; word json in 63 outside of ids; flag 4; row: id begins otherwise than json.net AND net in id or anywhere; all 250 0',
      'terms: account 1; id terms of json; flag 4; row: id begins otherwise than json.net AND net in id or anywhere AND NOT (net in id); repeats; all 250 0',
    ],
  ],
  'two words that as many ids have': [
    ['by id: account 1 view 4; id is json.net; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.net; all 1000 1000'],
    ['terms: account 1; id terms of net; flag 4; row: json in id; repeats; all 250 0'],
    [
      'terms: account 1; word net in 63 outside of ids; flag 4; row: json in id or anywhere; all 250 0',
      'terms: account 1; id terms of net; flag 4; row: json in id or anywhere AND NOT (json in id); repeats; all 250 0',
    ],
  ],
  'two words that are frequent': [
    ['by id: account 1 view 4; id is json.net; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.net; all 1000 1000'],
    [
      'terms: account 1; word json in 63 in ids; flag 4; word net in 63 in ids; row: id begins otherwise than json.net; all 250 0',
    ],
    [
      'terms: account 1; word json in 63; flag 4; word net in 63; row: id begins otherwise than json.net; mentioned in t0 w0; all 250 0',
    ],
  ],
  'two words in very many packages': [
    ['by id: account 1 view 4; id is json.net; all 1000 1000'],
    ['by standing: account 1 view 4; id begins with json.net; any standing; all 0 1000'],
    [
      'terms: account 1; word json in 63 in ids; flag 4; word net in 63 in ids; row: id begins otherwise than json.net; 10000 0 0',
    ],
    [
      'terms: account 1; word json in 63; flag 4; word net in 63; row: id begins otherwise than json.net; mentioned in t0 w0; 10000 0 0',
    ],
  ],
  'two words, one of them as the start of terms': [
    ['by id: account 1 view 4; id is json.net; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.net; all 1000 1000'],
    [
      'terms: account 1; id term json; flag 4; word net in 63 in ids; all 250 0',
      'terms: account 1; id term jsona; flag 4; word net in 63 in ids; all 250 0',
      'terms: account 1; id terms .jsonb; flag 4; word net in 63 in ids; repeats; all 250 0',
      'counted: terms: account 1; id terms of json; flag 4; word net in 63 in ids; repeats; all 250 0',
    ],
    [
      'terms: account 1; word json in 63 outside of ids; flag 4; row: net in id or anywhere; all 250 0',
      'terms: account 1; id term json; flag 4; word net in 63; mentioned in t0 w0; all 250 0',
      'terms: account 1; id term jsona; flag 4; word net in 63; mentioned in t0 w0; all 250 0',
      'terms: account 1; id terms .jsonb; flag 4; word net in 63; mentioned in t0 w0; repeats; all 250 0',
      'counted: terms: account 1; word json in 63 outside of ids; flag 4; row: net in id or anywhere; all 250 0',
      'counted: terms: account 1; id terms of json; flag 4; word net in 63; mentioned in t0 w0; repeats; all 250 0',
    ],
  ],
  'three words': [
    ['by id: account 1 view 4; id is json.net.core; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.net.core; all 1000 1000'],
    ['terms: account 1; id terms of json; flag 4; row: net in id AND core in id; repeats; all 250 0'],
    [
      'terms: account 1; word json in 63 outside of ids; flag 4; row: net in id or anywhere AND core in id or anywhere; all 250 0',
      'terms: account 1; id term json; flag 4; word net in 63; word core in 63; mentioned in t0 w0 w1; all 250 0',
      'terms: account 1; id terms .jsona; flag 4; word net in 63; word core in 63; mentioned in t0 w0 w1; repeats; all 250 0',
      'counted: terms: account 1; word json in 63 outside of ids; flag 4; row: net in id or anywhere AND core in id or anywhere; all 250 0',
      'counted: terms: account 1; id terms of json; flag 4; word net in 63; word core in 63; mentioned in t0 w0 w1; repeats; all 250 0',
    ],
  ],
  'three words, of which each is frequent somewhere': [
    ['by id: account 1 view 4; id is json.net.core; all 1000 1000'],
    ['by id: account 1 view 4; id begins with json.net.core; all 1000 1000'],
    [
      'terms: account 1; id term json; flag 4; word net in 63 in ids; row: id begins otherwise than json.net.core AND core in id; all 250 0',
      'counted: terms: account 1; id terms of json; flag 4; word net in 63 in ids; row: id begins otherwise than json.net.core AND core in id; repeats; all 250 0',
    ],
    [
      'terms: account 1; word json in 63 outside of ids; flag 4; row: id begins otherwise than json.net.core AND net in id or anywhere AND core in id or anywhere; all 250 0',
      'terms: account 1; id term json; flag 4; word net in 63; word core in 63; row: id begins otherwise than json.net.core; mentioned in t0 w0 w1; all 250 0',
      'counted: terms: account 1; word json in 63 outside of ids; flag 4; row: id begins otherwise than json.net.core AND net in id or anywhere AND core in id or anywhere; all 250 0',
      'counted: terms: account 1; id terms of json; flag 4; word net in 63; word core in 63; row: id begins otherwise than json.net.core; mentioned in t0 w0 w1; repeats; all 250 0',
    ],
  ],
  'a word and a rare field': [
    ['by id: account 1 view 4; id is json; word x in 2; all 250 0'],
    ['by id: account 1 view 4; id begins with json; word x in 2; all 250 0'],
    ['terms: account 1; word x in 2; flag 4; row: id begins otherwise than json AND json in id; all 250 0'],
    ['terms: account 1; word x in 2; flag 4; row: json in id or anywhere AND NOT (json in id); all 250 0'],
  ],
  'a word and a field that is as rare': [
    ['by id: account 1 view 4; id is json; word x in 2; all 250 0'],
    ['by id: account 1 view 4; id begins with json; word x in 2; all 250 0'],
    ['terms: account 1; id terms of json; flag 4; word x in 2; row: id begins otherwise than json; repeats; all 250 0'],
    ['terms: account 1; word x in 2; flag 4; row: json in id or anywhere AND NOT (json in id); all 250 0'],
  ],
  'a word and a field that is rarer than all': [
    ['by id: account 1 view 4; id is json; word x in 2; all 250 0'],
    ['by id: account 1 view 4; id begins with json; word x in 2; all 250 0'],
    ['terms: account 1; id terms of json; flag 4; word x in 2; repeats; all 250 0'],
    ['terms: account 1; word x in 2; flag 4; row: json in id or anywhere AND NOT (json in id); all 250 0'],
  ],
  'words and a frequent field': [
    ['by id: account 1 view 4; id is json.net; word x in 2; all 250 0'],
    ['by id: account 1 view 4; id begins with json.net; word x in 2; all 250 0'],
    ['terms: account 1; word json in 63 in ids; flag 4; word net in 63 in ids; word x in 2; all 250 0'],
    ['terms: account 1; word json in 63; flag 4; word net in 63; word x in 2; mentioned in t0 w0; all 250 0'],
  ],
  'words and two rare fields': [
    ['by id: account 1 view 4; id is json.net; word y in 4; word x in 2; all 250 0'],
    ['by id: account 1 view 4; id begins with json.net; word y in 4; word x in 2; all 250 0'],
    ['terms: account 1; word y in 4; flag 4; word x in 2; row: json in id AND net in id; all 250 0'],
    [
      'terms: account 1; word y in 4; flag 4; word x in 2; row: json in id or anywhere AND net in id or anywhere AND NOT (json in id AND net in id); all 250 0',
    ],
  ],
  'words of packages that another account shares': [
    ['by id: account 2 view 4; id is json.net; id like a%; all 1000 1000'],
    ['by id: account 2 view 4; id begins with json.net; id like a%; all 1000 1000'],
    ['terms: account 2; word json in 63 in ids; flag 4; word net in 63 in ids; row: id like a%; 9600 250 0'],
    ['terms: account 2; word json in 63; flag 4; word net in 63; row: id like a%; mentioned in t0 w0; 9600 250 0'],
  ],
  'a word of packages that another account shares': [
    ['by id: account 2 view 4; id is json; not of account 1; all 1000 1000'],
    ['by id: account 2 view 4; id begins with json; not of account 1; all 1000 1000'],
    [
      'terms: account 2; id term json after the start; flag 4; row: not of account 1; 4000 250 0',
      'terms: account 2; id term jsona after the start; flag 4; row: not of account 1; 4000 250 0',
      'counted: terms: account 2; id terms of json after the start; flag 4; row: not of account 1; repeats; all 250 0',
    ],
    ['terms: account 2; word json in 63 outside of ids; flag 4; row: not of account 1; 10000 250 0'],
  ],
  'words with a frequent type, versions and frameworks': [
    [
      'by id: account 1 view 4; id is json.net; flag 32; p.id with version 1.0.0, 2.0.0; p.id usable with net 8000; all 250 0',
    ],
    [
      'by id: account 1 view 4; id begins with json.net; flag 32; p.id with version 1.0.0, 2.0.0; p.id usable with net 8000; all 250 0',
    ],
    [
      'terms: account 1; word json in 63 in ids; flag 4; word net in 63 in ids; flag 32; t0.package_row with version 1.0.0, 2.0.0; t0.package_row usable with net 8000; 4364 250 0',
    ],
    [
      'terms: account 1; word json in 63; flag 4; word net in 63; flag 32; t0.package_row with version 1.0.0, 2.0.0; t0.package_row usable with net 8000; mentioned in t0 w0; 4364 250 0',
    ],
  ],
};

test('the lists of a search, by the sizes of its words', async (t) => {
  t.deepEqual(Object.keys(expected), Object.keys(searches));
  for (const [what, [q, search]] of Object.entries(searches))
    t.deepEqual(await listsOf(q, search), expected[what], what);
  t.deepEqual(await listsOf('title:...'), [], 'a field without a word in it finds nothing');
});

/** Where the SQL of a list ends to read. */
const limitsOf = ({ sql }: SqlPart) => [...sql.matchAll(/LIMIT (\d+|\?)(?= *(?:\)|$))/g)].map(([, limit]) => limit);

const afterRows = ({ sql }: SqlPart) => sql.slice(sql.lastIndexOf(') AS t0')).replaceAll(/\s+/g, ' ');

test('a page and a count read no more rows of a list than its bound', async (t) => {
  const lists = new SearchLists(databaseOf({ json: 1000, '.json': 1000, net: 1000, '.net': 1000 }, {}));
  const groups = await lists.of(own, parseQuery('json net'), 4);
  const [[exact], , [named], [mentioning]] = groups.map(({ pages }) => pages) as [[List], [List], [List], [List]];
  t.is(named.scanned, 10_000);
  for (const [most, limit] of [
    [9999, '9999'],
    [10_000, '10000'],
    [10_001, '10000'],
    [Infinity, '10000'],
  ] as const)
    t.deepEqual(limitsOf(lists.page(named, most)), [limit, '?']);
  t.deepEqual(limitsOf(lists.page(exact, 10)), ['?']);
  t.deepEqual(limitsOf(lists.count({ ...named, counted: 250 }, 30)), ['280']);
  t.deepEqual(limitsOf(lists.count({ ...named, counted: 250 }, 9900)), ['10000']);
  t.deepEqual(limitsOf(lists.count(exact, 30)), ['1030']);
  // Of these rows, those that fulfil the further conditions.
  for (const read of [(list: List) => lists.page(list, Infinity), (list: List) => lists.count(list, 30)]) {
    t.notRegex(afterRows(read(named)), /WHERE/);
    t.regex(afterRows(read(mentioning)), / WHERE \(t0\.standing >= 2000 OR w0\.standing >= 2000\) ?/);
    const { values } = read({ ...mentioning, also: [{ sql: '1 = ?', values: [7] }] });
    t.is(values.at(-1), 7);
  }
});
