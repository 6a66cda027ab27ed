import type { Digest } from '../../runtime/digest.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { Fetched, Received } from './resource.ts';

/** The beginning of a body whose rest can still be fetched. */
export interface Partial {
  head: Extract<Fetched, { kind: 'fetched' }>;
  staged: StagedFile;
  /** The bytes in the file. */
  received: Received;
  expected: Digest | undefined;
}

/** The most files that are kept, because each one uses a file descriptor. */
const maxKept = 64;

/** The beginnings of bodies whose readers have all left, kept for a while so that the next request can continue there. */
export class Partials {
  readonly #keptFor: number;
  readonly #kept = new Map<string, { partial: Partial; timer: NodeJS.Timeout }>();

  /** `keptFor` in milliseconds. */
  constructor(keptFor: number) {
    this.#keptFor = keptFor;
  }

  /** Keeps the beginning of the entry `id`; replaces an older one. Above the limit, the oldest of all is removed. */
  async keep(id: string, partial: Partial): Promise<void> {
    await this.take(id)?.staged.discard();
    const timer = setTimeout(() => {
      this.#kept.delete(id);
      partial.staged.discard().catch(() => undefined);
    }, this.#keptFor);
    timer.unref();
    this.#kept.set(id, { partial, timer });
    if (this.#kept.size <= maxKept) return;
    const [oldest] = this.#kept.keys();
    await this.take(oldest!)?.staged.discard();
  }

  /** Takes the beginning of the entry `id` out of the list. The caller then owns its file. */
  take(id: string): Partial | undefined {
    const found = this.#kept.get(id);
    if (!found) return undefined;
    clearTimeout(found.timer);
    this.#kept.delete(id);
    return found.partial;
  }

  /** Removes all files. */
  async close(): Promise<void> {
    for (const id of this.#kept.keys()) await this.take(id)?.staged.discard();
  }
}
