import type { Content } from '../files/content.ts';

/** Large pieces are fast. With very many concurrent readers, the later ones get small pieces, so that memory stays bounded. */
const largePiece = 512 * 1024;
const smallPiece = 128 * 1024;
const largeReaders = 112;
const keptBuffers = 24;

/** Bytes of content in memory. They must not be changed. */
export interface HeldRead {
  /** Empty at the end of the content. */
  bytes: Buffer;
  /** Call this when the bytes are no longer used. */
  release: () => void;
}

/** Concurrent readers of the same content share a piece of it, so that it is read from the disk once. */
export class SharedReads {
  /** The pieces in use, by size, position and source of the content. */
  readonly #pieces = new Map<string, Piece>();
  readonly #idleBuffers: Buffer[] = [];

  /**
   * Reads from `content` at `position`: the available bytes, up to the end of a piece. `readers` is the number of current
   * readers. Rejects as `Content.read` does.
   */
  async hold(content: Content, position: number, readers: number): Promise<HeldRead> {
    const size = readers > largeReaders ? smallPiece : largePiece;
    const base = position - (position % size);
    const key = content.source === undefined ? undefined : `${size} ${base} ${content.source}`;
    const known = key === undefined ? undefined : this.#pieces.get(key);
    const piece = known?.covers(position) ? known : this.#piece(size, base, position, known ? undefined : key);
    piece.hold();
    const release = () => piece.release();
    try {
      return { bytes: await piece.read(content, position), release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Readers with the same `key` share the piece; undefined: it is not shared. */
  #piece(size: number, base: number, start: number, key: string | undefined): Piece {
    const buffer = (size === largePiece ? this.#idleBuffers.pop() : undefined) ?? Buffer.allocUnsafe(size);
    const piece = new Piece(buffer, base, start, () => {
      if (key !== undefined) this.#pieces.delete(key);
      if (size === largePiece && this.#idleBuffers.length < keptBuffers) this.#idleBuffers.push(buffer);
    });
    if (key !== undefined) this.#pieces.set(key, piece);
    return piece;
  }
}

/** A part of content, filled as far as its readers have requested. */
class Piece {
  readonly #buffer: Buffer;
  readonly #whenFree: () => void;
  readonly #base: number;
  /** The positions in the content between which the buffer is filled. */
  readonly #start: number;
  #end: number;
  #filling: Promise<void> | undefined;
  #holders = 0;

  /** Calls `whenFree` once its last holder has released it. */
  constructor(buffer: Buffer, base: number, start: number, whenFree: () => void) {
    this.#buffer = buffer;
    this.#base = base;
    this.#start = this.#end = start;
    this.#whenFree = whenFree;
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
    if (this.#holders === 0) this.#whenFree();
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
