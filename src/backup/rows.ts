import { readTables, afterKey, type Table } from '../database/tables.ts';
import type { Queryable, Row } from '../database/database.ts';
import { isDigest, type Digest } from '../runtime/digest.ts';
import type { Content } from '../storage/files/content.ts';
import type { Pace } from '../storage/upkeep/pace.ts';
import { decodeHeader, decodeRow, encodeValue, backupInvalid, maxLine, type Header } from './format.ts';

/** Tables without rows in a backup, and why. Every other table of the schema is in it. */
export const leftOut: Readonly<Record<string, string>> = {
  migrations: 'the restored database gets its own',
  schema_version: 'the restored database gets its own',
  storage_identity: 'the restored place gets a new identity',
  storage_cursors: 'a scrub begins again',
  storage_holds: 'leases of running backups',
  uploads: 'uploads in progress, whose bytes are staged',
  usage_writers: 'running processes',
  instances: 'running processes',
  jobs: 'runs in progress',
  sessions: 'visitors sign in again',
  refused_forms: 'visitors fill in a form again',
  adopted_tries: 'passwords that are being checked, and those that were wrong lately',
  probes: 'written to find out whether the database can be written',
};

/** Rows of other tables that are in a backup. Without an entry: all. */
export const rowFilters: Readonly<Record<string, string>> = {
  blobs: "state = 'live'",
  job_runs: 'ended_at IS NOT NULL',
};

/** Rows of the first page, and of the largest. */
const [firstPage, maxRows] = [50, 1000];
/** A page that is larger, in bytes, is followed by one of half as many rows. */
const largePage = 2 * 2 ** 20;

/** The tables that have rows in a backup. */
export async function dumpedTables(from: Queryable): Promise<Table[]> {
  return (await readTables(from)).filter(({ name }) => !(name in leftOut));
}

/**
 * Writes the header and all rows of `table` that fulfil `filter`, in the order of its primary key, one page in memory at a
 * time. Resolves to the number of rows.
 */
export async function dumpTable(
  from: Queryable,
  { name, columns, key }: Table,
  filter: string | undefined,
  pace: Pace,
  write: (bytes: Buffer) => Promise<void>,
): Promise<number> {
  const header: Header = { columns: columns.map((each) => ({ name: each.name, kind: each.kind })) };
  await write(Buffer.from(`${JSON.stringify(header)}\n`));
  const names = columns.map((each) => each.name).join(', ');
  let rows = 0;
  let last: (string | number)[] | undefined;
  for (let limit = firstPage; ;) {
    const after = last && afterKey(from, key, last);
    const conditions = [filter, after?.sql].filter(Boolean).map((each) => `(${each})`);
    const where = conditions.length > 0 ? `WHERE ${conditions.join(' AND ')}` : '';
    const sql = `SELECT ${names} FROM ${name} ${where} ORDER BY ${key.join(', ')} LIMIT ${limit}`;
    const page = await from.select(sql, after?.values);
    const lines = page.map((row) => {
      const line = JSON.stringify(columns.map((each) => valueIn(row, name, each)));
      if (Buffer.byteLength(line) > maxLine)
        throw backupInvalid(`a row of the table ${name} is larger than ${maxLine} bytes`);
      return `${line}\n`;
    });
    const bytes = Buffer.from(lines.join(''));
    if (bytes.length > 0) await write(bytes);
    rows += page.length;
    if (page.length < limit) return rows;
    last = key.map((column) => page.at(-1)![column] as string | number);
    limit = bytes.length > largePage ? Math.ceil(limit / 2) : Math.min(maxRows, limit * 2);
    await pace.step();
  }
}

function valueIn(row: Row, table: string, { name, kind }: Table['columns'][number]): string | number | null {
  try {
    return encodeValue(row[name], kind);
  } catch (error) {
    throw backupInvalid(`${table}.${name}: ${(error as Error).message}`, error);
  }
}

/** The lines of `content`, which it closes. Throws if a line is longer than `maxLine`. */
export async function* linesOf(content: Content): AsyncGenerator<string> {
  try {
    let rest: Buffer[] = [];
    let length = 0;
    for (let position = 0; ;) {
      const piece = Buffer.allocUnsafe(256 * 1024);
      const read = await content.read(piece, position);
      if (read === 0) break;
      position += read;
      let start = 0;
      for (let end = piece.indexOf(10); end !== -1 && end < read; end = piece.indexOf(10, start)) {
        yield Buffer.concat([...rest, piece.subarray(start, end)]).toString();
        rest = [];
        length = 0;
        start = end + 1;
      }
      rest.push(piece.subarray(start, read));
      length += read - start;
      if (length > maxLine) throw backupInvalid(`a line in the backup is longer than ${maxLine} bytes`);
    }
    if (length > 0) throw backupInvalid('a file of rows in the backup ends in the middle of a line');
  } finally {
    content.close();
  }
}

/** The header of a file of rows, and its rows. */
export async function* rowsOf(
  content: Content,
): AsyncGenerator<{ header: Header; values: ReturnType<typeof decodeRow> }> {
  let header: Header | undefined;
  for await (const line of linesOf(content)) {
    if (header) yield { header, values: decodeRow(line, header) };
    else header = decodeHeader(line);
  }
}

/** A blob that the rows name. */
export interface NamedBlob {
  digest: Digest;
  size: number;
}

/** The blobs in the rows of the table `blobs`. Throws if they are not in the order of their digests. */
export async function* blobsOf(content: Content): AsyncGenerator<NamedBlob> {
  let before = '';
  for await (const { header, values } of rowsOf(content)) {
    const valueOf = (column: string) => values[header.columns.findIndex(({ name }) => name === column)];
    const [digest, size] = [valueOf('digest'), valueOf('size')];
    const isBlob = typeof digest === 'string' && isDigest(digest) && digest > before;
    if (!isBlob || !Number.isSafeInteger(size) || (size as number) < 0)
      throw backupInvalid('the rows of blobs in the backup are damaged');
    before = digest;
    yield { digest, size: size as number };
  }
}
