import type { NameSet } from '../../accounts/names.ts';
import { placeholders, type Database } from '../../database/database.ts';
import { IndexSizes } from './index-sizes.ts';
import {
  all,
  anywhere,
  idOf,
  inId,
  lastCharacter,
  ListMaker,
  sizeLimit,
  sortLimit,
  valuesOf,
  type List,
  type Part,
  type Source,
} from './list.ts';
import type { SearchQuery, SearchWord } from './search-query.ts';
import { field, idTermStart, lowestStanding, tier, tierWidth } from './terms.ts';

/** Packages in one order, from one or several lists. */
export interface Group {
  /** Their packages together are the group; a package may be in several. */
  pages: readonly List[];
  /** The same packages, each in one list only, to count them. */
  counts: readonly List[];
}

const standings = Array.from({ length: lowestStanding + 1 }, (_, standing) => standing).join(', ');
/** Packages of a list that are checked for their frameworks: the most downloaded ones. */
const scanLimit = 10_000;

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

/** Makes the lists of a search. */
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
   * ordered by downloads. `view` is the client's bit of `flags`. With `only`, other ids are left out.
   */
  async of(accountId: number, query: SearchQuery, view: number, only?: NameSet): Promise<Group[]> {
    if (query.hopeless) return [];
    const { idStart, ids, versions, frameworks } = query;
    const sized = await this.#sized(accountId, query);
    const { words, filters, flag } = sized;
    const somewhere = (word: SearchWord) => anywhere(accountId, word);
    const make = new ListMaker({ accountId, view, versions, frameworks, flag, among: only });
    if (ids.length > 0) {
      const chosen = { sql: `p.package_key IN (${placeholders(ids)})`, values: ids };
      return [alone(make.packages([chosen, ...words.map(query.idOnly ? inId : somewhere)], filters))];
    }
    if (idStart === undefined) {
      const [rarest, ...others] = filters;
      if (rarest) return [alone(make.terms(having(rarest), others))];
      return [alone({ ...make.packages([], [], sized.start), index: 'packages_standing' })];
    }

    const end = idStart + lastCharacter;
    const exact = make.packages([{ sql: 'p.package_key = ?', values: [idStart] }], filters);
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

  /** Packages whose id has all words, and does not start with the text. */
  async #named(accountId: number, make: ListMaker, { words, filters }: Sized, idStart: string): Promise<Group> {
    const first = rarestOf(words, ({ idSize }) => idSize);
    const [filter, ...rest] = filters;
    if (filter && filter.size < first.idSize) {
      return alone(make.terms(having(filter), rest, [elsewhere(idStart), ...words.map(inId)]));
    }
    const others = words.filter((each) => each !== first).map(inId);
    return this.#byId(accountId, first, isAll(words, idStart), (source) =>
      make.terms(source, filters, [elsewhere(idStart), ...others]),
    );
  }

  /**
   * Packages with all words, at least one of them not in the id. If all words are frequent, only the rarest one may be
   * the start of an id term in a package whose other words are complete: to check the others needs each package's row.
   */
  async #mentioning(accountId: number, make: ListMaker, { words, filters }: Sized, idStart: string): Promise<Group> {
    const somewhere = (word: SearchWord) => anywhere(accountId, word);
    const rarest = rarestOf(words, ({ size, idSize }) => size + idSize);
    const areFrequent = rarest.size + rarest.idSize >= sortLimit;
    // A frequent start of id terms that is not a complete word has the smallest size.
    const first = areFrequent ? rarestOf(words, ({ size, idSize }) => size + idSize / sizeLimit) : rarest;
    const [filter, ...rest] = filters;
    if (filter && filter.size < rarest.size + rarest.idSize) {
      const where = [elsewhere(idStart), ...words.map(somewhere), notAll(words.map(inId))];
      return alone(make.terms(having(filter), rest, where));
    }
    const others = words.filter((each) => each !== first);
    const where = isAll(words, idStart) ? [] : [elsewhere(idStart)];
    const mentioned = areFrequent
      ? make.terms(having(first, notInId), [...filters, ...others], where)
      : make.terms(having(first, notInId), filters, [...where, ...others.map(somewhere)]);
    if (others.length === 0) return alone(mentioned);
    const { pages, counts } = await this.#byId(accountId, first, false, (source) =>
      make.terms(source, filters, [...where, ...others.map(somewhere), notAll(others.map(inId))]),
    );
    return { pages: [mentioned, ...pages], counts: [mentioned, ...counts] };
  }

  /** The lists of packages with id terms that begin with a word: one list, or several if they are many. */
  async #byId(
    accountId: number,
    word: SizedWord,
    isAfterStart: boolean,
    listOf: (source: Source) => List,
  ): Promise<Group> {
    const { term, idSize: size } = word;
    const only = isAfterStart ? ` AND t0.standing >= ${tier.id * tierWidth}` : '';
    const start = idTermStart(term);
    const range = { sql: `t0.term >= ? AND t0.term < ?${only}`, values: [start, start + lastCharacter] };
    const every = listOf({ where: range, size, repeats: true });
    if (size < sortLimit) return alone(every);
    const { frequent, rare } = await this.#sizes.idTerms(accountId, term);
    const pages = frequent.map((each) =>
      listOf({ where: { sql: `t0.term = ?${only}`, values: [each] }, size, repeats: false }),
    );
    // The terms are not all that begin with the word. Packages with the complete word are all found.
    pages.push(listOf(having(word, `${only} AND t0.standing < ${tier.name * tierWidth}`)));
    if (rare.length > 0) {
      const where = { sql: `t0.term IN (${placeholders(rare)})${only}`, values: rare };
      pages.push(listOf({ where, size, repeats: true }));
    }
    return { pages, counts: [every] };
  }

  /** SQL for the first packages of a list, as `id` and `standing`. The last placeholder is their number. */
  page(list: List): Part {
    const own = list.inOrder ? [...list.own, list.inOrder] : list.own;
    const id = idOf(list.as);
    const standing = list.repeats ? `MIN(${list.as}.standing)` : `${list.as}.standing`;
    const once = list.repeats ? `GROUP BY ${id}` : '';
    const order = list.as === 'p' ? 'p.standing, p.package_key' : `${standing}, t0.package_row`;
    const select = `SELECT ${id} AS id, ${standing} AS standing FROM`;
    if (list.isBounded) {
      const columns =
        list.as === 'p' ? 'p.id, p.package_key, p.standing, p.flags' : 't0.package_row, t0.standing, t0.flags';
      const some = `SELECT ${columns} FROM ${this.#tables({ ...list, joins: [] }, list.index)}
        WHERE ${all(own)} ORDER BY ${order} LIMIT ${scanLimit}`;
      const sql = `${select} (${some}) AS ${list.as} ${this.#joins(list)} WHERE ${all(list.also)}
        ORDER BY ${order} LIMIT ?`;
      return { sql, values: valuesOf([...own, ...list.joins, ...list.also]) };
    }
    const sql = `${select} ${this.#tables(list, list.index)}
      WHERE ${all([...own, ...list.also])} ${once} ORDER BY ${order} LIMIT ?`;
    return { sql, values: valuesOf([...list.joins, ...own, ...list.also]) };
  }

  /** SQL for the number of hits among the first `end` + `counted` rows of a list. */
  count(list: List, end: number): Part {
    const index = list.as === 'p' ? 'packages_key' : list.index;
    const rows = this.#tables({ ...list, joins: [] }, index);
    const columns = list.as === 'p' ? 'p.id, p.package_key, p.flags' : 't0.package_row, t0.flags';
    const some = `SELECT ${columns} FROM ${rows} WHERE ${all(list.own)} LIMIT ${end + list.counted}`;
    const where = list.also.length > 0 ? `WHERE ${all(list.also)}` : '';
    const hits = list.repeats ? `DISTINCT ${idOf(list.as)}` : '*';
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

const notInId = ` AND t0.standing >= ${tier.name * tierWidth}`;

/** The packages that have this word; `only` is SQL of a further condition. */
function having({ term, fields, size }: SizedWord, only = ''): Source {
  const where = { sql: `t0.term = ? AND (t0.fields & ?) <> 0${only}`, values: [term, fields] };
  return { where, size, repeats: false };
}

/** A condition on `p`: the id does not start with this text. */
function elsewhere(idStart: string): Part {
  return { sql: '(p.package_key < ? OR p.package_key >= ?)', values: [idStart, idStart + lastCharacter] };
}

function notAll(parts: readonly Part[]): Part {
  return { sql: `NOT (${all(parts)})`, values: valuesOf(parts) };
}
