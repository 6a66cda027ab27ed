import { placeholders, type Value } from '../database/database.ts';
import { DomainError } from '../errors.ts';

/** What names belong to: package ids, and names of image repositories. */
export type NameKind = 'package' | 'container';

/** The names that a token is narrowed to, as they were given. A kind that is left out is closed. */
export interface Patterns {
  packages?: readonly string[] | undefined;
  containers?: readonly string[] | undefined;
}

/** Patterns of one kind, and characters of one pattern. */
export const mostPatterns = 50;
export const longestPattern = 255;
const shape = /^[^\s,\\\p{Cc}]+$/u;

/**
 * Names that match one of some patterns, in which `*` stands for any characters and letter case does not count. Made
 * once for each principal: matching makes nothing anew, and takes time in proportion to the lengths of pattern and
 * name.
 */
export class NameSet {
  readonly #exact: ReadonlySet<string>;
  /** What stands between the stars of each other pattern. */
  readonly #parts: readonly (readonly string[])[];

  constructor(patterns: readonly string[]) {
    const lowered = patterns.map((pattern) => pattern.toLowerCase());
    this.#exact = new Set(lowered.filter((pattern) => !pattern.includes('*')));
    this.#parts = lowered.filter((pattern) => pattern.includes('*')).map((pattern) => pattern.split('*'));
  }

  /** Whether no name is among them. */
  get isEmpty(): boolean {
    return this.#exact.size === 0 && this.#parts.length === 0;
  }

  /** Whether `name`, in lower case, is among them; any other spelling is not. */
  includes(name: string): boolean {
    if (this.#exact.has(name)) return true;
    for (const parts of this.#parts) if (matches(parts, name)) return true;
    return false;
  }

  /** Whether every name that one of `patterns` matches is among them, as far as the texts show it. */
  covers(patterns: readonly string[]): boolean {
    // No pattern matches a star as a character except by a star, which then matches any text in its place too.
    return patterns.every((pattern) => this.includes(pattern.toLowerCase()));
  }

  /** A condition for rows whose `column`, in lower case, is among them. */
  where(column: string): { sql: string; values: Value[] } {
    const exact = [...this.#exact];
    const like = this.#parts.map((parts) => parts.map((part) => part.replace(/[!%_]/g, '!$&')).join('%'));
    const conditions = [
      ...(exact.length > 0 ? [`${column} IN (${placeholders(exact)})`] : []),
      ...like.map(() => `${column} LIKE ? ESCAPE '!'`),
    ];
    return { sql: `(${conditions.join(' OR ') || '1 = 0'})`, values: [...exact, ...like] };
  }
}

/** The leftmost place for each part is as good as any: no other place has to be tried. */
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

/** The sets of a token that is narrowed; the kind without patterns is empty, which closes it. */
export type Names = Readonly<Record<NameKind, NameSet>>;

export function namesOf({ packages = [], containers = [] }: Patterns): Names {
  return { package: new NameSet(packages), container: new NameSet(containers) };
}

/** Checked patterns; null for a token that is not narrowed. Throws `Invalid`. */
export function parsePatterns(given: Patterns | null | undefined): Patterns | null {
  if (!given) return null;
  const { packages, containers } = given;
  for (const patterns of [packages, containers]) {
    for (const pattern of patterns ?? []) {
      if (pattern.length <= longestPattern && shape.test(pattern)) continue;
      throw new DomainError(
        'Invalid',
        `A pattern has 1 to ${longestPattern} characters without spaces, commas or backslashes, such as "Contoso.*" or "team/*".`,
      );
    }
    if ((patterns?.length ?? 0) > mostPatterns) {
      throw new DomainError('Invalid', `A token has at most ${mostPatterns} patterns of each kind.`);
    }
  }
  if (!packages?.length && !containers?.length) {
    throw new DomainError('Invalid', 'Name at least one pattern, or leave the patterns out.');
  }
  return { ...(packages?.length && { packages }), ...(containers?.length && { containers }) };
}
