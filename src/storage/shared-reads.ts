import type { Content } from './content.ts';

/** Large pieces are fast. With very many concurrent readers, the later ones get small pieces, so that memory stays bounded. */
const largePiece = 512 * 1024;
const smallPiece = 128 * 1024;
const largeReaders = 112;
const keptBuffers = 24;

const idleBuffers: Buffer[] = [];
/** The pieces in use, by size, position and source of the content. */
const shared = new Map<string, Piece>();

/** Bytes of content in memory. They must not be changed. */
export interface HeldRead {
  /** Empty at the end of the content. */
  bytes: Buffer;
  /** Call this when the bytes are no longer used. */
  release: () => void;
}

/**
 * Reads from `content` at `position`: the available bytes, up to the end of a piece. Concurrent readers of the same content
 * share a piece, so that it is read from the disk once. `readers` is the number of current readers. Rejects as
 * `Content.read` does.
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

/** A part of content, filled as far as its readers have requested. */
class Piece {
  readonly #buffer: Buffer;
  readonly #key: string | undefined;
  readonly #base: number;
  /** The positions in the content between which the buffer is filled. */
  readonly #start: number;
  #end: number;
  #filling: Promise<void> | undefined;
  #holders = 0;

  /** Readers with the same `key` share the piece; undefined: it is not shared. */
  constructor(size: number, base: number, start: number, key: string | undefined) {
    this.#buffer = (size === largePiece ? idleBuffers.pop() : undefined) ?? Buffer.allocUnsafe(size);
    this.#base = base;
    this.#start = this.#end = start;
    this.#key = key;
    if (key !== undefined) shared.set(key, this);
  }

  /** Whether a reader can continue at `position` in this piece. */
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
    // The read of another reader can fail for its own reasons, for example because its client disconnected.
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
