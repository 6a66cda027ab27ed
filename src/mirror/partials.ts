import type { Digest } from '../digest.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import type { Fetched, Received } from './resource.ts';

/** The beginning of a body, of which the rest can still be fetched. */
export interface Partial {
  head: Extract<Fetched, { kind: 'fetched' }>;
  staged: StagedFile;
  /** What is in the file. */
  received: Received;
  expected: Digest | undefined;
}

/** Files that are kept at most: each has a descriptor. */
const mostKept = 64;

/** What came of bodies whose readers have all left: kept for a while, so that the next one who asks need not begin anew. */
export class Partials {
  readonly #keptFor: number;
  readonly #kept = new Map<string, { partial: Partial; timer: NodeJS.Timeout }>();

  /** `keptFor` in milliseconds. */
  constructor(keptFor: number) {
    this.#keptFor = keptFor;
  }

  /** Keeps what came of the entry `id`, in place of what was kept of it before. */
  async keep(id: string, partial: Partial): Promise<void> {
    await this.take(id)?.staged.discard();
    const timer = setTimeout(() => {
      this.#kept.delete(id);
      partial.staged.discard().catch(() => undefined);
    }, this.#keptFor);
    timer.unref();
    this.#kept.set(id, { partial, timer });
    if (this.#kept.size <= mostKept) return;
    const [oldest] = this.#kept.keys();
    await this.take(oldest!)?.staged.discard();
  }

  /** What is kept of the entry `id`; from here on it is the caller's. */
  take(id: string): Partial | undefined {
    const found = this.#kept.get(id);
    if (!found) return undefined;
    clearTimeout(found.timer);
    this.#kept.delete(id);
    return found.partial;
  }

  /** Removes all that is kept. */
  async close(): Promise<void> {
    for (const id of this.#kept.keys()) await this.take(id)?.staged.discard();
  }
}
