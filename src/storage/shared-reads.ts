import type { Content } from './content.ts';

/** Large pieces are fast; with very many readers at once, the later ones get small ones, so that memory stays bounded. */
const largePiece = 512 * 1024;
const smallPiece = 128 * 1024;
const largeReaders = 112;
const keptBuffers = 24;

const idleBuffers: Buffer[] = [];
/** Those that somebody holds, by their size, their position and their content's source. */
const shared = new Map<string, Piece>();

/** Bytes of some content in memory; nobody writes into them. */
export interface HeldRead {
  /** Empty at the end of the content. */
  bytes: Buffer;
  /** The bytes are not used any more. */
  release: () => void;
}

/**
 * Reads from `content` at `position`: as much as there is, up to the end of a piece. Whoever reads the same content while
 * others hold that piece gets theirs, so that what many are sent at once is read from the disk once. `readers` is how many
 * there are at the moment. Rejects as `Content.read` does.
 */
export async function holdRead(content: Content, position: number, readers: number): Promise<HeldRead> {
  const size = readers > largeReaders ? smallPiece : largePiece;
  const base = position - (position % size);
  const key = content.source === undefined ? undefined : `${size} ${base} ${content.source}`;
  const known = key === undefined ? undefined : shared.get(key);
  const piece = known && known.covers(position) ? known : new Piece(size, base, position, known ? undefined : key);
  piece.hold();
  const release = () => piece.release();
  try {
    return { bytes: await piece.read(content, position), release };
  } catch (error) {
    release();
    throw error;
  }
}

/** A part of some content, filled as far as somebody has asked for. */
class Piece {
  readonly #buffer: Buffer;
  readonly #key: string | undefined;
  readonly #base: number;
  /** What is there, from and up to which position. */
  readonly #start: number;
  #end: number;
  #filling: Promise<void> | undefined;
  #holders = 0;

  /** Whoever comes with the same `key` can share it. */
  constructor(size: number, base: number, start: number, key: string | undefined) {
    this.#buffer = (size === largePiece ? idleBuffers.pop() : undefined) ?? Buffer.allocUnsafe(size);
    this.#base = base;
    this.#start = this.#end = start;
    this.#key = key;
    if (key !== undefined) shared.set(key, this);
  }

  /** Whether a reader can go on from `position` here. */
  covers(position: number): boolean {
    return position >= this.#start && position <= this.#end;
  }

  hold(): void {
    this.#holders += 1;
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders > 0) return;
    if (this.#key !== undefined) shared.delete(this.#key);
    if (this.#buffer.length === largePiece && idleBuffers.length < keptBuffers) idleBuffers.push(this.#buffer);
  }

  async read(content: Content, position: number): Promise<Buffer> {
    // What another reader began can fail for reasons of its own, such as a client that left.
    while (position === this.#end && this.#filling) await this.#filling.catch(() => undefined);
    if (position === this.#end) await (this.#filling = this.#fill(content));
    return this.#buffer.subarray(position - this.#base, this.#end - this.#base);
  }

  async #fill(content: Content): Promise<void> {
    try {
      this.#end += await content.read(this.#buffer.subarray(this.#end - this.#base), this.#end);
    } finally {
      this.#filling = undefined;
    }
  }
}
