/** Many digests. They are in small sets, because a large one that grows holds the event loop for long. */
export class DigestSet {
  readonly #parts = new Map<string, Set<string>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has(digest: string): boolean {
    return this.#parts.get(endOf(digest))?.has(digest) ?? false;
  }

  add(digest: string): void {
    if (this.has(digest)) return;
    const part = endOf(digest);
    let digests = this.#parts.get(part);
    if (!digests) this.#parts.set(part, (digests = new Set()));
    digests.add(digest);
    this.#size += 1;
  }
}

/** The last characters, which differ in the digests of both algorithms. */
function endOf(digest: string): string {
  return digest.slice(-2);
}
