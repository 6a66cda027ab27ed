import { fromRandomAccessReaderPromise, getFileNameLowLevel, RandomAccessReader } from 'yauzl';
import type { DomainError } from '../../runtime/errors.ts';
import { ReadWindow } from './read-window.ts';
import { asInvalid, zipInvalid, quote, unsound, type ZipBytes } from './zip-bytes.ts';

/** Limits for a zip. With the defaults every package of the public gallery is accepted. */
export interface ZipLimits {
  /** Entries; the default is the highest count without the 64-bit extension. */
  readonly maxEntries: number;
  /** Bytes of the central directory. With 65,535 entries that is 250 bytes for each. */
  readonly maxDirectoryBytes: number;
  /** Bytes of an entry's name, of its extra fields and of its comment, each. Real ones have at most a few hundred. */
  readonly maxFieldBytes: number;
  /** Inflated bytes of all entries together. The gallery allows 250 MB packages; with text that inflates to 5 GB. */
  readonly maxTotalBytes: number;
  /** Inflated bytes per stored byte of one entry. Text reaches 20, sparse data 100; a zip bomb is near 1000. */
  readonly maxRatio: number;
  /** Inflated size in bytes below which the ratio is not checked. */
  readonly ratioFloor: number;
  /** Whether a backslash in a name is read as a slash, as old tools write it. */
  readonly backslashes: boolean;
}

/** See `ZipLimits`. */
export const defaultZipLimits: ZipLimits = {
  maxEntries: 65_535,
  maxDirectoryBytes: 16 * 1024 ** 2,
  maxFieldBytes: 1024,
  maxTotalBytes: 8 * 1024 ** 3,
  maxRatio: 200,
  ratioFloor: 1024 ** 2,
  backslashes: false,
};

/** A file in a zip. Its sizes are those that the zip declares; reading the entry checks them. */
export interface ZipEntry {
  /** The path that a client extracts to: without percent-encoding, as Open Packaging Conventions require. */
  readonly name: string;
  /** The bytes of the name as the zip has them, each as one character. */
  readonly rawName: string;
  readonly size: number;
  readonly compressedSize: number;
  /** 0: stored; 8: deflated. */
  readonly method: number;
  readonly crc32: number;
  /** Position of the local header. */
  readonly start: number;
}

/** A local header without its name and extra fields. */
export const localHeaderBytes = 30;
const headerBytes = 46;
const entrySignature = 0x02014b50;
const endSignatures = new Set([0x06054b50, 0x06064b50, 0x05054b50]);
const encrypted = 0x0001;
const stronglyEncrypted = 0x0040;
const zip64Field = 0x0001;
/** In a 32-bit field: the value is in the 64-bit extension. */
const elsewhere = 0xffff_ffff;
/** The most entries whose bytes may lie in another order than their names in the directory. */
const maxUnsorted = 65_535;
/** Bytes read at a time. Most directories are smaller. */
const windowBytes = 64 * 1024;

/**
 * The central directory of a zip: APPNOTE.TXT §4.3.12 and §4.3.16. It is not kept in memory, so the memory use does not
 * depend on its length. Throws `PackageInvalid` for every defect.
 */
export class ZipDirectory {
  readonly #bytes: ZipBytes;
  readonly #start: number;
  readonly #count: number;
  readonly #limits: ZipLimits;

  private constructor(bytes: ZipBytes, start: number, count: number, limits: ZipLimits) {
    this.#bytes = bytes;
    this.#start = start;
    this.#count = count;
    this.#limits = limits;
  }

  /** Finds the directory and checks every entry of it. */
  static async open(bytes: ZipBytes, limits: ZipLimits): Promise<ZipDirectory> {
    const [start, count] = await findDirectory(bytes);
    if (count > limits.maxEntries) throw tooMany(limits);
    if (start + count * headerBytes > bytes.size) throw unsound('its directory reaches beyond its end');
    const directory = new ZipDirectory(bytes, start, count, limits);
    await directory.#refuseOverlaps();
    return directory;
  }

  /** The entries in the directory's order. Each call reads them again. */
  async *entries(): AsyncGenerator<ZipEntry, void, undefined> {
    const { maxDirectoryBytes, maxFieldBytes, maxTotalBytes, maxRatio, ratioFloor } = this.#limits;
    const window = new ReadWindow(this.#bytes, windowBytes);
    let position = this.#start;
    let total = 0;
    for (let index = 0; index < this.#count; index += 1) {
      const header = await window.read(position, headerBytes);
      if (header.readUInt32LE() !== entrySignature) throw unsound('its directory is damaged');
      const lengths = [header.readUInt16LE(28), header.readUInt16LE(30), header.readUInt16LE(32)] as const;
      const length = headerBytes + lengths[0] + lengths[1] + lengths[2];
      if (Math.max(...lengths) > maxFieldBytes) {
        throw zipInvalid(
          `An entry of the zip has a name, extra fields or a comment of more than ${maxFieldBytes} bytes. Shorten them.`,
        );
      }
      if (position + length - this.#start > maxDirectoryBytes) {
        throw zipInvalid(`The names of the zip's entries take more than ${maxDirectoryBytes} bytes. Split it.`);
      }
      const entry = readEntry(await window.read(position, length), this.#limits);
      if (entry.size > ratioFloor && entry.size > entry.compressedSize * maxRatio) {
        throw zipInvalid(`${quote(entry.name)} inflates more than ${maxRatio} times. It looks like a zip bomb.`);
      }
      total += entry.size;
      if (total > maxTotalBytes) throw zipInvalid(`The zip inflates to more than ${maxTotalBytes} bytes. Split it.`);
      yield entry;
      position += length;
    }
    // If the count is too low, other readers would find entries that were not checked here.
    const next = (await window.read(position, 4)).readUInt32LE();
    if (next === entrySignature) {
      throw this.#count === 0xffff ? tooMany(this.#limits) : zipInvalid('The zip has more entries than it counts.');
    }
    if (!endSignatures.has(next)) throw zipInvalid("The zip's directory has no proper end. Pack it again.");
  }

  /** A small zip bomb is built with entries that share bytes: https://www.bamsoftware.com/hacks/zipbomb/ */
  async #refuseOverlaps(): Promise<void> {
    const starts = new Float64Array(this.#count);
    const ends = new Float64Array(this.#count);
    let count = 0;
    let isSorted = true;
    for await (const { start, rawName, compressedSize } of this.entries()) {
      isSorted &&= count === 0 || start >= starts[count - 1]!;
      starts[count] = start;
      ends[count] = start + localHeaderBytes + rawName.length + compressedSize;
      count += 1;
    }
    // To sort more of them would hold the event loop. Every known writer writes them in order.
    if (!isSorted && count > maxUnsorted)
      throw zipInvalid(`The zip has more than ${maxUnsorted} entries, in no order. Pack it again.`);
    const backwards = new Uint32Array(count).map((_, index) => count - 1 - index);
    if (!isSorted) backwards.sort((a, b) => starts[b]! - starts[a]!);
    let end = this.#start;
    for (const index of backwards) {
      if (ends[index]! > end) throw await this.#overlaps(index);
      end = starts[index]!;
    }
  }

  async #overlaps(entryIndex: number): Promise<DomainError> {
    let index = 0;
    let name = '';
    for await (const entry of this.entries()) {
      if (index === entryIndex) name = entry.name;
      index += 1;
    }
    return zipInvalid(`${quote(name)} overlaps other parts of the zip, or ends beyond it. Pack it again.`);
  }
}

/** Position and entry count of the directory, from the records at the end of the zip. */
async function findDirectory(bytes: ZipBytes): Promise<[start: number, count: number]> {
  try {
    const options = { autoClose: false, decodeStrings: false };
    const { readEntryCursor, entryCount } = await fromRandomAccessReaderPromise(new Reader(bytes), bytes.size, options);
    return [Number(readEntryCursor), entryCount];
  } catch (error) {
    throw asInvalid(error);
  }
}

class Reader extends RandomAccessReader {
  readonly #bytes: ZipBytes;

  constructor(bytes: ZipBytes) {
    super();
    this.#bytes = bytes;
  }

  override read(target: Buffer, offset: number, length: number, position: number, callback: ReadCallback): void {
    void this.#read(target.subarray(offset, offset + length), position, callback);
  }

  async #read(target: Buffer, position: number, callback: ReadCallback): Promise<void> {
    try {
      await this.#bytes.readInto(target, position);
    } catch (error) {
      callback(error as Error);
      return;
    }
    callback(null, target.length);
  }
}

type ReadCallback = (error: Error | null, bytesRead?: number) => void;

function readEntry(record: Buffer, { backslashes }: ZipLimits): ZipEntry {
  const flags = record.readUInt16LE(8);
  const method = record.readUInt16LE(10);
  const nameEnd = headerBytes + record.readUInt16LE(28);
  const nameBytes = record.subarray(headerBytes, nameEnd);
  // Extra fields are left out: .NET ignores the Unicode path extension, so two readers could see different names.
  const written = getFileNameLowLevel(flags, nameBytes, [], true);
  const raw = backslashes ? written.replaceAll('\\', '/') : written;
  const unescaped = unescape(raw);
  const name = backslashes ? unescaped.replaceAll('\\', '/') : unescaped;
  // Unescaping keeps every other character, so this also covers the raw name.
  if (/^\/|^[a-z]:|\\|\0/i.test(name) || name.split('/').includes('..')) {
    throw zipInvalid(`The entry ${quote(raw)} would be extracted outside of its folder. Use relative paths.`);
  }
  if ((flags & (encrypted | stronglyEncrypted)) !== 0) {
    throw zipInvalid(`${quote(name)} is encrypted. Pack it without a password.`);
  }
  if (method !== 0 && method !== 8) {
    throw zipInvalid(`${quote(name)} uses compression method ${method}. Use deflate, or none.`);
  }
  const extra = record.subarray(nameEnd, nameEnd + record.readUInt16LE(30));
  const [size, compressedSize, start] = wide(
    extra,
    [24, 20, 42].map((at) => record.readUInt32LE(at)),
  );
  if (method === 0 && size !== compressedSize) throw unsound(`${quote(name)} is stored with two different sizes`);
  return {
    name,
    rawName: nameBytes.toString('latin1'),
    size: size!,
    compressedSize: compressedSize!,
    method,
    crc32: record.readUInt32LE(16),
    start: start!,
  };
}

/** `values`; those that do not fit into 32 bits are read from the first 64-bit extension. APPNOTE.TXT §4.5.3 */
function wide(extra: Buffer, values: number[]): number[] {
  let extension: Buffer | undefined;
  for (let at = 0; at + 3 < extra.length;) {
    const end = at + 4 + extra.readUInt16LE(at + 2);
    if (end > extra.length) throw unsound('an extra field is longer than all extra fields together');
    if (extra.readUInt16LE(at) === zip64Field) extension ??= extra.subarray(at + 4, end);
    at = end;
  }
  if (!extension) return values;
  let at = 0;
  return values.map((value) => {
    if (value !== elsewhere) return value;
    if (at + 8 > extension.length) throw unsound('its 64-bit extension lacks a value');
    at += 8;
    return Number(extension.readBigUInt64LE(at - 8));
  });
}

/** As `Uri.UnescapeDataString`, which the client uses: wrongly encoded parts stay as they are. */
function unescape(name: string): string {
  return name.replaceAll(/(?:%[0-9a-f]{2})+/gi, (encoded) => {
    try {
      return decodeURIComponent(encoded);
    } catch {
      return encoded;
    }
  });
}

function tooMany({ maxEntries }: ZipLimits): DomainError {
  return zipInvalid(`The zip has more than ${maxEntries} entries. Split it.`);
}
