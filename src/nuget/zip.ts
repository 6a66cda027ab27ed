import { createReadStream, read } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { pipeline, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { finished } from 'node:stream/promises';
import { crc32, createInflateRaw } from 'node:zlib';
import {
  fromRandomAccessReaderPromise,
  getFileNameLowLevel,
  RandomAccessReader,
  type Entry,
  type ZipFile,
} from 'yauzl';
import { DomainError } from '../errors.ts';

/** How much of a zip to believe. The defaults let every package of the public gallery pass. */
export interface ZipLimits {
  /** Entries; by default what a zip can count without its 64-bit extension. */
  readonly maxEntries: number;
  /** Inflated bytes of all entries together. The gallery takes packages of 250 MB, which text could inflate to 5 GB. */
  readonly maxTotalBytes: number;
  /** Inflated bytes per stored byte of one entry. Text reaches 20, sparse data 100; a bomb lives near 1000. */
  readonly maxRatio: number;
  /** The inflated size below which the ratio does not matter. */
  readonly ratioFloor: number;
  /** Whether a backslash in a name may stand for a slash, as in what old tools have packed. */
  readonly backslashes: boolean;
}

/** See `ZipLimits`. */
export const defaultZipLimits: ZipLimits = {
  maxEntries: 65_535,
  maxTotalBytes: 8 * 1024 ** 3,
  maxRatio: 200,
  ratioFloor: 1024 ** 2,
  backslashes: false,
};

/** A file in a zip. Its sizes are what the zip declares; reading it proves them. */
export interface ZipEntry {
  /** The path a client extracts to: percent-encoding undone, as Open Packaging Conventions ask. */
  readonly name: string;
  readonly size: number;
  readonly compressedSize: number;
  /** The central directory's record, for reading the entry. */
  readonly record: Entry;
}

const chunkBytes = 64 * 1024;
const directoryEntry = 0x02014b50;
const directoryEnds = new Set([0x06054b50, 0x06064b50, 0x05054b50]);

/**
 * A zip on disk, read by random access: its directory is checked when opened, an entry when it is read. Everything that
 * is wrong with the zip is a `PackageInvalid`; errors of the disk pass through.
 */
export class Zip {
  readonly entries: readonly ZipEntry[];
  readonly #path: string;
  readonly #handle: FileHandle;
  readonly #file: ZipFile;

  private constructor(path: string, handle: FileHandle, file: ZipFile, entries: readonly ZipEntry[]) {
    this.#path = path;
    this.#handle = handle;
    this.#file = file;
    this.entries = entries;
  }

  /** Opens the zip at `path`; close it with `await using`. */
  static async open(path: string, limits: Partial<ZipLimits> = {}): Promise<Zip> {
    const handle = await open(path);
    try {
      const { size } = await handle.stat();
      const file = await fromRandomAccessReaderPromise(new FileReader(handle, size), size, {
        autoClose: false,
        decodeStrings: false,
      });
      return new Zip(path, handle, file, await readDirectory(file, handle, { ...defaultZipLimits, ...limits }));
    } catch (error) {
      await handle.close();
      throw asInvalid(error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }

  /** The entry extracted to `path`, whatever its case; backslashes in `path` are read as slashes. */
  find(path: string): ZipEntry | undefined {
    const wanted = path
      .replaceAll('\\', '/')
      .replace(/^(?:\.?\/)+/, '')
      .toLowerCase();
    return this.entries.find((entry) => entry.name.toLowerCase() === wanted);
  }

  /** The entry's bytes, if there are at most `maxBytes` of them. */
  async read(entry: ZipEntry, maxBytes: number): Promise<Buffer> {
    if (entry.size > maxBytes) throw invalid(`${quote(entry.name)} is larger than ${maxBytes} bytes. Shorten it.`);
    return buffer(await this.open(entry));
  }

  /** Up to `length` bytes of the entry from `start`. What comes after them is not read, so nothing is proven. */
  async slice(entry: ZipEntry, start: number, length: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    let position = 0;
    for await (const chunk of await this.open(entry)) {
      parts.push((chunk as Buffer).subarray(Math.max(0, start - position), Math.max(0, start + length - position)));
      position += (chunk as Buffer).length;
      if (position >= start + length) break;
    }
    return Buffer.concat(parts);
  }

  /** Reads the whole entry to prove its declared length and checksum. */
  async verify(entry: ZipEntry): Promise<void> {
    await finished((await this.open(entry)).resume());
  }

  /** The entry's bytes. They outlive the zip; the stream fails at the end if they are not what was declared. */
  async open(entry: ZipEntry): Promise<Readable> {
    const start = await this.#dataStart(entry);
    // Lazy: a stream that nobody reads holds no file open.
    return Readable.from(inflate(this.#path, start, entry), { objectMode: false });
  }

  /** Where the data starts. A client may trust the local header, so it must not contradict the directory. */
  async #dataStart({ name, record }: ZipEntry): Promise<number> {
    try {
      const local = await this.#file.readLocalFileHeaderPromise(record);
      // Bit 3 of the flags: the sizes follow the data, so the header has none.
      const sized = (local.generalPurposeBitFlag & 8) === 0;
      if (
        !local.fileName.equals(record.fileNameRaw) ||
        local.compressionMethod !== record.compressionMethod ||
        (sized && !sameSize(local.uncompressedSize, record.uncompressedSize)) ||
        (sized && !sameSize(local.compressedSize, record.compressedSize))
      ) {
        throw invalid(`The header of ${quote(name)} contradicts the zip's directory. Pack it again.`);
      }
      return local.fileDataStart;
    } catch (error) {
      throw asInvalid(error);
    }
  }
}

/** 0xffffffff says that the size is in the 64-bit extension. */
function sameSize(local: number, declared: number): boolean {
  return local === declared || local === 0xffff_ffff;
}

async function* inflate(path: string, start: number, { name, size, compressedSize, record }: ZipEntry) {
  let length = 0;
  let checksum = 0;
  try {
    if (compressedSize > 0) {
      const stored = createReadStream(path, { start, end: start + compressedSize - 1, highWaterMark: chunkBytes });
      const source =
        record.compressionMethod === 0
          ? stored
          : pipeline(stored, createInflateRaw({ chunkSize: chunkBytes }), () => {}); // the error reaches the loop
      for await (const chunk of source as AsyncIterable<Buffer>) {
        length += chunk.length;
        if (length > size) break;
        checksum = crc32(chunk, checksum);
        yield chunk;
      }
    }
  } catch (error) {
    throw asInvalid(error);
  }
  if (length !== size) throw invalid(`${quote(name)} is not as long as the zip declares. Pack it again.`);
  if (checksum !== record.crc32) throw invalid(`${quote(name)} does not match its checksum. Pack it again.`);
}

async function readDirectory(file: ZipFile, handle: FileHandle, limits: ZipLimits): Promise<ZipEntry[]> {
  if (file.entryCount > limits.maxEntries) throw tooManyEntries(limits);
  const directoryStart = Number(file.readEntryCursor);
  const entries: ZipEntry[] = [];
  let total = 0;
  for await (const record of file.eachEntry()) {
    const entry = readEntry(record, limits);
    if (entry.size > limits.ratioFloor && entry.size > entry.compressedSize * limits.maxRatio) {
      throw invalid(`${quote(entry.name)} inflates more than ${limits.maxRatio} times. It looks like a zip bomb.`);
    }
    total += entry.size;
    if (total > limits.maxTotalBytes) {
      throw invalid(`The package inflates to more than ${limits.maxTotalBytes} bytes. Split it.`);
    }
    entries.push(entry);
  }
  refuseOverlaps(entries, directoryStart);

  // A count that is too low hides entries from us that other readers would find.
  const signature = Buffer.alloc(4);
  await handle.read(signature, 0, 4, Number(file.readEntryCursor));
  const next = signature.readUInt32LE();
  if (next === directoryEntry) {
    throw entries.length === 0xffff ? tooManyEntries(limits) : invalid('The zip has more entries than it counts.');
  }
  if (!directoryEnds.has(next)) throw invalid("The zip's directory has no proper end. Pack it again.");
  return entries;
}

function readEntry(record: Entry, { backslashes }: ZipLimits): ZipEntry {
  // No extra fields: .NET ignores the Unicode path extension, so the two readers could see different names.
  const written = getFileNameLowLevel(record.generalPurposeBitFlag, record.fileNameRaw, [], true);
  const raw = backslashes ? written.replaceAll('\\', '/') : written;
  const unescaped = unescape(raw);
  const name = backslashes ? unescaped.replaceAll('\\', '/') : unescaped;
  for (const path of [raw, name]) {
    if (/^\/|^[a-z]:|\\|\0/i.test(path) || path.split('/').includes('..')) {
      throw invalid(`The entry ${quote(raw)} would be extracted outside the package's folder. Use relative paths.`);
    }
  }
  if (record.isEncrypted()) throw invalid(`${quote(name)} is encrypted. Pack it without a password.`);
  if (!record.canDecodeFileData()) {
    throw invalid(`${quote(name)} uses compression method ${record.compressionMethod}. Use deflate, or none.`);
  }
  return { name, size: record.uncompressedSize, compressedSize: record.compressedSize, record };
}

/** `Uri.UnescapeDataString`, with which the client reads names: what is not well encoded stays as it is. */
function unescape(name: string): string {
  return name.replaceAll(/(?:%[0-9a-f]{2})+/gi, (encoded) => {
    try {
      return decodeURIComponent(encoded);
    } catch {
      return encoded;
    }
  });
}

/** Entries that share bytes are how small bombs are built: https://www.bamsoftware.com/hacks/zipbomb/ */
function refuseOverlaps(entries: readonly ZipEntry[], directoryStart: number): void {
  let end = directoryStart;
  const backwards = entries.toSorted(
    (a, b) => b.record.relativeOffsetOfLocalHeader - a.record.relativeOffsetOfLocalHeader,
  );
  for (const { name, compressedSize, record } of backwards) {
    const start = record.relativeOffsetOfLocalHeader;
    if (start + 30 + record.fileNameLength + compressedSize > end) {
      throw invalid(`${quote(name)} overlaps other parts of the zip, or ends behind it. Pack it again.`);
    }
    end = start;
  }
}

/** Positions come from the zip: one that `fs` would not take must be an error like any other, not a throw in a callback. */
class FileReader extends RandomAccessReader {
  readonly #handle: FileHandle;
  readonly #size: number;

  constructor(handle: FileHandle, size: number) {
    super();
    this.#handle = handle;
    this.#size = size;
  }

  override read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
    callback: (error: Error | null, bytesRead?: number) => void,
  ): void {
    if (position + length > this.#size) callback(new Error('it refers to bytes behind its end'));
    else read(this.#handle.fd, buffer, offset, length, position, callback);
  }
}

function tooManyEntries({ maxEntries }: ZipLimits): DomainError {
  return invalid(`The package has more than ${maxEntries} entries. Split it.`);
}

function invalid(message: string, cause?: unknown): DomainError {
  return new DomainError('PackageInvalid', message, { cause });
}

/** What the zip reader or zlib said, as a `PackageInvalid`; an error of the disk is the server's and stays. */
function asInvalid(error: unknown): unknown {
  if (error instanceof DomainError || (error instanceof Error && 'syscall' in error)) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return invalid(`The package is not a sound zip file, or only part of one: ${reason}. Send it again.`, error);
}

function quote(name: string): string {
  return `'${name.slice(0, 200)}'`;
}
