import { copyPieces } from '../../storage/files/pieces.ts';

/** The bytes of a passed-through body that not all readers have read yet, in memory. */
export class UnreadBytes {
  /** The position in the body where the window began. */
  readonly base: number;
  #pieces: Buffer[] = [];
  #start: number;
  #end: number;

  constructor(base: number) {
    this.base = base;
    this.#start = base;
    this.#end = base;
  }

  /** The position in the body where the last piece ends. */
  get end(): number {
    return this.#end;
  }

  /** Bytes in memory. */
  get size(): number {
    return this.#end - this.#start;
  }

  push(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#end += piece.length;
  }

  /** Frees the pieces that end before or at `position`. */
  drop(position: number): void {
    let count = 0;
    for (const piece of this.#pieces) {
      if (this.#start + piece.length > position) break;
      this.#start += piece.length;
      count += 1;
    }
    this.#pieces.splice(0, count);
  }

  /** Copies into `target` from `position` on; returns the number of bytes copied. Throws for a part that was freed. */
  read(target: Buffer, position: number): number {
    if (position < this.#start)
      throw new Error('this part of the body was passed through and is not in memory any more');
    return copyPieces(this.#pieces, this.#start, target, position);
  }
}
