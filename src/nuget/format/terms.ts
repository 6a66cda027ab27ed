import type { VersionMetadata } from './metadata.ts';

/** The field of the metadata that contains a term: bits of `package_terms.fields`. */
export const field = { id: 1, title: 2, tags: 4, author: 8, owner: 16, text: 32, type: 64 } as const;

/** A word by which a package is found. */
export interface Term {
  term: string;
  tier: Tier;
  /** Bits of `field`. */
  fields: number;
}

/**
 * The relevance of a word for a package. Search results are ordered by tier, then by downloads. `start`: the id
 * begins with the word. `id`: a term of the id begins with it. `name`: it is in the title or the tags.
 */
export const tier = { start: 0, id: 1, name: 2, mention: 3 } as const;
type Tier = (typeof tier)[keyof typeof tier];

/** `package_terms.standing` is the tier times this number, plus the package's standing. */
export const tierWidth = 1000;
/** The standing of a package without downloads. With more downloads the number becomes smaller, down to 0. */
export const lowestStanding = 63;

const maxTermLength = 100;
/** Words that are indexed from each of title, tags, authors, owners and description. */
const maxWords = 64;
const commonWords = new Set(
  'a an and are as at be by can for from has in into is it its of on or that the this to use used using with you your'.split(
    ' ',
  ),
);

/**
 * The standing of a package with this number of downloads: among equal matches a lower standing comes first. It is
 * exact up to 4 downloads, then has two steps for each doubling, so that a download seldom changes the index.
 */
export function standingOf(downloads: number): number {
  if (downloads < 4) return lowestStanding - Math.max(0, Math.floor(downloads));
  const exponent = Math.floor(Math.log2(downloads));
  const half = downloads >= 1.5 * 2 ** exponent ? 1 : 0;
  return Math.max(0, lowestStanding - (4 + (exponent - 2) * 2 + half));
}

/** The words in `text`, in lower case, in order: sequences of letters and digits, also `c#` and `c++`. */
export function wordsOf(text: string): string[] {
  return (text.toLowerCase().match(/[\p{L}\p{M}\p{N}]+(?:#|\+\+)?/gu) ?? []).map((word) =>
    word.slice(0, maxTermLength),
  );
}

/** Whether a word is too common to distinguish packages. */
export function isCommonWord(word: string): boolean {
  return commonWords.has(word);
}

/** Bits of `flags` for the package types that are searched for most often. */
const commonTypes: Readonly<Record<string, number>> = { dependency: 16, dotnettool: 32, template: 64 };

/** The bit of `flags` of a common package type; undefined for another type. */
export function typeFlag(name: string): number | undefined {
  return commonTypes[name.toLowerCase()];
}

/** The bits of `flags` of those package types that are common. */
export function typeFlags(types: readonly { name: string }[]): number {
  return types.reduce((bits, { name }) => bits | (typeFlag(name) ?? 0), 0);
}

/** The term of a package type; no word of a text equals it. `Dependency` has none: nearly all packages have it. */
export function typeTerm(name: string): string | undefined {
  const key = name.toLowerCase();
  return key === 'dependency' ? undefined : `#${key}`.slice(0, maxTermLength);
}

/**
 * The start of the id terms that the word begins, as they are stored: a full stop before the term keeps them apart from
 * words, so that a range of the index has id terms only.
 */
export function idTermStart(word: string): string {
  return `.${word}`.slice(0, maxTermLength);
}

/** Whether a stored term is an id term. */
export function isIdTerm(term: string): boolean {
  return term.startsWith('.');
}

/** All terms of a package, each once. */
export function termsOf(metadata: VersionMetadata): Term[] {
  const key = metadata.id.toLowerCase();
  const words = idWords(metadata.id);
  const idTerms = [...new Set([...words, ...joinedWords(metadata.id)])].slice(0, maxWords);
  const terms = new Map<string, Term>();
  const tierInId = (term: string) => (key.startsWith(term) ? tier.start : tier.id);
  const add = (words: readonly string[], from: Tier, bit: number) => {
    for (const term of [...new Set(words)].slice(0, maxWords)) {
      const known = terms.get(term);
      // The fields follow each other from the best tier on.
      const best = known?.tier ?? from;
      // A search for this word finds the package by its id, whatever field the word is in.
      const inId = idTerms.some((each) => each.startsWith(term));
      terms.set(term, { term, tier: inId ? tierInId(term) : best, fields: (known?.fields ?? 0) | bit });
    }
  };
  add([...words], tier.name, field.id);
  add(wordsOf(metadata.title ?? ''), tier.name, field.title);
  add((metadata.tags ?? []).flatMap(wordsOf), tier.name, field.tags);
  add(wordsOf(metadata.authors ?? ''), tier.mention, field.author);
  add(wordsOf(metadata.owners ?? ''), tier.mention, field.owner);
  const text = wordsOf(`${metadata.description ?? ''} ${metadata.summary ?? ''}`);
  add(
    text.filter((word) => !isCommonWord(word)),
    tier.mention,
    field.text,
  );
  add(
    metadata.packageTypes.flatMap(({ name }) => typeTerm(name) ?? []),
    tier.id,
    field.type,
  );
  for (const each of idTerms) {
    const term = idTermStart(each);
    terms.set(term, { term, tier: tierInId(each), fields: field.id });
  }
  return [...terms.values()];
}

const separators = /[._-]/;
/** The words within a part of an id, separated by capitals and digits. */
const humps = /\p{Lu}?[\p{Ll}\p{Lo}\p{M}]+|\p{Lu}+(?!\p{Ll})|\p{N}+/gu;

/** The parts between dots, hyphens and underscores, and the words within a part. */
function idWords(id: string): Set<string> {
  const words = new Set<string>();
  for (const part of id.split(separators)) {
    if (part === '') continue;
    words.add(part.toLowerCase());
    for (const word of part.match(humps) ?? []) words.add(word.toLowerCase());
  }
  return words;
}

/** The rest of each part from each of its words on: `frameworkcore` and `core` of `EntityFrameworkCore`. */
function joinedWords(id: string): string[] {
  return id
    .split(separators)
    .flatMap((part) => [...part.matchAll(humps)].map(({ index }) => part.slice(index).toLowerCase()));
}
