import type { Database, Value } from '../../database/database.ts';
import { lastCharacter, sizeLimit } from './list.ts';
import { idTermStart } from '../format/terms.ts';
import { Recent } from '../../runtime/recent.ts';

/** Rows of an index, to count. */
export interface Counted {
  key: string;
  from: string;
  values: readonly Value[];
}

/** Id terms that a word stands for. */
const maxTerms = 16;
/** Id terms that begin with a word, as they are stored. */
interface IdTerms {
  /** Terms of many packages: each is read in the order of the index. */
  frequent: string[];
  /** Terms with fewer than `frequentRows` packages each: all are read together, and sorted. */
  rare: string[];
  /** Whether these are all id terms that begin with the word. */
  isComplete: boolean;
}

const frequentRows = 20;
/** Rows that one statement reads to find different id terms; there are fewer than `maxTerms` statements. */
const rowsAtATime = 200;

/** What the index has for a word: the number of its rows, and the id terms that begin with it. Up to a minute old. */
export class IndexSizes {
  readonly #database: Database;
  readonly #sizes = new Recent<string, number>(20_000, { ttl: 60_000 });
  readonly #terms = new Recent<string, IdTerms>(2000, { ttl: 60_000 });

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

  /** Id terms that begin with `word`: the word itself, then the others in order, up to `maxTerms` together. */
  async idTerms(accountId: number, word: string): Promise<IdTerms> {
    const key = `${accountId} ${word}`;
    const known = this.#terms.get(key);
    if (known) return known;
    const start = idTermStart(word);
    const terms: IdTerms = { frequent: [start], rare: [], isComplete: false };
    for (let after = start, left = maxTerms - 1; left > 0;) {
      const rows = await this.#database.select<{ term: string }>(
        'SELECT term FROM package_terms WHERE account_id = ? AND term > ? AND term < ? ORDER BY term LIMIT ?',
        [accountId, after, start + lastCharacter, rowsAtATime],
      );
      const counts = new Map<string, number>();
      for (const { term } of rows) counts.set(term, (counts.get(term) ?? 0) + 1);
      const found = [...counts];
      // The rows of the last term may go on: the next statement counts them, unless they are many already.
      if (rows.length === rowsAtATime && found.length > 1) found.pop();
      for (const [term, rows] of found.slice(0, left)) (rows >= frequentRows ? terms.frequent : terms.rare).push(term);
      left -= found.length;
      if (rows.length < rowsAtATime) {
        terms.isComplete = left >= 0;
        break;
      }
      after = found.at(-1)![0];
    }
    this.#terms.set(key, terms);
    return terms;
  }
}
