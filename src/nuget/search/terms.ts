import type { VersionMetadata } from '../format/metadata.ts';

/** Where a term was found: bits of `package_terms.fields`. */
export const field = { id: 1, title: 2, tags: 4, author: 8, owner: 16, text: 32, type: 64 } as const;

/** A word under which a package is found. */
export interface Term {
  term: string;
  tier: Tier;
  /** Bits of `field`. */
  fields: number;
}

/** How much a word says of a package: the order of search results before downloads. */
export const tier = { startOfId: 1, name: 2, mention: 3 } as const;
export type Tier = (typeof tier)[keyof typeof tier];

/** One tier's share of the numbers of `package_terms.standing`. */
export const tierWidth = 1000;
/** The standing of a package without downloads; more downloads lower it, to 0 at most. */
export const lowestStanding = 63;

const maxTermLength = 100;
/** Words that are indexed of each of title, tags, authors, owners and description. */
const maxWords = 64;
const commonWords = new Set(
  'a an and are as at be by can for from has in into is it its of on or that the this to use used using with you your'.split(
    ' ',
  ),
);

/**
 * The place of a package with so many downloads among those that match as well: lower comes first. Exact up to 4, then
 * two steps for each doubling, so that counting a download seldom moves anything.
 */
export function standingOf(downloads: number): number {
  if (downloads < 4) return lowestStanding - Math.max(0, Math.floor(downloads));
  const exponent = Math.floor(Math.log2(downloads));
  const half = downloads >= 1.5 * 2 ** exponent ? 1 : 0;
  return Math.max(0, lowestStanding - (4 + (exponent - 2) * 2 + half));
}

/** The words in `text`, in lower case, in order: runs of letters and digits (`c#` and `c++` too). */
export function wordsOf(text: string): string[] {
  return (text.toLowerCase().match(/[\p{L}\p{M}\p{N}]+(?:#|\+\+)?/gu) ?? []).map((word) =>
    word.slice(0, maxTermLength),
  );
}

/** Whether a word is too common to tell packages apart. */
export function isCommonWord(word: string): boolean {
  return commonWords.has(word);
}

/** Bits of `flags` for the package types that most searches for a type are for. */
const commonTypes: Readonly<Record<string, number>> = { dependency: 16, dotnettool: 32, template: 64 };

/** The bit of `flags` of a common package type. */
export function typeFlag(name: string): number | undefined {
  return commonTypes[name.toLowerCase()];
}

/** The bits of the common ones among these package types. */
export function typeFlags(types: readonly { name: string }[]): number {
  return types.reduce((bits, { name }) => bits | (typeFlag(name) ?? 0), 0);
}

/** The term of a package type: no word of a text looks like it. `Dependency` has none, because nearly all have it. */
export function typeTerm(name: string): string | undefined {
  const key = name.toLowerCase();
  return key === 'dependency' ? undefined : `#${key}`.slice(0, maxTermLength);
}

/** Every term of a package, each once. */
export function termsOf(metadata: VersionMetadata): Term[] {
  const key = metadata.id.toLowerCase();
  const terms = new Map<string, Term>();
  const add = (words: readonly string[], from: Tier, bit: number) => {
    for (const term of [...new Set(words)].slice(0, maxWords)) {
      const known = terms.get(term);
      const best = known && known.tier < from ? known.tier : from;
      // Wherever the word is from: a search for it finds the package by the start of its id.
      terms.set(term, { term, tier: key.startsWith(term) ? tier.startOfId : best, fields: (known?.fields ?? 0) | bit });
    }
  };
  add([...idWords(metadata.id)], tier.name, field.id);
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
    tier.startOfId,
    field.type,
  );
  return [...terms.values()];
}

/** The parts between dots, hyphens and underscores, and the words that capitals set off in them. */
function idWords(id: string): Set<string> {
  const words = new Set<string>();
  for (const part of id.split(/[._-]+/)) {
    if (part === '') continue;
    words.add(part.toLowerCase());
    for (const word of part.match(/\p{Lu}?[\p{Ll}\p{Lo}\p{M}]+|\p{Lu}+(?!\p{Ll})|\p{N}+/gu) ?? [])
      words.add(word.toLowerCase());
  }
  return words;
}
