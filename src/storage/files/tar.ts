import { createWriteStream } from 'node:fs';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { pack, type Pack } from 'tar-stream';
import { DomainError } from '../../runtime/errors.ts';
import type { Content } from './content.ts';
import { syncPath } from './durable.ts';

/** Bytes of a header, and the unit of sizes (POSIX.1-2017 pax, "ustar Interchange Format"). */
export const tarBlock = 512;
/** Most headers of an archive that is read. */
const maxHeaders = 1_000_000;
/** Most bytes of the records of a pax header. */
const maxPax = 65_536;
/** Most characters of the names of all members, of which each counts as 64 more for what is kept beside its name. */
const maxNames = 64 * 2 ** 20;

interface TarOptions {
  mode: number;
  /** The time of all members; now by default. */
  time?: Date;
}

/** A new tar file at `path`. It is `path` with `.part` until it is complete. */
export class TarWriter implements AsyncDisposable {
  readonly #path: string;
  readonly #part: string;
  readonly #options: TarOptions;
  readonly #pack: Pack = pack();
  readonly #written: Promise<void>;
  #isComplete = false;

  private constructor(path: string, part: string, file: ReturnType<typeof createWriteStream>, options: TarOptions) {
    this.#path = path;
    this.#part = part;
    this.#options = options;
    const packed = this.#pack as AsyncIterable<Buffer>;
    this.#written = pipeline(async function* () {
      yield* packed;
    }, file);
    // Each step waits for it too.
    this.#written.catch(() => undefined);
  }

  /** Rejects with `EEXIST` if the part of another writer exists, unless it may be `replaced`. */
  static async create(path: string, { replaced = false, ...options }: TarOptions & { replaced?: boolean }) {
    const part = `${path}.part`;
    const file = await open(part, replaced ? 'w' : 'wx', options.mode);
    return new TarWriter(path, part, file.createWriteStream(), options);
  }

  /** Adds a member of exactly `size` bytes. */
  async add(name: string, size: number, pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const { promise: added, resolve, reject } = Promise.withResolvers<void>();
    added.catch(() => undefined);
    const { mode, time } = this.#options;
    const header = { name, size, type: 'file', mode, ...(time && { mtime: time }) } as const;
    const sink = this.#pack.entry(header, (error) => (error ? reject(error) : resolve()));
    // The entry tells its error here, too, and would end the process.
    sink.on('error', () => undefined);
    for await (const each of pieces) {
      if (each.length === 0 || sink.write(each)) continue;
      // A full disk ends the file, and then nothing drains.
      await Promise.race([new Promise<void>((drained) => void sink.once('drain', () => drained())), this.#ended()]);
    }
    sink.end(undefined);
    await Promise.race([added, this.#ended()]);
  }

  /** Makes the file durable, and gives it its name. */
  async finish(): Promise<void> {
    this.#pack.finalize();
    await this.#written;
    await syncPath(this.#part);
    await rename(this.#part, this.#path);
    this.#isComplete = true;
    await syncPath(dirname(this.#path));
  }

  /** Removes a file that is not complete. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isComplete) return;
    this.#pack.destroy();
    await this.#written.catch(() => undefined);
    await rm(this.#part, { force: true });
  }

  /** Rejects when the file has failed. */
  async #ended(): Promise<never> {
    await this.#written;
    throw new Error(`${this.#part} has ended`);
  }
}

/** Where the bytes of a member are in its file. */
export interface TarMember {
  position: number;
  size: number;
}

/** A tar file that is read by position, so that a member can be read without those before it. */
export interface OpenTar extends AsyncDisposable {
  readonly path: string;
  /** The regular files, by their names without `./`. Names are no paths: nothing is written under them. */
  readonly members: ReadonlyMap<string, TarMember>;
  /** How much of the bound of names its members take, with `names` of `openTar`. */
  readonly names: number;
  /** The bytes of a member. Closing it closes nothing. */
  content(member: TarMember): Content & { readonly size: number };
}

/**
 * Opens a tar file. `names` is what the names of those that stay open beside it take. Throws `Invalid` if it is truncated, is no tar file, or has too many
 * names.
 */
export async function openTar(path: string, names = 0): Promise<OpenTar> {
  const file = await open(path, 'r');
  try {
    return {
      path,
      ...(await membersOf(path, file, names)),
      content: ({ position: start, size }) => ({
        size,
        read: async (target, position) => {
          const length = Math.max(0, Math.min(target.length, size - position));
          return (await file.read(target, 0, length, start + position)).bytesRead;
        },
        close: () => undefined,
      }),
      [Symbol.asyncDispose]: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function membersOf(path: string, file: FileHandle, others: number): Promise<Pick<OpenTar, 'members' | 'names'>> {
  const damaged = (reason: string) => new DomainError('Invalid', `${path}: this is no complete tar file: ${reason}`);
  const members = new Map<string, TarMember>();
  const { size: end } = await file.stat();
  const header = Buffer.alloc(tarBlock);
  let longName: string | undefined;
  let headers = 0;
  let names = others;
  for (let position = 0; position < end;) {
    if ((headers += 1) > maxHeaders) throw damaged(`it has more than ${maxHeaders} members`);
    const { bytesRead } = await file.read(header, 0, tarBlock, position);
    if (bytesRead < tarBlock) throw damaged('it is truncated');
    if (header.every((byte) => byte === 0)) return { members, names };
    const sum = header.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
    if (numberAt(header, 148, 8) !== sum) throw damaged(`the header at ${position} is damaged`);
    const size = numberAt(header, 124, 12);
    const start = position + tarBlock;
    if (size === undefined || start + size > end) throw damaged('it is truncated');
    const type = String.fromCharCode(header[156]!);
    if (type === 'x' || type === 'L') {
      if (size > maxPax) throw damaged(`the name at ${position} is too long`);
      const bytes = Buffer.alloc(size);
      await file.read(bytes, 0, size, start);
      longName = type === 'L' ? textAt(bytes, 0, size) : (paxPath(bytes) ?? longName);
    } else if (type !== 'g') {
      const prefix = textAt(header, 345, 155);
      const short = `${prefix === '' ? '' : `${prefix}/`}${textAt(header, 0, 100)}`;
      const name = (longName ?? short).replace(/^(?:\.\/)+/, '');
      longName = undefined;
      if (type === '0' || type === '\0') {
        if (members.has(name)) throw damaged(`it has two members of the name ${JSON.stringify(name.slice(0, 200))}`);
        if ((names += name.length + 64) > maxNames) throw damaged('it has too many names, or too long ones');
        members.set(name, { position: start, size });
      }
    }
    position = start + Math.ceil(size / tarBlock) * tarBlock;
  }
  throw damaged('its end is missing');
}

function textAt(bytes: Buffer, from: number, length: number): string {
  const part = bytes.subarray(from, from + length);
  const end = part.indexOf(0);
  return part.toString('utf8', 0, end < 0 ? part.length : end);
}

/** A number in octal digits, or in base 256 as GNU tar writes large ones. Undefined if it is none. */
function numberAt(header: Buffer, from: number, length: number): number | undefined {
  if (header.readUInt8(from) === 0x80) {
    const value = header.readBigUInt64BE(from + length - 8);
    return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : undefined;
  }
  const text = textAt(header, from, length).trim();
  return /^[0-7]{1,12}$/.test(text) ? Number.parseInt(text, 8) : undefined;
}

/** The record `path` of a pax header. */
function paxPath(bytes: Buffer): string | undefined {
  for (let at = 0; at < bytes.length;) {
    const space = bytes.indexOf(32, at);
    const length = Number(bytes.toString('latin1', at, Math.max(at, space)));
    if (space < 0 || !Number.isSafeInteger(length) || length <= 0) return undefined;
    const record = bytes.toString('utf8', space + 1, at + length - 1);
    if (record.startsWith('path=')) return record.slice('path='.length);
    at += length;
  }
  return undefined;
}
