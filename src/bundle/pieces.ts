/** Characters that become one piece. */
const pieceLength = 256 * 1024;

/** A long text in pieces, so that no step of the work takes long. */
export class Pieces {
  readonly #pieces: Buffer[] = [];
  #waiting: string[] = [];
  #length = 0;
  #size = 0;

  add(text: string): void {
    this.#waiting.push(text);
    this.#length += text.length;
    if (this.#length >= pieceLength) this.#cut();
  }

  /** The bytes of all that was added, in UTF-8. */
  end(): { size: number; pieces: readonly Buffer[] } {
    this.#cut();
    return { size: this.#size, pieces: this.#pieces };
  }

  #cut(): void {
    const piece = Buffer.from(this.#waiting.join(''));
    this.#waiting = [];
    this.#length = 0;
    this.#size += piece.length;
    this.#pieces.push(piece);
  }
}
