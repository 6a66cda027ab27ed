import { statSync } from 'node:fs';
import { databaseUnavailable } from './failure.ts';

/** The files of an open SQLite database: the database, its log, and the index of the log. */
const suffixes = ['', '-wal', '-shm'];

/**
 * Notices that a file of an open SQLite database was removed or replaced. SQLite would write on into the removed file,
 * and everything would be lost at the next start. An open file keeps its number, so that no other file can have it.
 */
export class SqliteFiles {
  readonly #path: string;
  readonly #known = new Map<string, string>();

  /** Call it when the database at `path` is open. */
  constructor(path: string) {
    this.#path = path;
    this.check();
  }

  /** Throws `DatabaseUnavailable` if a file is not the one that was there when it was first seen. */
  check(): void {
    for (const suffix of suffixes) {
      const known = this.#known.get(suffix);
      const found = identityOf(this.#path + suffix);
      if (known === undefined && found !== undefined) this.#known.set(suffix, found);
      if (known === undefined || known === found) continue;
      throw databaseUnavailable(
        'A file of the database was removed or replaced while the server runs. Stop the server, restore the file, and start again.',
      );
    }
  }
}

function identityOf(path: string): string | undefined {
  try {
    const found = statSync(path, { bigint: true, throwIfNoEntry: false });
    return found && `${found.dev} ${found.ino}`;
  } catch (error) {
    throw databaseUnavailable('The folder of the database cannot be read.', error);
  }
}
