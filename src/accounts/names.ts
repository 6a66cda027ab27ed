import { placeholders, type Value } from '../database/database.ts';
import { pluralOf } from '../config/protocols.ts';
import { DomainError } from '../runtime/errors.ts';
import { Recent } from '../runtime/recent.ts';

/** A kind of names, such as package IDs. Each protocol has one. */
export type NameKind = string;

/**
 * The name patterns of a token by the plural of their kind, as the user wrote them. Without patterns of a kind, no name of that
 * kind is allowed.
 */
export type Patterns = Readonly<Record<string, readonly string[] | undefined>>;

/** Most patterns of one kind, and most characters of one pattern. */
export const maxPatterns = 50;
export const maxPatternLength = 255;
/** Results of a set with many patterns that are kept, and the patterns with a star from which on a set has many. */
const maxKnown = 2000;
const many = 20;
/** Conditions that SQL joins at one level: SQLite has a bound for the depth. */
const maxJoined = 200;
const patternFormat = /^[^\s,\\\p{Cc}]+$/u;

/**
 * The names that match at least one pattern. `*` stands for any characters, and letter case does not count. Built once
 * for each principal. A match takes time in proportion to the lengths of pattern and name.
 */
export class NameSet {
  readonly #exact: ReadonlySet<string>;
  /** The texts between the stars of each pattern with a star. */
  readonly #parts: readonly (readonly string[])[];
  readonly #within: NameSet | undefined;
  readonly #known: Recent<string, boolean> | undefined;

  /** With `within`, only names that match there, too. */
  constructor(patterns: readonly string[], within?: NameSet) {
    const lowered = patterns.map((pattern) => pattern.toLowerCase());
    this.#exact = new Set(lowered.filter((pattern) => !pattern.includes('*')));
    this.#parts = lowered.filter((pattern) => pattern.includes('*')).map((pattern) => pattern.split('*'));
    this.#within = within;
    this.#known = this.#parts.length < many ? undefined : new Recent(maxKnown);
  }

  /** Whether no name matches. */
  get isEmpty(): boolean {
    return (this.#exact.size === 0 && this.#parts.length === 0) || this.#within?.isEmpty === true;
  }

  /** Whether `name`, which must be in lower case, matches. */
  includes(name: string): boolean {
    if (this.#within && !this.#within.includes(name)) return false;
    if (this.#exact.has(name)) return true;
    let matching = this.#known?.get(name);
    if (matching === undefined) {
      matching = this.#parts.some((parts) => matches(parts, name));
      this.#known?.set(name, matching);
    }
    return matching;
  }

  /**
   * Whether every name that matches one of `patterns` also matches here. May return false where this is hard to see.
   */
  covers(patterns: readonly string[]): boolean {
    // A pattern can match the character `*` only with its own star, which then also matches any text in its place.
    return patterns.every((pattern) => this.includes(pattern.toLowerCase()));
  }

  /** An SQL condition for rows whose `column`, in lower case, matches. */
  where(column: string): { sql: string; values: Value[] } {
    const exact = [...this.#exact];
    const like = this.#parts.map((parts) => parts.map((part) => part.replace(/[!%_]/g, '!$&')).join('%'));
    const conditions = [
      ...(exact.length > 0 ? [`${column} IN (${placeholders(exact)})`] : []),
      ...like.map(() => `${column} LIKE ? ESCAPE '!'`),
    ];
    const sql = `(${joined(conditions) || '1 = 0'})`;
    const within = this.#within?.where(column);
    if (!within) return { sql, values: [...exact, ...like] };
    return { sql: `(${sql} AND ${within.sql})`, values: [...exact, ...like, ...within.values] };
  }
}

function joined(conditions: readonly string[]): string {
  const groups: string[] = [];
  for (let start = 0; start < conditions.length; start += maxJoined)
    groups.push(conditions.slice(start, start + maxJoined).join(' OR '));
  return groups.map((each) => `(${each})`).join(' OR ');
}

/** Whether a text matches `pattern`, in which `*` stands for any characters. Letter case counts. */
export function textMatcher(pattern: string): (text: string) => boolean {
  const parts = pattern.split('*');
  return parts.length === 1 ? (text) => text === pattern : (text) => matches(parts, text);
}

/** Tries only the leftmost position of each part: if any position leads to a match, the leftmost one does too. */
function matches(parts: readonly string[], name: string): boolean {
  const first = parts[0]!;
  const last = parts.at(-1)!;
  const end = name.length - last.length;
  if (end < first.length || !name.startsWith(first) || !name.endsWith(last)) return false;
  let at = first.length;
  for (let index = 1; index < parts.length - 1; index += 1) {
    const part = parts[index]!;
    const found = name.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

/** The names of a limited token, or of rights. */
export class Names {
  readonly #sets: ReadonlyMap<string, NameSet>;

  /** With `within`, only names that are allowed there, too. */
  constructor(patterns: Patterns, within?: Names) {
    const setOf = (plural: string, some: readonly string[]) =>
      new NameSet(some, within && (within.#sets.get(plural) ?? none));
    this.#sets = new Map(Object.entries(patterns).map(([plural, some = []]) => [plural, setOf(plural, some)]));
  }

  /** Those of a kind: none if the token has no patterns of that kind. */
  of(kind: NameKind): NameSet {
    return this.#sets.get(pluralOf(kind)) ?? none;
  }

  /** Whether every name that matches one of `patterns` is allowed, too. May return false where this is hard to see. */
  covers(patterns: Patterns): boolean {
    return Object.entries(patterns).every(([plural, some = []]) => (this.#sets.get(plural) ?? none).covers(some));
  }
}

const none = new NameSet([]);

/** The patterns of all lists together, by the plural of their kind. */
export function mergedPatterns(lists: readonly (Patterns | null)[]): Patterns {
  const merged: Record<string, string[]> = {};
  for (const each of lists)
    for (const [plural, some = []] of Object.entries(each ?? {})) (merged[plural] ??= []).push(...some);
  return merged;
}

/** Checks the patterns of a token; null for a token without limits. Throws `Invalid`. */
export function parsePatterns(given: Patterns | null | undefined): Patterns | null {
  if (!given) return null;
  const chosen = Object.entries(given).filter(([, patterns]) => patterns?.length);
  for (const [, patterns = []] of chosen) {
    for (const pattern of patterns) {
      if (pattern.length <= maxPatternLength && patternFormat.test(pattern)) continue;
      throw new DomainError(
        'Invalid',
        `A pattern has 1 to ${maxPatternLength} characters without spaces, commas or backslashes, such as "Contoso.*" or "team/*".`,
      );
    }
    if (patterns.length > maxPatterns) {
      throw new DomainError('Invalid', `A token has at most ${maxPatterns} patterns of each kind.`);
    }
  }
  if (chosen.length === 0) {
    throw new DomainError('Invalid', 'Give at least one pattern, or no patterns at all to allow all names.');
  }
  return Object.fromEntries(chosen);
}
