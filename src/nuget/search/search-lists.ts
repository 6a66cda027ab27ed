import { LRUCache } from 'lru-cache';
import type { NameSet } from '../../accounts/names.ts';
import { placeholders, type Database, type Value } from '../../database/database.ts';
import type { SearchQuery, SearchWord } from './search-query.ts';
import { field, lowestStanding, tier, tierWidth } from './terms.ts';

/** SQL with the values of its placeholders. */
interface Part {
  sql: string;
  values: readonly Value[];
}

/**
 * An ordered list of packages. It is read from one table by one index (`packages` as p or `package_terms` as t0) and
 * joined with others, so that reading a page reads few rows more than the page.
 */
export interface List {
  as: 'p' | 't0';
  index?: string;
  /** Conditions on the rows of the list's own table. */
  own: readonly Part[];
  /** A condition that is always true, but makes the database read the index in order. */
  inOrder?: Part;
  /** Joined tables, each with at most one row for a package. */
  joins: readonly Part[];
  also: readonly Part[];
  /** Rows after the page that are read to count hits; 0 if the list is too long to count. */
  counted: number;
  /** Lower bound for the hits after the page, if they are not counted. */
  behind: number;
}

/** Counts of packages stop here: a larger number changes nothing. */
const sizeLimit = 1000;
/** Fewer packages than this are sorted; more are read in order from an index. */
const sortLimit = 500;
/** Rows after the page that are read to count hits: without joins, and with joins. */
const countLimit = 1000;
const lookupLimit = 250;
const standings = Array.from({ length: lowestStanding + 1 }, (_, standing) => standing).join(', ');
const lastCharacter = '\u{10ffff}';

interface Sized {
  /** The rarest word first: a list that starts from it reads the fewest packages. */
  words: SizedWord[];
  /** The words that are not in the free text. */
  filters: SearchWord[];
  /** A bit of `flags` that must be set as well. */
  flag: number | undefined;
  /** The number of packages whose id starts with the text, up to `sizeLimit`. */
  start: number;
}

interface SizedWord extends SearchWord {
  /** The number of packages with this word, up to `sizeLimit`. */
  size: number;
}

/** Makes the lists of a search. */
export class SearchLists {
  readonly #database: Database;
  /** Numbers of packages with a word or a start of the id, up to `sizeLimit`. Hints, so they may be a minute old. */
  readonly #sizes = new LRUCache<string, number>({ max: 20_000, ttl: 60_000 });

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * The lists of hits for `query`: the package with that id, then packages whose id starts with the text, then packages
   * with its words. No package occurs twice, and each list is ordered by downloads. `view` is the client's bit of
   * `flags`. With `only`, other ids are left out.
   */
  async of(accountId: number, query: SearchQuery, view: number, only?: NameSet): Promise<List[]> {
    if (query.hopeless) return [];
    const { idStart, words, ids } = query;
    const sized = await this.#sized(accountId, query);
    const make = new ListMaker({
      accountId,
      view,
      versions: query.versions,
      flag: sized.flag,
      among: only?.where('p.package_key'),
    });
    if (ids.length > 0) {
      return [make.packages([{ sql: `p.package_key IN (${placeholders(ids)})`, values: ids }], sized.words)];
    }
    if (idStart === undefined) {
      if (sized.words.length > 0) return [make.terms(sized.words)];
      return [{ ...make.packages([], [], sized.start), index: 'packages_standing' }];
    }

    const end = idStart + lastCharacter;
    const { filters } = sized;
    const exact = make.packages([{ sql: 'p.package_key = ?', values: [idStart] }], filters);
    const starting = { sql: 'p.package_key > ? AND p.package_key < ?', values: [idStart, end] };
    const start: List = { ...make.packages([starting], filters, sized.start), index: 'packages_key' };
    if (sized.start >= sortLimit) {
      start.index = 'packages_standing';
      start.inOrder = { sql: `p.standing IN (${standings})`, values: [] };
    }
    if (words.length === 0) return [exact, start];
    if (words.length === 1 && filters.length === 0 && words[0]!.term === idStart) {
      // A word at the start of the id has its own tier, and `start` has those packages already.
      const later = { sql: `t0.standing >= ${tier.name * tierWidth}`, values: [] };
      return [exact, start, make.terms(sized.words, [later])];
    }
    const elsewhere = { sql: '(p.package_key < ? OR p.package_key >= ?)', values: [idStart, end] };
    return [exact, start, make.terms(sized.words, [], elsewhere)];
  }

  /** SQL for the first packages of a list, as `id` and `standing`. The last placeholder is their number. */
  page(list: List): Part {
    const own = list.inOrder ? [...list.own, list.inOrder] : list.own;
    const order = list.as === 'p' ? 'p.standing, p.package_key' : 't0.standing, t0.package_row';
    const sql = `SELECT ${idOf(list.as)} AS id, ${list.as}.standing AS standing FROM ${this.#tables(list, list.index)}
      WHERE ${all([...own, ...list.also])} ORDER BY ${order} LIMIT ?`;
    return { sql, values: valuesOf([...list.joins, ...own, ...list.also]) };
  }

  /** SQL for the number of hits among the first `end` + `counted` rows of a list. */
  count(list: List, end: number): Part {
    const index = list.as === 'p' ? 'packages_key' : list.index;
    const rows = this.#tables({ ...list, joins: [] }, index);
    const columns = list.as === 'p' ? 'p.id, p.package_key, p.flags' : 't0.package_row, t0.flags';
    const some = `SELECT ${columns} FROM ${rows} WHERE ${all(list.own)} LIMIT ${end + list.counted}`;
    const where = list.also.length > 0 ? `WHERE ${all(list.also)}` : '';
    return {
      sql: `SELECT COUNT(*) FROM (${some}) AS ${list.as} ${this.#joins(list)} ${where}`,
      values: valuesOf([...list.own, ...list.joins, ...list.also]),
    };
  }

  /** The words of `query` with their sizes, which decide the order in which tables are read. */
  async #sized(accountId: number, query: SearchQuery): Promise<Sized> {
    const { idStart = '', type } = query;
    const typed = type?.term === undefined ? [] : [{ term: type.term, fields: field.type }];
    const words = [...query.words, ...query.filters, ...typed];
    const [start = 0, ...sizes] = await this.#sizesOf([
      {
        key: `${accountId} ^${idStart}`,
        from: 'packages WHERE account_id = ? AND package_key >= ? AND package_key < ?',
        values: [accountId, idStart, idStart + lastCharacter],
      },
      ...words.map(({ term }) => ({
        key: `${accountId} ${term}`,
        from: 'package_terms WHERE account_id = ? AND term = ?',
        values: [accountId, term],
      })),
    ]);
    const sizedWords = words.map((each, index) => ({ ...each, size: sizes[index]! }));
    // A type that many packages have is checked by its flag; a rare type is looked up as a word.
    const byFlag = type?.flag !== undefined && (typed.length === 0 || sizedWords.at(-1)!.size >= sortLimit);
    if (byFlag && typed.length > 0) sizedWords.pop();
    return {
      words: sizedWords.toSorted((a, b) => a.size - b.size),
      filters: byFlag ? query.filters : [...query.filters, ...typed],
      flag: byFlag ? type.flag : undefined,
      start,
    };
  }

  async #sizesOf(counted: readonly { key: string; from: string; values: readonly Value[] }[]): Promise<number[]> {
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

  /** Forces the join order and the index, because the query planner does not know these sizes. */
  #tables(list: List, index: string | undefined): string {
    const table = list.as === 'p' ? 'packages AS p' : 'package_terms AS t0';
    const hint = this.#database.dialect === 'sqlite' ? `INDEXED BY ${index}` : `FORCE INDEX (${index})`;
    return `${table} ${index === undefined ? '' : hint} ${this.#joins(list)}`;
  }

  #joins({ joins }: List): string {
    const join = this.#database.dialect === 'sqlite' ? 'CROSS JOIN' : 'STRAIGHT_JOIN';
    return joins.map(({ sql }) => sql.replace(/^JOIN/, join)).join(' ');
  }
}

interface View {
  accountId: number;
  /** The client's bit of `flags`. */
  view: number;
  versions: readonly string[];
  flag: number | undefined;
  /** The condition on `p` for the packages that the client may see. */
  among: Part | undefined;
}

/** Makes lists of one account for one client. */
class ListMaker {
  readonly #view: View;

  constructor(view: View) {
    this.#view = view;
  }

  /** Packages that fulfil these conditions and have these words. */
  packages(own: readonly Part[], words: readonly SearchWord[], size = 0): List {
    const { accountId, view, among } = this.#view;
    const mine = { sql: 'p.account_id = ? AND (p.flags & ?) <> 0', values: [accountId, view] };
    return this.#list('p', [mine, ...own, ...(among ? [among] : [])], words, [], size);
  }

  /** Packages with these words, ordered by the tiers of the first word. `where` is a condition on `p`. */
  terms([first, ...others]: readonly SizedWord[], own: readonly Part[] = [], where?: Part): List {
    const { accountId, view, among } = this.#view;
    const mine = {
      sql: 't0.account_id = ? AND t0.term = ? AND (t0.flags & ?) <> 0 AND (t0.fields & ?) <> 0',
      values: [accountId, first!.term, view, first!.fields],
    };
    const conditions = [where, among].filter((each) => each !== undefined);
    const join = {
      sql: `JOIN packages p ON p.id = t0.package_row AND ${all(conditions)}`,
      values: valuesOf(conditions),
    };
    const joins = conditions.length > 0 ? [join] : [];
    return { ...this.#list('t0', [mine, ...own], others, joins, first!.size), index: 'package_terms_standing' };
  }

  #list(
    as: List['as'],
    own: readonly Part[],
    words: readonly SearchWord[],
    joins: readonly Part[],
    size: number,
  ): List {
    const { accountId, flag, versions, among } = this.#view;
    const wordJoins = words.map(({ term, fields }, index) => ({
      sql: `JOIN package_terms w${index} ON w${index}.account_id = ? AND w${index}.term = ?
        AND w${index}.package_row = ${idOf(as)} AND (w${index}.fields & ?) <> 0`,
      values: [accountId, term, fields],
    }));
    const also: Part[] = [];
    if (flag !== undefined) also.push({ sql: `(${as}.flags & ?) <> 0`, values: [flag] });
    if (versions.length > 0) {
      also.push({
        sql: `EXISTS (SELECT 1 FROM package_versions v WHERE v.package_row = ${idOf(as)} AND v.listed = 1
          AND v.version_key IN (${placeholders(versions)}))`,
        values: versions,
      });
    }
    const looked = words.length + joins.length + versions.length > 0;
    const counted = looked ? lookupLimit : countLimit;
    // If the client sees only some packages, the size of the list says nothing about the hits.
    const endless = size >= sizeLimit && flag === undefined && !among;
    return {
      as,
      own,
      joins: [...wordJoins, ...joins],
      also,
      counted: endless ? 0 : counted,
      behind: looked ? 0 : countLimit,
    };
  }
}

function idOf(as: List['as']): string {
  return as === 'p' ? 'p.id' : 't0.package_row';
}

function all(parts: readonly Part[]): string {
  return parts.map(({ sql }) => sql).join(' AND ');
}

function valuesOf(parts: readonly Part[]): Value[] {
  return parts.flatMap(({ values }) => values);
}
