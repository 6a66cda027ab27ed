import { createHash } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { finished } from 'node:stream/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { crc32, createInflateRaw, inflateRaw, inflateRawSync } from 'node:zlib';
import type { Digest } from '../../runtime/digest.ts';
import type { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { release } from '../../runtime/incoming.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import { asInvalid, zipInvalid, quote, unsound, ZipBytes, type OpenBytes } from './zip-bytes.ts';
import { ReadWindow } from './read-window.ts';
import { defaultZipLimits, localHeaderBytes, ZipDirectory, type ZipEntry, type ZipLimits } from './zip-directory.ts';

const chunkBytes = 64 * 1024;
/** Bytes read at a time where small entries follow each other. */
const windowBytes = 256 * 1024;
/** Entries up to this size are inflated in one call: a package can have thousands of them, and a stream costs more. */
const smallBytes = 64 * 1024;
/** Entries up to this size are inflated in one call of a thread; larger ones as streams, one after the other. */
const mediumBytes = 2 * 1024 ** 2;
/** Entries of one zip that are inflated in threads at the same time. */
const maxThreads = 4;
/** As many of all zips together: each takes up to 4 MiB, and Node has four threads for them. */
const inflations = new Semaphore({ max: 4 });
/** After so many milliseconds of small entries, other work runs. */
const longestTurn = 5;
const inflateRawAsync = promisify(inflateRaw);
const localSignature = 0x04034b50;
/** Flag: the sizes follow the data, so the local header has none. */
const sizesFollow = 8;

/**
 * A stored zip, read by random access. The directory is checked when the zip is opened, an entry when it is read.
 * Throws `PackageInvalid` for every defect of the zip. Disk errors are thrown unchanged.
 */
export class Zip {
  readonly #open: OpenBytes;
  readonly #bytes: ZipBytes;
  readonly #directory: ZipDirectory;

  private constructor(open: OpenBytes, bytes: ZipBytes, directory: ZipDirectory) {
    this.#open = open;
    this.#bytes = bytes;
    this.#directory = directory;
  }

  /** Opens the zip whose bytes `open` opens. Close it with `using`. */
  static async open(open: OpenBytes, limits: Partial<ZipLimits> = {}): Promise<Zip> {
    const bytes = await ZipBytes.of(await open());
    try {
      return new Zip(open, bytes, await ZipDirectory.open(bytes, { ...defaultZipLimits, ...limits }));
    } catch (error) {
      bytes.close();
      throw error;
    }
  }

  [Symbol.dispose](): void {
    this.#bytes.close();
  }

  /** All entries, one after the other. There can be many, so do not collect them. */
  entries(): AsyncGenerator<ZipEntry, void, undefined> {
    return this.#directory.entries();
  }

  /** The entry that is extracted to `path`, in any case. Backslashes in `path` are read as slashes. */
  async find(path: string): Promise<ZipEntry | undefined> {
    const normalized = path
      .replaceAll('\\', '/')
      .replace(/^(?:\.?\/)+/, '')
      .toLowerCase();
    for await (const entry of this.entries()) if (entry.name.toLowerCase() === normalized) return entry;
    return undefined;
  }

  /** The entry's bytes. Throws `PackageInvalid` if there are more than `maxBytes`. */
  async read(entry: ZipEntry, maxBytes: number): Promise<Buffer> {
    if (entry.size > maxBytes)
      throw zipInvalid(`${quote(entry.name)} is larger than ${maxBytes} bytes. Make it smaller.`);
    if (!isSmall(entry)) return buffer(await this.open(entry));
    const bytes = await this.#inflate(entry);
    proveBytes(entry, bytes);
    return bytes;
  }

  /**
   * The entries that `isWanted`, one after the other, with their checked bytes, which are valid until the next one. For zips with
   * very many small entries, which are read through one buffer. Throws `PackageInvalid` for one of more than `maxBytes`.
   */
  async *contents(
    isWanted: (entry: ZipEntry) => boolean,
    maxBytes: number,
  ): AsyncGenerator<{ entry: ZipEntry; bytes: Buffer }, void, undefined> {
    const window = new ReadWindow(this.#bytes, windowBytes);
    for await (const entry of this.entries()) {
      await pause();
      if (!isWanted(entry)) continue;
      if (!isSmall(entry) || entry.size > maxBytes) {
        yield { entry, bytes: await this.read(entry, maxBytes) };
        continue;
      }
      const start = await this.#dataStart(entry, window);
      const bytes = inflateNow(entry, await window.read(start, entry.compressedSize));
      proveBytes(entry, bytes);
      yield { entry, bytes };
    }
  }

  /**
   * The SHA-256 of the entries that `isWanted`, in their order, with their bytes as they are stored: nothing is inflated. Lengths and
   * checksums are not checked.
   */
  async storedDigest(isWanted: (entry: ZipEntry) => boolean): Promise<Digest> {
    const window = new ReadWindow(this.#bytes, windowBytes);
    const hash = createHash('sha256');
    for await (const entry of this.entries()) {
      await pause();
      if (!isWanted(entry)) continue;
      const { name, rawName, method, size, compressedSize, crc32: checksum } = entry;
      hash.update(`${JSON.stringify([name, rawName, method, size, compressedSize, checksum])}\n`);
      const start = await this.#dataStart(entry, window);
      for (let at = 0; at < compressedSize; at += windowBytes) {
        hash.update(await window.read(start + at, Math.min(windowBytes, compressedSize - at)));
        await pause();
      }
    }
    return `sha256:${hash.digest('hex')}`;
  }

  /** Up to `length` bytes of the entry from `start`. The rest is not read, so length and checksum are not checked. */
  async slice(entry: ZipEntry, start: number, length: number): Promise<Buffer> {
    if (isSmall(entry)) return (await this.#inflate(entry)).subarray(start, start + length);
    const parts: Buffer[] = [];
    let position = 0;
    for await (const chunk of await this.open(entry)) {
      parts.push((chunk as Buffer).subarray(Math.max(0, start - position), Math.max(0, start + length - position)));
      position += (chunk as Buffer).length;
      if (position >= start + length) break;
    }
    return Buffer.concat(parts);
  }

  /**
   * Reads every entry to check its declared length and checksum. A package can have thousands of small entries, so these
   * are read through one buffer and inflated at once; larger ones are inflated in threads, a few at a time.
   */
  async verify(): Promise<void> {
    const window = new ReadWindow(this.#bytes, windowBytes);
    const threads = new Set<Promise<void>>();
    let failure: { error: unknown } | undefined;
    let turn = performance.now();
    try {
      for await (const entry of this.entries()) {
        if (failure) break;
        const start = await this.#dataStart(entry, window);
        if (isSmall(entry)) proveBytes(entry, inflateNow(entry, await window.read(start, entry.compressedSize)));
        else if (isMedium(entry)) {
          const thread = this.#verifyInThread(entry, start)
            .catch((error: unknown) => (failure ??= { error }))
            .then(() => void threads.delete(thread));
          threads.add(thread);
          if (threads.size >= maxThreads) await Promise.race(threads);
        } else await finished(Readable.from(inflate(this.#bytes, start, entry), { objectMode: false }).resume());
        if (performance.now() - turn < longestTurn) continue;
        await nextTurn();
        turn = performance.now();
      }
    } catch (error) {
      failure ??= { error };
    }
    // They use the zip's bytes, which the caller closes.
    await Promise.all(threads);
    if (failure) throw failure.error;
  }

  #verifyInThread(entry: ZipEntry, start: number): Promise<void> {
    return inflations.run(async () => {
      const stored = await this.#bytes.read(start, entry.compressedSize);
      const bytes = entry.method === 0 ? stored : await inflateInThread(entry, stored);
      proveBytes(entry, bytes);
      release(stored);
      if (bytes !== stored) release(bytes);
    });
  }

  /** The bytes of a small entry; length and checksum are not checked. */
  async #inflate(entry: ZipEntry): Promise<Buffer> {
    // A zip in memory is read without a wait, and can have many entries that are large when they are inflated.
    await pause();
    return inflateNow(entry, await this.#bytes.read(await this.#dataStart(entry), entry.compressedSize));
  }

  /** The entry's bytes, readable after the zip is closed. The stream fails at its end if length or checksum differ. */
  async open(entry: ZipEntry): Promise<Readable> {
    const start = await this.#dataStart(entry);
    // Lazy: the file is opened at the first read, so an unread stream does not keep it open.
    return Readable.from(inflateOpened(this.#open, start, entry), { objectMode: false });
  }

  /**
   * Position of the data: APPNOTE.TXT §4.3.7. A client may trust the local header, so it must not contradict the
   * directory. Its extra fields are skipped.
   */
  async #dataStart(
    { name, rawName, method, size, compressedSize, start }: ZipEntry,
    bytes: Pick<ZipBytes, 'read'> | ReadWindow = this.#bytes,
  ): Promise<number> {
    const header = await bytes.read(start, localHeaderBytes + rawName.length);
    if (header.readUInt32LE() !== localSignature) throw unsound(`${quote(name)} has no local header`);
    const sized = (header.readUInt16LE(6) & sizesFollow) === 0;
    if (
      header.readUInt16LE(26) !== rawName.length ||
      header.toString('latin1', localHeaderBytes) !== rawName ||
      header.readUInt16LE(8) !== method ||
      (sized && !sameSize(header.readUInt32LE(22), size)) ||
      (sized && !sameSize(header.readUInt32LE(18), compressedSize))
    ) {
      throw zipInvalid(`The header of ${quote(name)} contradicts the zip's directory. Pack it again.`);
    }
    const dataStart = start + header.length + header.readUInt16LE(28);
    if (dataStart + compressedSize > this.#bytes.size) throw unsound(`${quote(name)} ends beyond it`);
    return dataStart;
  }
}

function isSmall({ size, compressedSize }: ZipEntry): boolean {
  return Math.max(size, compressedSize) <= smallBytes;
}

/** 0xffffffff means that the size is in the 64-bit extension. */
function sameSize(local: number, declared: number): boolean {
  return local === declared || local === 0xffff_ffff;
}

function isMedium({ size, compressedSize }: ZipEntry): boolean {
  return Math.max(size, compressedSize) <= mediumBytes;
}

/** For one buffer with all bytes of an entry. With one byte more, zlib sees the end without a second buffer. */
function wholeEntry({ size }: ZipEntry) {
  return { maxOutputLength: Math.max(size, 1), chunkSize: Math.max(size + 1, 64) };
}

/** Inflates a small entry in one call. */
function inflateNow(entry: ZipEntry, stored: Buffer): Buffer {
  if (entry.method === 0 || stored.length === 0) return stored;
  try {
    return inflateRawSync(stored, wholeEntry(entry));
  } catch (error) {
    throw inflateError(entry, error);
  }
}

/** As `inflateNow`, without blocking the process. */
async function inflateInThread(entry: ZipEntry, stored: Buffer): Promise<Buffer> {
  try {
    return await inflateRawAsync(stored, wholeEntry(entry));
  } catch (error) {
    throw inflateError(entry, error);
  }
}

function inflateError(entry: ZipEntry, error: unknown): unknown {
  return (error as { code?: string }).code === 'ERR_BUFFER_TOO_LARGE' ? otherLength(entry) : asInvalid(error);
}

/** As `inflate`, on bytes of its own. */
async function* inflateOpened(open: OpenBytes, start: number, entry: ZipEntry) {
  const bytes = await ZipBytes.of(await open());
  try {
    yield* inflate(bytes, start, entry);
  } finally {
    bytes.close();
  }
}

async function* inflate(bytes: ZipBytes, start: number, entry: ZipEntry) {
  const { size, compressedSize, method } = entry;
  let length = 0;
  let checksum = 0;
  try {
    if (compressedSize > 0) {
      const stored = readThrough(bytes, start, start + compressedSize);
      const source = method === 0 ? stored : pipeline(stored, createInflateRaw({ chunkSize: chunkBytes }), () => {}); // the error reaches the loop
      for await (const chunk of source as AsyncIterable<Buffer>) {
        length += chunk.length;
        if (length > size) break;
        checksum = crc32(chunk, checksum);
        yield chunk;
      }
    }
  } catch (error) {
    // Whoever reads the entry has gone, which says nothing about the zip.
    if ((error as NodeJS.ErrnoException).code === 'ERR_STREAM_PREMATURE_CLOSE') throw error;
    throw asInvalid(error);
  }
  prove(entry, length, checksum);
}

/** The bytes from `start` to `end`, without the byte at `end`. */
async function* readThrough(bytes: ZipBytes, start: number, end: number) {
  for (let position = start; position < end; position += chunkBytes) {
    yield await bytes.read(position, Math.min(chunkBytes, end - position));
  }
}

function proveBytes(entry: ZipEntry, bytes: Buffer): void {
  prove(entry, bytes.length, crc32(bytes));
}

function prove(entry: ZipEntry, length: number, checksum: number): void {
  if (length !== entry.size) throw otherLength(entry);
  if (checksum !== entry.crc32) throw zipInvalid(`${quote(entry.name)} does not match its checksum. Pack it again.`);
}

function otherLength({ name }: ZipEntry): DomainError {
  return zipInvalid(`${quote(name)} is not as long as the zip declares. Pack it again.`);
}
