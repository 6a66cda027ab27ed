import { placeholders, type Database, type Value } from '../database/database.ts';
import type { SearchQuery, Wanted } from './search-query.ts';
import { lowestStanding, tier, tierWidth } from './terms.ts';

/** SQL with the values of its placeholders. */
interface Part {
  sql: string;
  values: readonly Value[];
}

/** Packages in the order of one index: those that are read on the way to a page are those that the page needs. */
export interface List {
  /** The rows to start from, in order, and what of them is wanted: `first` is `packages` as p or `package_terms` as t0. */
  first: { as: 'p' | 't0'; index?: string; countIndex?: string };
  own: readonly Part[];
  /** What adds nothing but lets the index be read in order. */
  inOrder?: Part;
  /** Further tables, each with at most one row for a package. */
  joins: readonly Part[];
  also: readonly Part[];
}

/** A word is common from so many packages on: then it is no matter how many more. */
const commonFrom = 2000;
const standings = Array.from({ length: lowestStanding + 1 }, (_, standing) => standing).join(', ');
const lastCharacter = '\u{10ffff}';

/**
 * What `query` finds: the package of that id, then those whose id starts with it, then those that have its words, no
 * package twice; each list by downloads. `bit` is the client's view.
 */
export async function listsOf(database: Database, accountId: number, query: SearchQuery, bit: number): Promise<List[]> {
  if (query.hopeless) return [];
  const { idStart, words, filters, ids, versions } = query;
  const also = versions.length > 0 ? (first: List['first']) => [hasVersion(idOf(first), versions)] : () => [];
  const inAccount = { sql: 'p.account_id = ? AND (p.visible & ?) <> 0', values: [accountId, bit] };
  const packagesOf = (own: Part[], joined: readonly Wanted[], index?: string, countIndex = index): List => {
    const first = { as: 'p', ...(index && { index }), ...(countIndex && { countIndex }) } as const;
    return {
      first,
      own: [inAccount, ...own],
      joins: joined.map((each, i) => hasTerm(first, accountId, each, i + 1)),
      also: also(first),
    };
  };
  const termsOf = (own: Part[], [start, ...others]: readonly Wanted[], joins: Part[]): List => {
    const first = { as: 't0', index: 'package_terms_standing' } as const;
    const from = {
      sql: 't0.account_id = ? AND t0.term = ? AND (t0.visible & ?) <> 0 AND (t0.fields & ?) <> 0',
      values: [accountId, start!.term, bit, start!.fields],
    };
    const joined = others.map((each, i) => hasTerm(first, accountId, each, i + 1));
    return { first, own: [from, ...own], joins: [...joined, ...joins], also: also(first) };
  };

  if (ids.length > 0) {
    return [packagesOf([{ sql: `p.package_key IN (${placeholders(ids)})`, values: ids }], [...words, ...filters])];
  }
  if (idStart === undefined) {
    if (filters.length === 0) return [packagesOf([], [], 'packages_standing')];
    return [termsOf([], await rarestFirst(database, accountId, filters), [])];
  }

  const end = idStart + lastCharacter;
  const starting = { sql: 'p.package_key > ? AND p.package_key < ?', values: [idStart, end] };
  const inOrder = { sql: `p.standing IN (${standings})`, values: [] };
  const lists = [
    packagesOf([{ sql: 'p.package_key = ?', values: [idStart] }], filters),
    { ...packagesOf([starting], filters, 'packages_standing', 'packages_visible'), inOrder },
  ];
  if (words.length === 1 && filters.length === 0 && words[0]!.term === idStart) {
    // Those that start with the word have it in a tier of its own.
    lists.push(termsOf([{ sql: `t0.standing >= ${tier.name * tierWidth}`, values: [] }], words, []));
  } else if (words.length > 0) {
    const elsewhere = {
      sql: 'JOIN packages p ON p.id = t0.package_row AND (p.package_key < ? OR p.package_key >= ?)',
      values: [idStart, end],
    };
    lists.push(termsOf([], await rarestFirst(database, accountId, [...words, ...filters]), [elsewhere]));
  }
  return lists;
}

/** Up to so many packages of a list, as `id` and `standing`; the last placeholder is the number. */
export function pageOf(database: Database, list: List): Part {
  const { first, joins, also } = list;
  const own = list.inOrder ? [...list.own, list.inOrder] : list.own;
  const parts = [...joins.map((join) => straight(database, join)), ...own, ...also];
  const order = first.as === 'p' ? 'p.standing, p.package_key' : 't0.standing, t0.package_row';
  return {
    sql: `SELECT ${idOf(first)} AS id, ${first.as}.standing AS standing FROM ${tableOf(database, first.as, first.index)}
      ${joins.map((join) => straight(database, join).sql).join(' ')}
      WHERE ${[...own, ...also].map(({ sql }) => sql).join(' AND ')} ORDER BY ${order} LIMIT ?`,
    values: parts.flatMap(({ values }) => values),
  };
}

/** How many packages there are among the first `limit` that a list starts from. */
export function countOf(database: Database, { first, own, joins, also }: List, limit: number): Part {
  const column = first.as === 'p' ? 'p.id, p.package_key' : 't0.package_row';
  const some = `SELECT ${column} FROM ${tableOf(database, first.as, first.countIndex ?? first.index)}
    WHERE ${own.map(({ sql }) => sql).join(' AND ')} LIMIT ${limit}`;
  return {
    sql: `SELECT COUNT(*) FROM (${some}) AS ${first.as} ${joins.map((join) => straight(database, join).sql).join(' ')}
      ${also.length > 0 ? `WHERE ${also.map(({ sql }) => sql).join(' AND ')}` : ''}`,
    values: [...own, ...joins, ...also].flatMap(({ values }) => values),
  };
}

/** The words with the rarest first: fewest packages are looked at when a list starts from it. */
async function rarestFirst(database: Database, accountId: number, wanted: readonly Wanted[]): Promise<Wanted[]> {
  if (wanted.length === 1) return [...wanted];
  const sizes = await database.get<Record<string, number>>(
    `SELECT ${wanted
      .map(
        (_, index) => `(SELECT COUNT(*) FROM (SELECT 1 AS one FROM package_terms
          WHERE account_id = ? AND term = ? LIMIT ${commonFrom}) AS c${index}) AS size${index}`,
      )
      .join(', ')}`,
    wanted.flatMap(({ term }) => [accountId, term]),
  );
  return wanted
    .map((each, index) => ({ each, size: sizes![`size${index}`]! }))
    .sort((a, b) => a.size - b.size)
    .map(({ each }) => each);
}

function hasTerm(first: List['first'], accountId: number, { term, fields }: Wanted, index: number): Part {
  const t = `t${index}`;
  return {
    sql: `JOIN package_terms ${t} ON ${t}.account_id = ? AND ${t}.term = ? AND ${t}.package_row = ${idOf(first)}
      AND (${t}.fields & ?) <> 0`,
    values: [accountId, term, fields],
  };
}

function hasVersion(id: string, versions: readonly string[]): Part {
  return {
    sql: `EXISTS (SELECT 1 FROM package_versions v WHERE v.package_row = ${id} AND v.listed = 1
      AND v.version_key IN (${placeholders(versions)}))`,
    values: versions,
  };
}

function idOf({ as }: List['first']): string {
  return as === 'p' ? 'p.id' : 't0.package_row';
}

/** The planners know less of the data than we do: the tables are read in the order written, by the index named. */
function straight({ dialect }: Database, join: Part): Part {
  return { ...join, sql: join.sql.replace(/^JOIN/, dialect === 'sqlite' ? 'CROSS JOIN' : 'STRAIGHT_JOIN') };
}

function tableOf({ dialect }: Database, as: 'p' | 't0', index: string | undefined): string {
  const table = `${as === 'p' ? 'packages' : 'package_terms'} ${dialect === 'sqlite' ? 'AS ' : ''}${as}`;
  if (index === undefined) return table;
  return `${table} ${dialect === 'sqlite' ? `INDEXED BY ${index}` : `FORCE INDEX (${index})`}`;
}
