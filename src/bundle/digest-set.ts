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

/** The digests that an installation has: in its mirror, and in accounts that host them. */
export class HeldDigests {
  readonly #mirrored = new DigestSet();
  readonly #hosted = new Map<string, DigestSet>();

  get size(): number {
    return [...this.#hosted.values()].reduce((sum, { size }) => sum + size, this.#mirrored.size);
  }

  /** Without an account, the mirror has it. */
  add(digest: string, account?: string): void {
    if (account === undefined) return this.#mirrored.add(digest);
    const held = this.#hosted.get(account) ?? new DigestSet();
    this.#hosted.set(account, held);
    held.add(digest);
  }

  /**
   * Whether an import finds it there for its mirror, or with `account` for what that account hosts. What only an account hosts is not the
   * mirror's, nor that of another account.
   */
  has(digest: string, account?: string): boolean {
    return this.#mirrored.has(digest) || (account !== undefined && this.#hosted.get(account)?.has(digest) === true);
  }
}

/** The last characters, which differ in the digests of both algorithms. */
function endOf(digest: string): string {
  return digest.slice(-2);
}
