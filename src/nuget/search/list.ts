import type { NameSet } from '../../accounts/names.ts';
import { placeholders, type Value } from '../../database/database.ts';
import type { FrameworkVersions } from '../format/frameworks.ts';
import type { SearchWord } from './search-query.ts';
import { idTermStart } from './terms.ts';

/** SQL with the values of its placeholders. */
export interface Part {
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
  /** Whether a package may have several rows in the list's own table. Then the list is sorted, so it must be short. */
  repeats: boolean;
  /** Whether only the first rows of the list's own table are read, because most may fail a condition of `also`. */
  isBounded: boolean;
  /** Rows after the page that are read to count hits; 0 if the list is too long to count. */
  counted: number;
  /** Lower bound for the hits after the page, if they are not counted. */
  behind: number;
}

/** The rows of `package_terms` (as t0) that a list starts from. */
export interface Source {
  where: Part;
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
export const lastCharacter = '\u{10ffff}';

/** The client's part of a search: which packages of which account it may see. */
interface View {
  accountId: number;
  /** The client's bit of `flags`. */
  view: number;
  versions: readonly string[];
  frameworks: FrameworkVersions | undefined;
  flag: number | undefined;
  /** The condition on `p` for the packages that the client may see. */
  among: Part | undefined;
}

/** Makes lists of one account for one client. */
export class ListMaker {
  readonly #view: View;

  constructor({ among, ...view }: Omit<View, 'among'> & { among: NameSet | undefined }) {
    this.#view = { ...view, among: among?.where('p.package_key') };
  }

  /** Packages that fulfil these conditions and have these words. */
  packages(own: readonly Part[], words: readonly SearchWord[], size = 0): List {
    const { accountId, view, among } = this.#view;
    const mine = { sql: 'p.account_id = ? AND (p.flags & ?) <> 0', values: [accountId, view] };
    return this.#list('p', [mine, ...own, ...(among ? [among] : [])], words, [], size);
  }

  /** Packages of `source` with these words, ordered by tiers. `where` are conditions on `p`. */
  terms({ where: from, size, repeats }: Source, words: readonly SearchWord[], where: readonly Part[] = []): List {
    const { accountId, view, among } = this.#view;
    const own = [
      { sql: 't0.account_id = ?', values: [accountId] },
      from,
      { sql: '(t0.flags & ?) <> 0', values: [view] },
    ];
    const conditions = among ? [...where, among] : where;
    const join = {
      sql: `JOIN packages p ON p.id = t0.package_row AND ${all(conditions)}`,
      values: valuesOf(conditions),
    };
    const joins = conditions.length > 0 ? [join] : [];
    return {
      ...this.#list('t0', own, words, joins, size),
      index: 'package_terms_standing',
      repeats,
      ...(repeats && { isBounded: false }),
    };
  }

  #list(
    as: List['as'],
    own: readonly Part[],
    words: readonly SearchWord[],
    joins: readonly Part[],
    size: number,
  ): List {
    const { accountId, flag, versions, frameworks, among } = this.#view;
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
    if (frameworks) also.push(usableWith(frameworks, idOf(as)));
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
      isBounded: frameworks !== undefined,
      counted: endless ? 0 : counted,
      behind: looked ? 0 : countLimit,
    };
  }
}

/** A condition on `p`: an id term begins with the word. */
export function inId({ term }: SearchWord): Part {
  return { sql: 'COALESCE(INSTR(p.id_terms, ?), 0) > 0', values: [idTermStart(term)] };
}

/** A condition on `p`: an id term begins with the word, or any field has it. */
export function anywhere(accountId: number, word: SearchWord): Part {
  const start = inId(word);
  return {
    sql: `(${start.sql} OR EXISTS (SELECT 1 FROM package_terms a
      WHERE a.account_id = ? AND a.term = ? AND a.package_row = p.id))`,
    values: [...start.values, accountId, word.term],
  };
}

/** The package has dependencies for one of these frameworks, or does not limit its frameworks. */
function usableWith(frameworks: FrameworkVersions, id: string): Part {
  const versions = [...frameworks];
  const rows = `SELECT 1 FROM package_frameworks f WHERE f.package_row = ${id}`;
  return {
    sql: `(NOT EXISTS (${rows}) OR EXISTS (${rows} AND
      (${versions.map(() => '(f.family = ? AND f.version <= ?)').join(' OR ')})))`,
    values: versions.flat(),
  };
}

export function idOf(as: List['as']): string {
  return as === 'p' ? 'p.id' : 't0.package_row';
}

export function all(parts: readonly Part[]): string {
  return parts.map(({ sql }) => sql).join(' AND ');
}

export function valuesOf(parts: readonly Part[]): Value[] {
  return parts.flatMap(({ values }) => values);
}
