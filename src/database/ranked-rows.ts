import type { Rank, Ranked } from '../runtime/ranked.ts';
import type { Database, Value } from './database.ts';

interface RankedStatement {
  columns: string;
  /** The tables and the condition. */
  from: string;
  values: readonly Value[];
  /** The column of the number; undefined for a list that is sorted by name only. */
  value: string | undefined;
  /** The column of the name, which is unique in the list. */
  name: string;
}

/** Up to `limit` rows after `after`. Each statement reads one range of an index on the number and the name. */
export async function rankedRows<Row extends object>(
  database: Database,
  { columns, from, values, value = 'NULL', name }: RankedStatement,
  limit: number,
  after: Rank | undefined,
): Promise<Ranked<Row>[]> {
  const order = value === 'NULL' ? name : `${value} DESC, ${name}`;
  const ranges: readonly (readonly [condition: string, ...values: Value[]])[] = !after
    ? [['1 = 1']]
    : after[0] === null
      ? [[value === 'NULL' ? `${name} > ?` : `${value} IS NULL AND ${name} > ?`, after[1]]]
      : [[`${value} = ? AND ${name} > ?`, ...after], [`${value} < ?`, after[0]], [`${value} IS NULL`]];
  const found: Ranked<Row>[] = [];
  for (const [condition, ...bounds] of ranges) {
    if (found.length === limit) break;
    const rows = await database.select<Row & { rankValue: number | null; rankName: string }>(
      `SELECT ${columns}, ${value} AS rankValue, ${name} AS rankName FROM ${from} AND ${condition}
       ORDER BY ${order} LIMIT ?`,
      [...values, ...bounds, limit - found.length],
    );
    found.push(
      ...rows.map(({ rankValue, rankName, ...row }) => ({
        rank: [rankValue, rankName] as const,
        item: row as unknown as Row,
      })),
    );
  }
  return found;
}
