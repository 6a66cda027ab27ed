import { opendir, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { pause } from '../runtime/event-loop.ts';
import { hasMoreValues } from '../runtime/json-values.ts';
import { readAll, type Content } from '../storage/files/content.ts';
import { openFileContent } from '../storage/files/file-content.ts';
import { Zip } from '../storage/files/zip.ts';
import { ListRefused, type ListLimits } from './entry.ts';

/** The value of a record, and where it is, for messages. */
export interface RawRecord {
  value: unknown;
  label: string;
}

type OpenSized = () => Promise<Content & { readonly size: number }>;

/** How a list is read: its bounds, and whether the record with this ID counts. */
export interface Reading {
  limits: ListLimits;
  counts: (id: string) => boolean;
}

/** A file of a folder, by its path below it. */
interface ListedFile {
  path: string;
  size: number;
  /** Milliseconds since 1970. */
  changedAt: number;
}

const pieceBytes = 64 * 1024;
const newline = 0x0a;
/** Bytes of the names of all entries of a zip. */
const maxDirectoryBytes = 256 * 2 ** 20;

/**
 * The records of a zip with `.json` files, of a file with one JSON record a line, or of a JSON file with one record or a list of
 * them. Each is parsed once, and nothing is whole in memory but a record. Throws `ListRefused` for what is no list or above a
 * bound, and `PackageInvalid` for a zip that is.
 */
export async function* recordsIn(open: OpenSized, reading: Reading): AsyncGenerator<RawRecord> {
  const budget = new Budget(reading);
  const start = await beginningOf(open, 2);
  if (start.toString('latin1') === 'PK') yield* recordsOfZip(open, reading, budget);
  else yield* recordsOfText(open, '', budget);
}

/** The same of all `.json` and `.jsonl` files below a folder. Links are not followed. */
export async function* recordsBelow(folder: string, reading: Reading): AsyncGenerator<RawRecord> {
  const budget = new Budget(reading);
  for await (const { path, size } of filesBelow(folder, reading.limits)) {
    await pause();
    const isRecord = path.endsWith('.json');
    if (isRecord && size > reading.limits.recordBytes) {
      budget.leaveOut(path, size);
      continue;
    }
    yield* recordsOfText(() => openFileContent(join(folder, path), size), path, budget);
  }
  budget.requireSome();
}

/** The `.json` and `.jsonl` files below a folder, in no order. */
export async function* filesBelow(folder: string, { records }: ListLimits): AsyncGenerator<ListedFile> {
  let count = 0;
  for await (const each of await opendir(folder, { recursive: true })) {
    count += 1;
    if (count > records) throw new ListRefused(`is a folder with more than ${records} files`);
    if (!each.isFile() || !/\.jsonl?$/.test(each.name)) continue;
    const path = join(each.parentPath, each.name);
    const { size, mtimeMs: changedAt } = await stat(path);
    yield { path: relative(folder, path), size, changedAt };
  }
}

async function* recordsOfZip(open: OpenSized, { limits }: Reading, budget: Budget): AsyncGenerator<RawRecord> {
  const { records: maxEntries, unpackedBytes: maxTotalBytes, recordBytes } = limits;
  using zip = await Zip.open(open, { maxEntries, maxTotalBytes, maxDirectoryBytes, backslashes: true });
  const isWanted = ({ name, size }: { name: string; size: number }): boolean => {
    if (!name.endsWith('.json')) return false;
    if (size <= recordBytes) return true;
    budget.leaveOut(name, size);
    return false;
  };
  for await (const { entry, bytes } of zip.contents(isWanted, recordBytes)) {
    budget.take(bytes.length);
    yield { value: parse(bytes, entry.name), label: entry.name };
  }
  budget.requireSome();
}

async function* recordsOfText(open: OpenSized, path: string, budget: Budget): AsyncGenerator<RawRecord> {
  const content = await open();
  const { size } = content;
  if (size <= budget.recordBytes) {
    const bytes = await readAll(content, budget.recordBytes);
    const value = parseIfWhole(bytes);
    if (value !== undefined) {
      const values: unknown[] = Array.isArray(value) ? value : [value];
      for (const [index, each] of values.entries()) {
        budget.take(index === 0 ? size : 0);
        await pause();
        yield { value: each, label: path === '' ? `record ${index + 1}` : path };
      }
      // An empty list on purpose.
      if (values.length === 0) budget.hasAny = true;
      return;
    }
  } else content.close();
  const lines = await open();
  try {
    let number = 0;
    for await (const line of linesOf(lines, budget.recordBytes)) {
      number += 1;
      if (line.length <= 1 && line.toString('latin1').trim() === '') continue;
      const label = `${path}${path === '' ? '' : ' '}line ${number}`;
      budget.take(line.length);
      await pause();
      yield { value: parse(line, label), label };
    }
  } finally {
    lines.close();
  }
  if (path === '') budget.requireSome();
}

/** The lines of content, without their ends. */
async function* linesOf(content: Content, maxBytes: number): AsyncGenerator<Buffer> {
  let rest: Buffer[] = [];
  let restBytes = 0;
  for (let position = 0; ;) {
    const target = Buffer.allocUnsafe(pieceBytes);
    const read = await content.read(target, position);
    if (read === 0) break;
    position += read;
    let start = 0;
    for (let end = target.indexOf(newline); end >= 0 && end < read; end = target.indexOf(newline, start)) {
      yield Buffer.concat([...rest, target.subarray(start, end)]);
      [rest, restBytes] = [[], 0];
      start = end + 1;
    }
    rest.push(target.subarray(start, read));
    restBytes += read - start;
    if (restBytes > maxBytes)
      throw new ListRefused(`has a line of more than ${maxBytes} bytes; a longer file has one record a line`);
  }
  if (restBytes > 0) yield Buffer.concat(rest);
}

/** Counts the records and bytes of a list. */
class Budget {
  readonly #reading: Reading;
  #records = 0;
  #bytes = 0;
  /** Whether the list has said something, even that it is empty. */
  hasAny = false;

  constructor(reading: Reading) {
    this.#reading = reading;
  }

  get recordBytes(): number {
    return this.#reading.limits.recordBytes;
  }

  take(bytes: number): void {
    const { records, unpackedBytes } = this.#reading.limits;
    this.hasAny = true;
    this.#records += 1;
    this.#bytes += bytes;
    if (this.#records > records) throw new ListRefused(`has more than ${records} records`);
    if (this.#bytes > unpackedBytes) throw new ListRefused(`has more than ${unpackedBytes} bytes of records`);
  }

  /** A file above the bound of a record: left out if its name, which is the ID of the record, does not count. */
  leaveOut(path: string, size: number): void {
    const [, id] = /([^/]*)\.json$/.exec(path)!;
    if (this.#reading.counts(id!))
      throw new ListRefused(`has a record of more than ${this.recordBytes} bytes: ${path}`);
    this.take(size);
  }

  /** Throws for a list without a single record: it is more likely that it got lost. */
  requireSome(): void {
    if (!this.hasAny) throw new ListRefused('has no records; a list that is empty on purpose is the file []');
  }
}

async function beginningOf(open: OpenSized, bytes: number): Promise<Buffer> {
  const content = await open();
  try {
    const target = Buffer.alloc(bytes);
    return target.subarray(0, await content.read(target, 0));
  } finally {
    content.close();
  }
}

/** Most values of a record, and of a file with several: to parse many small ones takes long. */
const maxRecordValues = 60_000;
const maxFileValues = 100_000;

/** The value of a JSON file; undefined if it is not one value, so that its lines may be records. */
function parseIfWhole(bytes: Buffer): unknown {
  if (hasMoreValues(bytes, maxFileValues)) return undefined;
  try {
    return JSON.parse(textOf(bytes)) as unknown;
  } catch {
    return undefined;
  }
}

function parse(bytes: Buffer, label: string): unknown {
  if (hasMoreValues(bytes, maxRecordValues))
    throw new ListRefused(`has a record with more than ${maxRecordValues} values: ${label}`);
  try {
    return JSON.parse(textOf(bytes)) as unknown;
  } catch (error) {
    throw new ListRefused(`has a record that is no JSON, or not complete: ${label}`, { cause: error });
  }
}

/** Some editors begin a file with a byte order mark. */
function textOf(bytes: Buffer): string {
  return bytes.toString('utf8').replace(/^\uFEFF/, '');
}
