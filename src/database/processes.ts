import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, renameSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';

/** The processes that use a database, so that one of them can take over at once what another one has left behind. */
export interface Processes {
  /** Of this process, new at each start; null if the others could not see that it lives. */
  readonly id: string | null;
  /** Whether `gone` knows that a process has ended. Else the process may live and only be silent. */
  readonly isExact: boolean;
  /**
   * Those of `ids` whose process has ended, or, if that cannot be known, has not been heard of for `silentFor` milliseconds.
   * Never this process.
   */
  gone(ids: readonly string[], silentFor: number): Promise<ReadonlySet<string>>;
}

/** Locks a file that nothing else uses; undefined if another process has locked it. */
export type Lock = (path: string) => Disposable | undefined;

const isId = /^[0-9a-f-]{36}$/;

/**
 * The processes on one machine. Each has a file in `folder`, which it keeps locked. The system releases the lock when the
 * process ends, also when it is killed. A process without a file has ended, too.
 */
export class LockedProcesses implements Processes, Disposable {
  readonly isExact = true;
  readonly #folder: string;
  readonly #lock: Lock;
  #own: { id: string; lock: Disposable } | undefined;
  #failed = false;

  constructor(folder: string, lock: Lock) {
    this.#folder = folder;
    this.#lock = lock;
  }

  /** Makes the file when it is first needed. */
  get id(): string | null {
    if (!this.#own && !this.#failed) this.#enter();
    return this.#own?.id ?? null;
  }

  async gone(ids: readonly string[]): Promise<ReadonlySet<string>> {
    return new Set(ids.filter((id) => id !== this.#own?.id && isId.test(id) && this.#isGone(id)));
  }

  [Symbol.dispose](): void {
    // From now on others may take over what this process has not ended.
    if (this.#own) remove(join(this.#folder, this.#own.id));
    this.#own?.lock[Symbol.dispose]();
    this.#own = undefined;
    this.#failed = true;
  }

  #enter(): void {
    const id = randomUUID();
    const path = join(this.#folder, id);
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      for (const each of readdirSync(this.#folder)) if (isId.test(each)) this.#isGone(each);
      // No other process may find the file before it is locked.
      const lock = this.#lock(`${path}.new`);
      if (!lock) throw new Error('a new file is locked');
      renameSync(`${path}.new`, path);
      // SQLite has made it for the lock, and does not find it any more.
      remove(`${path}.new-journal`);
      this.#own = { id, lock };
    } catch {
      // The disk takes no file now: the others wait until the time of this process's work is over.
      this.#failed = true;
    }
  }

  /** Removes the file of a process that was killed. */
  #isGone(id: string): boolean {
    const path = join(this.#folder, id);
    try {
      if (!existsSync(path)) return existsSync(this.#folder);
      using lock = this.#lock(path);
      if (!lock) return false;
      remove(path);
      return true;
    } catch {
      // The file cannot be read: its process may live.
      return false;
    }
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It stays, unlocked, and is removed by a later process.
  }
}
