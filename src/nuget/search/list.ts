import type { AccountList } from '../../accounts/shared-names.ts';
import { placeholders, type Value } from '../../database/database.ts';
import type { FrameworkVersions } from '../format/frameworks.ts';
import type { SearchWord } from './search-query.ts';
import { idTermStart, tier, tierWidth } from '../format/terms.ts';

/** SQL with the values of its placeholders. */
export interface SqlPart {
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
  own: readonly SqlPart[];
  /** A condition that is always true, but makes the database read the index in order. */
  inOrder?: SqlPart;
  /** Joined tables, each with at most one row for a package. */
  joins: readonly SqlPart[];
  also: readonly SqlPart[];
  /** Whether a package may have several rows in the list's own table. Then the list is sorted, so it must be short. */
  repeats: boolean;
  /** The first rows of the list's own table that are read, because each costs look-ups; undefined if all may be read. */
  scanned: number | undefined;
  /** Rows after the page that are read to count hits; 0 if the list is too long to count. */
  counted: number;
  /** Lower bound for the hits after the page, if they are not counted. */
  behind: number;
}

/** The rows of `package_terms` (as t0) that a list starts from. */
export interface Source {
  where: SqlPart;
  /** The number of rows, up to `sizeLimit`. */
  size: number;
  repeats: boolean;
}

/** Counts of packages stop here: a larger number changes nothing. */
export const sizeLimit = 1000;
/** Fewer packages than this are sorted; more are read in order from an index. */
export const sortLimit = 500;
/** Rows after the page that are read to count hits: without joins, and with joins. */
const countLimit = 1000;
const lookupLimit = 250;
/** Most rows of its own table that a list reads if each needs look-ups: the most relevant ones. */
const scanLimit = 10_000;
/** Most look-ups of one group of lists: by a word's index, in a package's row (`rowCost`), or for its frameworks. */
const lookups = 48_000;
const rowCost = 4;
const frameworksCost = 2;
export const lastCharacter = '\u{10ffff}';

/** The lowest `standing` of a word that no id term begins with: the word is in another field only. */
export const notInId = tier.name * tierWidth;

/** A word that a package must have as a complete word. */
export interface CompleteWord extends SearchWord {
  /** Whether an id term must begin with it too. */
  isInId?: boolean;
}

/** Further conditions on a list that starts from `package_terms`. */
interface TermConditions {
  /** Conditions on the row in `packages`, for packages that fulfil all others. */
  where?: readonly SqlPart[];
  /** Conditions on the row in `packages` that most packages may fail: they are counted as look-ups. */
  rows?: readonly SqlPart[];
  /** Whether the list's own word or one of the first `mentions` words must not be in the id. */
  mentions?: number;
  /** The number of lists in the group, which share the look-ups. */
  lists?: number;
}

/** The client's part of a search: which packages of which account it may see. */
interface View {
  accountId: number;
  /** The client's bit of `flags`. */
  view: number;
  versions: readonly string[];
  frameworks: FrameworkVersions | undefined;
  flag: number | undefined;
  /** The condition on `p` for the packages that the client may see. */
  among: SqlPart | undefined;
}

/** Makes lists of one account for one client. */
export class ListMaker {
  readonly #view: View;

  constructor({ only, without, ...view }: Omit<View, 'among'> & AccountList) {
    const parts = [...(only ? [only.where('p.package_key')] : []), ...(without === undefined ? [] : [notOf(without)])];
    this.#view = { ...view, among: parts.length === 0 ? undefined : { sql: all(parts), values: valuesOf(parts) } };
  }

  /** Packages that fulfil these conditions and have these words. */
  packages(own: readonly SqlPart[], words: readonly SearchWord[], size = 0): List {
    const { accountId, view, among } = this.#view;
    const mine = { sql: 'p.account_id = ? AND (p.flags & ?) <> 0', values: [accountId, view] };
    const list = this.#list('p', [mine, ...own, ...(among ? [among] : [])], words, [], size);
    return { ...list, scanned: this.#scanned(size, words.length, 1) };
  }

  /** Packages of `source` with these words, ordered by tiers. */
  terms(
    { where: from, size, repeats }: Source,
    words: readonly CompleteWord[],
    { where = [], rows = [], mentions, lists = 1 }: TermConditions = {},
  ): List {
    const { accountId, view, among } = this.#view;
    const own = [
      { sql: 't0.account_id = ?', values: [accountId] },
      from,
      { sql: '(t0.flags & ?) <> 0', values: [view] },
    ];
    const conditions = [...where, ...rows, ...(among ? [among] : [])];
    const join = {
      sql: `JOIN packages p ON p.id = t0.package_row AND ${all(conditions)}`,
      values: valuesOf(conditions),
    };
    const joins = conditions.length > 0 ? [join] : [];
    const list = this.#list('t0', own, words, joins, size);
    const cost = words.length + rows.length + (rows.length > 0 || among ? rowCost : 0);
    // Of several lists, the ones of longer terms may start with many packages whose id starts with the text.
    const checked = cost === 0 && joins.length > 0 && lists > 1 ? rowCost : cost;
    if (mentions !== undefined) list.also = [...list.also, mentioned(mentions)];
    return {
      ...list,
      index: 'package_terms_standing',
      repeats,
      behind: repeats ? 0 : list.behind,
      scanned: repeats ? undefined : this.#scanned(size, checked, lists),
    };
  }

  /**
   * The rows that one of `lists` lists of about `size` rows may read, if each row needs `cost` look-ups beside those of
   * the view; undefined if it may read all.
   */
  #scanned(size: number, cost: number, lists: number): number | undefined {
    const { versions, frameworks } = this.#view;
    const all = cost + rowCost * versions.length + (frameworks ? frameworksCost : 0);
    if (all === 0) return undefined;
    const most = Math.min(scanLimit, Math.ceil(lookups / all / lists));
    return size < Math.min(most, sizeLimit) ? undefined : most;
  }

  #list(
    as: List['as'],
    own: readonly SqlPart[],
    words: readonly CompleteWord[],
    joins: readonly SqlPart[],
    size: number,
  ): List {
    const { accountId, flag, versions, frameworks, among } = this.#view;
    const wordJoins = words.map(({ term, fields, isInId }, index) => ({
      sql: `JOIN package_terms w${index} ON w${index}.account_id = ? AND w${index}.term = ?
        AND w${index}.package_row = ${idColumn(as)} AND (w${index}.fields & ?) <> 0
        ${isInId ? `AND w${index}.standing < ${notInId}` : ''}`,
      values: [accountId, term, fields],
    }));
    const also: SqlPart[] = [];
    if (flag !== undefined) also.push({ sql: `(${as}.flags & ?) <> 0`, values: [flag] });
    if (versions.length > 0) {
      also.push({
        sql: `(SELECT 1 FROM package_versions v WHERE v.package_row = ${idColumn(as)} AND v.listed = 1
          AND v.version_key IN (${placeholders(versions)}) LIMIT 1) IS NOT NULL`,
        values: versions,
      });
    }
    if (frameworks) also.push(usableWith(frameworks, idColumn(as)));
    const looked = words.length + joins.length + versions.length > 0 || frameworks !== undefined;
    const counted = looked ? lookupLimit : countLimit;
    // If the client sees only some packages, the size of the list says nothing about the hits.
    const endless = size >= sizeLimit && flag === undefined && !frameworks && !among;
    return {
      as,
      own,
      joins: [...wordJoins, ...joins],
      also,
      repeats: false,
      scanned: undefined,
      counted: endless ? 0 : counted,
      behind: looked ? 0 : countLimit,
    };
  }
}

/** The list's own word or one of the first `words` joined words is not in the id. */
function mentioned(words: number): SqlPart {
  const tables = ['t0', ...Array.from({ length: words }, (_, index) => `w${index}`)];
  return { sql: `(${tables.map((table) => `${table}.standing >= ${notInId}`).join(' OR ')})`, values: [] };
}

/** A condition on `p`: this account does not claim the id. */
function notOf(accountId: number): SqlPart {
  const sql = '(SELECT 1 FROM packages o WHERE o.account_id = ? AND o.package_key = p.package_key LIMIT 1) IS NULL';
  return { sql, values: [accountId] };
}

/** A condition on `p`: an id term begins with the word. */
export function inId({ term }: SearchWord): SqlPart {
  return { sql: 'COALESCE(INSTR(p.id_terms, ?), 0) > 0', values: [idTermStart(term)] };
}

/** A condition on `p`: an id term begins with the word, or any field has it. */
export function anywhere(accountId: number, word: SearchWord): SqlPart {
  const start = inId(word);
  return {
    sql: `(${start.sql} OR (SELECT 1 FROM package_terms a
      WHERE a.account_id = ? AND a.term = ? AND a.package_row = p.id LIMIT 1) IS NOT NULL)`,
    values: [...start.values, accountId, word.term],
  };
}

/**
 * The package has dependencies for one of these frameworks, or does not limit its frameworks. Neither this nor the other
 * conditions use EXISTS: MariaDB may then read the whole table once instead of a few rows of each package.
 */
function usableWith(frameworks: FrameworkVersions, id: string): SqlPart {
  const versions = [...frameworks];
  const rows = `SELECT 1 FROM package_frameworks f WHERE f.package_row = ${id}`;
  return {
    sql: `((${rows} LIMIT 1) IS NULL OR (${rows} AND
      (${versions.map(() => '(f.family = ? AND f.version <= ?)').join(' OR ')}) LIMIT 1) IS NOT NULL)`,
    values: versions.flat(),
  };
}

export function idColumn(as: List['as']): string {
  return as === 'p' ? 'p.id' : 't0.package_row';
}

export function all(parts: readonly SqlPart[]): string {
  return parts.map(({ sql }) => sql).join(' AND ');
}

export function valuesOf(parts: readonly SqlPart[]): Value[] {
  return parts.flatMap(({ values }) => values);
}
