import type { FrameworkVersions } from '../format/frameworks.ts';
import { packageKey, keyOfVersion } from '../hosted/packages.ts';
import { field, isCommonWord, typeFlag, typeTerm, wordsOf } from '../format/terms.ts';

/** A word that a package must have in one of these fields (bits of `field`). */
export interface SearchWord {
  term: string;
  fields: number;
}

/** A parsed search text. */
export interface SearchQuery {
  /** The possible start of an id; undefined if there is no free text. */
  idStart: string | undefined;
  /** The words of the free text. A hit has each of them, or has id terms that begin with it. */
  words: SearchWord[];
  /** Whether each word must be the start of an id term. */
  idOnly: boolean;
  /** Words that must be in a named field. */
  filters: SearchWord[];
  /** The required package type: its term, and its bit of `flags` if it is a common type. */
  type: { term: string | undefined; flag: number | undefined } | undefined;
  /** The highest version of each family of frameworks that a hit may need; undefined if it may need any. */
  frameworks: FrameworkVersions | undefined;
  /** Keys of ids. If there are any, a hit has one of them. */
  ids: string[];
  /** Keys of versions. If there are any, a hit has one of them. */
  versions: string[];
  /** Whether the query cannot have a hit. */
  hopeless: boolean;
}

/** Further words are ignored. */
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
 * Parses `q`: words and quoted phrases, each with or without a field name before it. The words of a phrase need not be
 * adjacent in a hit.
 * https://learn.microsoft.com/nuget/consume-packages/finding-and-choosing-packages#search-syntax
 */
export function parseQuery(
  q: string,
  options: { packageType?: string | undefined; idOnly?: boolean; frameworks?: FrameworkVersions | undefined } = {},
): SearchQuery {
  const query: SearchQuery = {
    idStart: undefined,
    words: [],
    idOnly: options.idOnly ?? false,
    filters: [],
    type: undefined,
    frameworks: options.frameworks,
    ids: [],
    versions: [],
    hopeless: false,
  };
  const text: string[] = [];
  for (const [, prefix, phrase, plain] of q.slice(0, maxQueryLength).matchAll(pattern)) {
    const value = (phrase ?? plain!).replaceAll('"', '').trim();
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
    const distinctive = words.filter((word) => !isCommonWord(word));
    const searched = (distinctive.length > 0 ? distinctive : words).slice(0, maxWords);
    query.words = searched.map((term) => ({ term, fields: anywhere }));
  }
  return query;
}

/** An optional field name, then a quoted phrase or text without spaces. An unknown field name is part of the text. */
const pattern = new RegExp(
  String.raw`(?:(${['packageid', 'version', ...Object.keys(fieldsByPrefix)].join('|')}):\s*)?(?:"([^"]*)"|(\S+))`,
  'gi',
);
