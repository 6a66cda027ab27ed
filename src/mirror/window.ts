/** The bytes of a body that its readers have not all had yet: what is passed on without being stored. */
export class Window {
  /** Where in the body the window began. */
  readonly base: number;
  #pieces: Buffer[] = [];
  #start: number;
  #end: number;

  constructor(base: number) {
    this.base = base;
    this.#start = base;
    this.#end = base;
  }

  /** Where in the body the last piece ends. */
  get end(): number {
    return this.#end;
  }

  /** Bytes that are held. */
  get size(): number {
    return this.#end - this.#start;
  }

  push(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#end += piece.length;
  }

  /** Lets go of the pieces that lie wholly before `position`. */
  drop(position: number): void {
    let count = 0;
    for (const piece of this.#pieces) {
      if (this.#start + piece.length > position) break;
      this.#start += piece.length;
      count += 1;
    }
    this.#pieces.splice(0, count);
  }

  /** Copies into `target` from `position` on; resolves to the bytes copied. Throws for what was let go of. */
  read(target: Buffer, position: number): number {
    if (position < this.#start) throw new Error('this part of the body was passed on and is not held any more');
    let from = this.#start;
    let copied = 0;
    for (const piece of this.#pieces) {
      const skip = position + copied - from;
      if (skip < piece.length) copied += piece.copy(target, copied, skip);
      if (copied === target.length) break;
      from += piece.length;
    }
    return copied;
  }
}
