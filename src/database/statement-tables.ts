/** The tables of a statement, by name and in order; undefined if they are not all known. */
export type Tables = readonly string[] | undefined;

const written =
  /^\s*(?:INSERT\s+INTO\s+(\w+)\s*(?:\(|SELECT\b)|UPDATE\s+(\w+)\s+SET\b|DELETE\s+FROM\s+(\w+)\s*(?:WHERE\b|$))/i;
const named = /\b(?:FROM|JOIN)\s+(\w+|\()/gi;
/** What follows a FROM, up to the next clause or parenthesis. */
const sources = /\bFROM\b([^()]*?)(?=\b(?:WHERE|GROUP|ORDER|LIMIT|UNION)\b|[()]|$)/gi;

/** The table that a statement writes; undefined if that is not clear, as for a change of the schema. */
export function tableWritten(sql: string): string | undefined {
  const match = written.exec(sql);
  return (match?.[1] ?? match?.[2] ?? match?.[3])?.toLowerCase();
}

/** The tables that a SELECT reads, each once; undefined for lists with commas and for table expressions (WITH). */
export function tablesRead(sql: string): Tables {
  if (/\bWITH\b/i.test(sql)) return undefined;
  for (const [, tables] of sql.matchAll(sources)) if (tables!.includes(',')) return undefined;
  const tables = new Set<string>();
  for (const [, name] of sql.matchAll(named)) if (name !== '(') tables.add(name!.toLowerCase());
  return tables.size === 0 ? undefined : [...tables].sort();
}
