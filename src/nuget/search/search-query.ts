import { packageKey, keyOfVersion } from '../hosted/packages.ts';
import { field, isCommonWord, typeFlag, typeTerm, wordsOf } from './terms.ts';

/** A word that a package must be found under, in one of these fields (bits of `field`). */
export interface SearchWord {
  term: string;
  fields: number;
}

/** What somebody searches for, taken apart. */
export interface SearchQuery {
  /** What an id may start with; undefined when there is no free text. */
  idStart: string | undefined;
  /** The words of the free text. */
  words: SearchWord[];
  /** Words that were asked of a field. */
  filters: SearchWord[];
  /** The package type that is asked for: its word, and its bit of `flags` if it is a common one. */
  type: { term: string | undefined; flag: number | undefined } | undefined;
  /** Keys of ids; a package has one of them, if there are any. */
  ids: string[];
  /** Keys of versions; a package has one of them, if there are any. */
  versions: string[];
  /** Whether something was asked that nothing can be found under. */
  hopeless: boolean;
}

/** Words beyond these do not make a search narrower. */
const maxWords = 8;
const maxQueryLength = 400;
const anywhere = field.id | field.title | field.tags | field.author | field.owner | field.text;

const fieldsByPrefix: Record<string, number> = {
  id: field.id,
  title: field.title,
  tags: field.tags,
  tag: field.tags,
  author: field.author,
  authors: field.author,
  owner: field.owner,
  owners: field.owner,
  description: field.text,
  summary: field.text,
};

/**
 * Takes `q` apart: words, quoted phrases (whose words may stand apart), and both with a field in front.
 * https://learn.microsoft.com/nuget/consume-packages/finding-and-choosing-packages#search-syntax
 */
export function parseQuery(
  q: string,
  options: { packageType?: string | undefined; idOnly?: boolean } = {},
): SearchQuery {
  const query: SearchQuery = {
    idStart: undefined,
    words: [],
    filters: [],
    type: undefined,
    ids: [],
    versions: [],
    hopeless: false,
  };
  const text: string[] = [];
  for (const [, prefix, phrase, plain = ''] of q.slice(0, maxQueryLength).matchAll(pattern)) {
    const value = (phrase ?? plain).replaceAll('"', '').trim();
    const name = prefix?.toLowerCase();
    if (value === '') continue;
    if (name === undefined) {
      text.push(value);
    } else if (name === 'packageid') {
      query.ids.push(packageKey(value));
    } else if (name === 'version') {
      query.versions.push(keyOfVersion(value) ?? value);
    } else {
      const words = wordsOf(value).map((term) => ({ term, fields: fieldsByPrefix[name]! }));
      if (words.length === 0) query.hopeless = true;
      query.filters.push(...words);
    }
  }
  if (options.packageType !== undefined) {
    query.type = { term: typeTerm(options.packageType), flag: typeFlag(options.packageType) };
  }
  query.filters = query.filters.slice(0, maxWords);
  if (text.length > 0) {
    query.idStart = packageKey(text.join('.'));
    const words = [...new Set(text.flatMap(wordsOf))];
    const telling = words.filter((word) => !isCommonWord(word));
    const fields = options.idOnly ? field.id : anywhere;
    query.words = (telling.length > 0 ? telling : words).slice(0, maxWords).map((term) => ({ term, fields }));
  }
  return query;
}

/** A field, a phrase in quotes or what lies between spaces; a field that is none is part of the text. */
const pattern = new RegExp(
  String.raw`(?:(${['packageid', 'version', ...Object.keys(fieldsByPrefix)].join('|')}):\s*)?(?:"([^"]*)"|(\S+))`,
  'gi',
);
