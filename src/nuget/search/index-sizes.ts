import { LRUCache } from 'lru-cache';
import type { Database, Value } from '../../database/database.ts';
import { lastCharacter, sizeLimit } from './list.ts';
import { idTermStart } from './terms.ts';

/** Rows of an index, to count. */
export interface Counted {
  key: string;
  from: string;
  values: readonly Value[];
}

/** Id terms that a word stands for. */
const mostTerms = 16;
/** Rows that one statement reads to find different id terms; there are at most `mostTerms` statements. */
const rowsAtATime = 200;

/** What the index has for a word: the number of its rows, and the id terms that begin with it. Up to a minute old. */
export class IndexSizes {
  readonly #database: Database;
  readonly #sizes = new LRUCache<string, number>({ max: 20_000, ttl: 60_000 });
  readonly #terms = new LRUCache<string, readonly string[]>({ max: 2000, ttl: 60_000 });

  constructor(database: Database) {
    this.#database = database;
  }

  /** The number of rows of each, up to `sizeLimit`. */
  async sizesOf(counted: readonly Counted[]): Promise<number[]> {
    const missing = counted.filter(({ key }) => !this.#sizes.has(key));
    if (missing.length > 0) {
      const counts = missing.map(
        ({ from }, index) =>
          `(SELECT COUNT(*) FROM (SELECT 1 AS one FROM ${from} LIMIT ${sizeLimit}) AS c${index}) AS size${index}`,
      );
      const sizes = await this.#database.get<Record<string, number>>(
        `SELECT ${counts.join(', ')}`,
        missing.flatMap(({ values }) => values),
      );
      missing.forEach(({ key }, index) => this.#sizes.set(key, sizes![`size${index}`]));
    }
    return counted.map(({ key }) => this.#sizes.get(key) ?? sizeLimit);
  }

  /** Id terms that begin with `word`, as they are stored: the word itself, then the others in order, up to `mostTerms`. */
  async idTerms(accountId: number, word: string): Promise<readonly string[]> {
    const key = `${accountId} ${word}`;
    const known = this.#terms.get(key);
    if (known) return known;
    const start = idTermStart(word);
    const terms = [start];
    for (let step = 0; step < mostTerms && terms.length < mostTerms; step += 1) {
      const rows = await this.#database.select<{ term: string }>(
        'SELECT term FROM package_terms WHERE account_id = ? AND term > ? AND term < ? ORDER BY term LIMIT ?',
        [accountId, terms.at(-1)!, start + lastCharacter, rowsAtATime],
      );
      terms.push(...new Set(rows.map(({ term }) => term)));
      if (rows.length < rowsAtATime) break;
    }
    const some = terms.slice(0, mostTerms);
    this.#terms.set(key, some);
    return some;
  }
}
