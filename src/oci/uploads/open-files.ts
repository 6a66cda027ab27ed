import type { StagedFile } from '../../storage/files/staged-file.ts';

/** The most files that stay open between the requests of their sessions, and for how many milliseconds. */
const max = 64;
const longest = 60_000;

/** Staged files that stay open between the requests of their sessions, with their running digests. */
export class OpenFiles {
  readonly #files = new Map<string, { staged: StagedFile; since: number }>();

  has(id: string): boolean {
    return this.#files.has(id);
  }

  /** The open file, which is then the caller's to close; undefined if there is none. */
  take(id: string): StagedFile | undefined {
    const staged = this.#files.get(id)?.staged;
    this.#files.delete(id);
    return staged;
  }

  /** Keeps a file open; closes the oldest one if there are too many. */
  async keep(staged: StagedFile): Promise<void> {
    this.#files.set(staged.id, { staged, since: performance.now() });
    if (this.#files.size <= max) return;
    const [id] = this.#files.keys();
    await this.take(id!)!.close();
  }

  /** Closes files whose sessions had no request for a minute. */
  async closeQuiet(): Promise<void> {
    const before = performance.now() - longest;
    for (const [id, { since }] of this.#files) {
      if (since >= before) break;
      await this.take(id)?.close();
    }
  }

  async close(): Promise<void> {
    for (const id of this.#files.keys()) await this.take(id)?.close();
  }
}
