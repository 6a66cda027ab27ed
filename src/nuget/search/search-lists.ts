import type { AccountList } from '../../accounts/shared-names.ts';
import { placeholders, type Database } from '../../database/database.ts';
import { IndexSizes } from './index-sizes.ts';
import {
  all,
  anywhere,
  idColumn,
  inId,
  lastCharacter,
  notInId,
  ListMaker,
  sizeLimit,
  sortLimit,
  valuesOf,
  type CompleteWord,
  type List,
  type SqlPart,
  type Source,
} from './list.ts';
import type { SearchQuery, SearchWord } from './search-query.ts';
import { field, idTermStart, lowestStanding, tier, tierWidth } from '../format/terms.ts';

/** Packages in one order, from one or several lists. */
export interface Group {
  /** Their packages together are the group; a package may be in several. */
  pages: readonly List[];
  /** The same packages, each in one list only, to count them. */
  counts: readonly List[];
}

const standings = Array.from({ length: lowestStanding + 1 }, (_, standing) => standing).join(', ');

interface Sized {
  words: SizedWord[];
  /** The words that are not in the free text; the rarest first. */
  filters: SizedWord[];
  /** A bit of `flags` that must be set as well. */
  flag: number | undefined;
  /** The number of packages whose id starts with the text, up to `sizeLimit`. */
  start: number;
}

interface SizedWord extends SearchWord {
  /** The number of packages with this word, up to `sizeLimit`. */
  size: number;
  /** The number of id terms that begin with this word, up to `sizeLimit`. */
  idSize: number;
}

/** Makes the lists of a search. docs/performance.md compares them with a plain intersection of the words. */
export class SearchLists {
  readonly #database: Database;
  readonly #sizes: IndexSizes;

  constructor(database: Database) {
    this.#database = database;
    this.#sizes = new IndexSizes(database);
  }

  /**
   * The hits for `query`, in groups: the package with that id, then packages whose id starts with the text, then
   * packages whose id has all words, then packages with all words. No package is in two groups, and each group is
   * ordered by downloads. `view` is the client's bit of `flags`. Ids that the list leaves out are not found.
   */
  async of({ accountId, ...those }: AccountList, query: SearchQuery, view: number): Promise<Group[]> {
    if (query.hopeless) return [];
    const { idStart, ids, versions, frameworks } = query;
    const sized = await this.#sized(accountId, query);
    const { words, filters, flag } = sized;
    const somewhere = (word: SearchWord) => anywhere(accountId, word);
    const make = new ListMaker({ accountId, view, versions, frameworks, flag, ...those });
    if (ids.length > 0) {
      const chosen = { sql: `p.package_key IN (${placeholders(ids)})`, values: ids };
      const list = make.packages([chosen, ...words.map(query.idOnly ? inId : somewhere)], filters);
      return [alone({ ...list, index: 'packages_key' })];
    }
    if (idStart === undefined) {
      const [rarest, ...others] = filters;
      if (rarest) return [alone(make.terms(having(rarest), others))];
      return [alone({ ...make.packages([], [], sized.start), index: 'packages_standing' })];
    }

    const end = idStart + lastCharacter;
    const same = { sql: 'p.package_key = ?', values: [idStart] };
    const exact: List = { ...make.packages([same], filters), index: 'packages_key' };
    const starting = { sql: 'p.package_key > ? AND p.package_key < ?', values: [idStart, end] };
    const start: List = { ...make.packages([starting], filters, sized.start), index: 'packages_key' };
    if (sized.start >= sortLimit) {
      start.index = 'packages_standing';
      start.inOrder = { sql: `p.standing IN (${standings})`, values: [] };
    }
    const groups = [alone(exact), alone(start)];
    if (words.length === 0) return groups;
    const named = await this.#named(accountId, make, sized, idStart);
    return query.idOnly
      ? [...groups, named]
      : [...groups, named, await this.#mentioning(accountId, make, sized, idStart)];
  }

  /**
   * Packages whose id has all words, and does not start with the text. Beside other words, a word that is complete in
   * many packages must be complete: to check the starts of their id terms needs each package's row.
   */
  async #named(accountId: number, make: ListMaker, sized: Sized, idStart: string): Promise<Group> {
    const { words, filters } = sized;
    const first = rarestOf(words, ({ size, idSize }) => idSize + size / sizeLimit);
    const where = elsewhere(sized, idStart);
    const [filter, ...rest] = filters;
    if (filter && !isFrequent(filter) && filter.size < first.idSize) {
      return alone(make.terms(having(filter), rest, { where, rows: words.map(inId) }));
    }
    const others = words.filter((each) => each !== first);
    if (first.idSize < sortLimit) {
      return alone(make.terms(beginning(first), filters, { where, rows: others.map(inId) }));
    }
    const complete = others.filter(isFrequent).map((each): CompleteWord => ({ ...each, isInId: true }));
    const rows = others.filter((each) => !isFrequent(each)).map(inId);
    if (others.length > 0 && isFrequent(first)) {
      const source = having(first, ` AND t0.standing < ${notInId}`);
      return alone(make.terms(source, [...complete, ...filters], { where, rows }));
    }
    return this.#byId(accountId, first, isAll(words, idStart), (source, lists, isAfterStart) =>
      make.terms(source, [...complete, ...filters], { where: isAfterStart ? [] : where, rows, lists }),
    );
  }

  /**
   * Packages with all words, at least one of them not in the id. If all words are frequent, only the rarest one may be
   * the start of an id term in a package whose other words are complete.
   */
  async #mentioning(accountId: number, make: ListMaker, sized: Sized, idStart: string): Promise<Group> {
    const { words, filters } = sized;
    const somewhere = (word: SearchWord) => anywhere(accountId, word);
    const where = isAll(words, idStart) ? [] : elsewhere(sized, idStart);
    const rarest = rarestOf(words, ({ size, idSize }) => size + idSize);
    const [filter, ...rest] = filters;
    if (filter && !isFrequent(filter) && filter.size < rarest.size + rarest.idSize) {
      const rows = [...words.map(somewhere), notAll(words.map(inId))];
      return alone(make.terms(having(filter), rest, { where, rows }));
    }
    const areFrequent = rarest.size + rarest.idSize >= sortLimit;
    // A frequent start of id terms that is not a complete word has the smallest size.
    const first = areFrequent ? rarestOf(words, ({ size, idSize }) => size + idSize / sizeLimit) : rarest;
    const others = words.filter((each) => each !== first);
    const mentions = others.length;
    if (others.length > 0 && isFrequent(first)) {
      return alone(make.terms(having(first), [...others, ...filters], { where, mentions }));
    }
    const outside = having(first, ` AND t0.standing >= ${notInId}`);
    const mentioned = make.terms(outside, filters, { where, rows: others.map(somewhere) });
    if (others.length === 0) return alone(mentioned);
    if (!areFrequent) {
      const rows = [...others.map(somewhere), notAll(others.map(inId))];
      const named = make.terms(beginning(first), filters, { where, rows });
      return { pages: [mentioned, named], counts: [mentioned, named] };
    }
    const { pages, counts } = await this.#byId(accountId, first, false, (source, lists) =>
      make.terms(source, [...others, ...filters], { where, mentions, lists }),
    );
    return { pages: [mentioned, ...pages], counts: [mentioned, ...counts] };
  }

  /**
   * The lists of packages with id terms that begin with a frequent word. `isAfterStart`: the word is the whole text, so
   * packages with the word at the start of the id are left out; only longer terms need the id to be checked.
   */
  async #byId(
    accountId: number,
    word: SizedWord,
    isAfterStart: boolean,
    listOf: (source: Source, lists: number, isAfterStart: boolean) => List,
  ): Promise<Group> {
    const { term, idSize: size } = word;
    const only = isAfterStart ? ` AND t0.standing >= ${tier.id * tierWidth}` : '';
    const { frequent, rare, isComplete } = await this.#sizes.idTerms(accountId, term);
    const lists = frequent.length + 1;
    const pages = frequent.map((each) => {
      const where = { sql: `t0.term = ?${only}`, values: [each] };
      return listOf({ where, size, repeats: false }, lists, isAfterStart && each === idTermStart(term));
    });
    // The terms are not all that begin with the word. Packages with the complete word are all found.
    if (!isComplete) pages.push(listOf(having(word, `${only} AND t0.standing < ${notInId}`), lists, isAfterStart));
    if (rare.length > 0) {
      const where = { sql: `t0.term IN (${placeholders(rare)})${only}`, values: rare };
      pages.push(listOf({ where, size, repeats: true }, lists, false));
    }
    return { pages, counts: [listOf(beginning(word, only), 1, false)] };
  }

  /**
   * SQL for the first packages of a list, as `id` and `standing`. The last placeholder is their number. `most`: rows of
   * the list's own table that are read, if `list.scanned` is more.
   */
  page(list: List, most: number): SqlPart {
    const own = list.inOrder ? [...list.own, list.inOrder] : list.own;
    const id = idColumn(list.as);
    const standing = list.repeats ? `MIN(${list.as}.standing)` : `${list.as}.standing`;
    const once = list.repeats ? `GROUP BY ${id}` : '';
    const order = list.as === 'p' ? 'p.standing, p.package_key' : `${standing}, t0.package_row`;
    const select = `SELECT ${id} AS id, ${standing} AS standing FROM`;
    if (list.scanned !== undefined) {
      const columns =
        list.as === 'p' ? 'p.id, p.package_key, p.standing, p.flags' : 't0.package_row, t0.standing, t0.flags';
      const some = `SELECT ${columns} FROM ${this.#tables({ ...list, joins: [] }, list.index)}
        WHERE ${all(own)} ORDER BY ${order} LIMIT ${Math.min(list.scanned, most)}`;
      // Both databases read these rows in their order, and stop at the limit. With a second ORDER BY they read all rows.
      const where = list.also.length > 0 ? `WHERE ${all(list.also)}` : '';
      const sql = `${select} (${some}) AS ${list.as} ${this.#joins(list)} ${where} LIMIT ?`;
      return { sql, values: valuesOf([...own, ...list.joins, ...list.also]) };
    }
    const sql = `${select} ${this.#tables(list, list.index)}
      WHERE ${all([...own, ...list.also])} ${once} ORDER BY ${order} LIMIT ?`;
    return { sql, values: valuesOf([...list.joins, ...own, ...list.also]) };
  }

  /** SQL for the number of hits among the first `end` + `counted` rows of a list. */
  count(list: List, end: number): SqlPart {
    const index = list.as === 'p' ? 'packages_key' : list.index;
    const rows = this.#tables({ ...list, joins: [] }, index);
    const columns = list.as === 'p' ? 'p.id, p.package_key, p.flags' : 't0.package_row, t0.standing, t0.flags';
    const some = `SELECT ${columns} FROM ${rows} WHERE ${all(list.own)} LIMIT ${Math.min(end + list.counted, list.scanned ?? Infinity)}`;
    const where = list.also.length > 0 ? `WHERE ${all(list.also)}` : '';
    const hits = list.repeats ? `DISTINCT ${idColumn(list.as)}` : '*';
    return {
      sql: `SELECT COUNT(${hits}) FROM (${some}) AS ${list.as} ${this.#joins(list)} ${where}`,
      values: valuesOf([...list.own, ...list.joins, ...list.also]),
    };
  }

  /** The words of `query` with their sizes, which decide the order in which tables are read. */
  async #sized(accountId: number, query: SearchQuery): Promise<Sized> {
    const { idStart = '', type } = query;
    const typed = type?.term === undefined ? [] : [{ term: type.term, fields: field.type }];
    const filters = [...query.filters, ...typed];
    const counted = [...query.words, ...filters].map(({ term }) => ({
      key: `${accountId} ${term}`,
      from: 'package_terms WHERE account_id = ? AND term = ?',
      values: [accountId, term],
    }));
    const starts = query.words.map(({ term }) => idTermStart(term));
    const [start = 0, ...sizes] = await this.#sizes.sizesOf([
      {
        key: `${accountId} ^${idStart}`,
        from: 'packages WHERE account_id = ? AND package_key >= ? AND package_key < ?',
        values: [accountId, idStart, idStart + lastCharacter],
      },
      ...counted,
      ...starts.map((term) => ({
        key: `${accountId} ${term}`,
        from: 'package_terms WHERE account_id = ? AND term >= ? AND term < ?',
        values: [accountId, term, term + lastCharacter],
      })),
    ]);
    const idSizes = sizes.slice(counted.length);
    const words = query.words.map((each, index) => ({ ...each, size: sizes[index]!, idSize: idSizes[index]! }));
    const sized = filters.map((each, index) => ({ ...each, size: sizes[words.length + index]!, idSize: 0 }));
    // A type that many packages have is checked by its flag; a rare type is looked up as a word.
    const byFlag = type?.flag !== undefined && (typed.length === 0 || sized.at(-1)!.size >= sortLimit);
    if (byFlag && typed.length > 0) sized.pop();
    return {
      words,
      filters: sized.toSorted((a, b) => a.size - b.size),
      flag: byFlag ? type.flag : undefined,
      start,
    };
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

function alone(list: List): Group {
  return { pages: [list], counts: [list] };
}

function rarestOf(words: readonly SizedWord[], sizeOf: (word: SizedWord) => number): SizedWord {
  return words.reduce((rarest, each) => (sizeOf(each) < sizeOf(rarest) ? each : rarest));
}

/** Whether the words are the whole text, so that the tier says which packages the start of their id finds. */
function isAll(words: readonly SearchWord[], idStart: string): boolean {
  return words.length === 1 && words[0]!.term === idStart;
}

/** Whether a list of the packages with the complete word is too long to check each package's row. */
function isFrequent({ size }: SizedWord): boolean {
  return size >= sortLimit;
}

/** The id terms that begin with this word; `only` is SQL of a further condition. */
function beginning({ term, idSize }: SizedWord, only = ''): Source {
  const start = idTermStart(term);
  const where = { sql: `t0.term >= ? AND t0.term < ?${only}`, values: [start, start + lastCharacter] };
  return { where, size: idSize, repeats: true };
}

/** The packages that have this word; `only` is SQL of a further condition. */
function having({ term, fields, size }: SizedWord, only = ''): Source {
  const where = { sql: `t0.term = ? AND (t0.fields & ?) <> 0${only}`, values: [term, fields] };
  return { where, size, repeats: false };
}

/** A condition on `p`: the id does not start with this text. Without it if no id does, because it reads each hit's row. */
function elsewhere({ start }: Sized, idStart: string): SqlPart[] {
  if (start === 0) return [];
  return [{ sql: '(p.package_key < ? OR p.package_key >= ?)', values: [idStart, idStart + lastCharacter] }];
}

function notAll(parts: readonly SqlPart[]): SqlPart {
  return { sql: `NOT (${all(parts)})`, values: valuesOf(parts) };
}
