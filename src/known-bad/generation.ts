import { createHash } from 'node:crypto';
import { forUpdate, placeholders, type Database, type Row, type Transaction } from '../database/database.ts';
import { afterKey } from '../database/tables.ts';
import { recordEvent } from '../events/record.ts';
import { digestOf } from '../runtime/digest.ts';
import { pagesOf } from '../runtime/pages.ts';
import { ListRefused, type ListLimits } from './entry.ts';
import { hitsText, recordHits, type Generations, type Hits } from './in-use.ts';
import type { ReadRecord } from './record.ts';
import type { SourceState } from './source.ts';

/** Rows or records that are written in one transaction, and bytes of them. */
const batchRows = 500;
const batchBytes = 2 ** 20;
/** Rows of one statement. */
const statementRows = 100;
const pageRows = 1000;

interface WalkedRow {
  kind: string;
  name_key: string;
  id: string;
  part: number;
  size_bytes: number;
  hash: string;
}

/** The generation that readers see, and the newest one. */
interface ListNumbers {
  generation: number;
  staged: number;
}

const key = ['list', 'generation', 'kind', 'name_key', 'id', 'part'] as const;

/** Another run writes this list now, or it is no longer configured. */
export class Superseded extends Error {}

/**
 * The entries of a list that are being written, beside those that readers see. `publish` shows all of them in one step. Whenever the
 * process ends, readers see all of the old entries or all of the new ones, and the next run deletes what is left.
 */
export class Generation {
  readonly #database: Database;
  readonly #list: string;
  readonly #number: number;
  readonly #limits: ListLimits;
  /** Rows by the ID of their record. */
  #waiting = new Map<string, Row[]>();
  #waitingRows = 0;
  #waitingBytes = 0;
  #rows = 0;
  #bytes = 0;

  private constructor(database: Database, list: string, number: number, limits: ListLimits) {
    this.#database = database;
    this.#list = list;
    this.#number = number;
    this.#limits = limits;
  }

  /** Begins a generation, after which an earlier one of this list that is not published never will be. */
  static async begin(database: Database, list: string, limits: ListLimits): Promise<Generation> {
    await database.transaction((tx) => insertList(tx, list), { uncached: true });
    return new Generation(database, list, (await supersede(database, list)).staged, limits);
  }

  /** Adds the entries of a record, in place of earlier ones with its ID. Throws `ListRefused` above a bound. */
  async add({ id, entries }: ReadRecord): Promise<void> {
    const rows = entries.map(({ kind, key: name, detail }, part) => {
      const text = JSON.stringify(detail);
      const place = { list: this.#list, generation: this.#number, kind, name_key: name, id, part };
      return { ...place, size_bytes: text.length, hash: digestOf(text), detail: text };
    });
    const bytes = rows.reduce((sum, { size_bytes: size }) => sum + size, 0);
    this.#rows += rows.length;
    this.#bytes += bytes;
    if (this.#rows > this.#limits.entries) throw new ListRefused(`has more than ${this.#limits.entries} entries`);
    if (this.#bytes > this.#limits.entryBytes)
      throw new ListRefused(`has more than ${this.#limits.entryBytes} bytes of entries`);
    this.#waiting.set(id, rows);
    this.#waitingRows += rows.length;
    this.#waitingBytes += bytes;
    if (Math.max(this.#waitingRows, this.#waiting.size) >= batchRows || this.#waitingBytes >= batchBytes)
      await this.#write();
  }

  /**
   * Shows these entries instead of the earlier ones; resolves to their number. Records an event if they differ. `hitsOf` says what is
   * in use of that which they name. Before it is denied, an event about each new hit is recorded: again, if the process ends between.
   * Throws `ListRefused` if there are too many of one name.
   */
  async publish(
    sourceKey: string,
    { validator, etag }: SourceState,
    hitsOf: (generations: Generations) => Promise<Hits>,
    now: number,
  ): Promise<number> {
    await this.#write();
    const { count, content } = await this.#check();
    const shown = await this.#database.get<{ generation: number; content: string }>(
      'SELECT generation, content FROM bad_lists WHERE name = ?',
      [this.#list],
    );
    const hits =
      shown?.content === content
        ? undefined
        : await hitsOf({ list: this.#list, next: this.#number, current: shown?.generation ?? 0 });
    const added = hits?.added ?? [];
    if (added.length > 0) {
      const announce = async (tx: Transaction) => {
        await this.#lock(tx);
        await recordHits(tx, this.#list, added, now);
      };
      await this.#database.transaction(announce, { uncached: true });
    }
    await this.#database.transaction(async (tx) => {
      const before = await this.#lock(tx);
      await tx.run(
        `UPDATE bad_lists SET generation = ?, entry_count = ?, content = ?, source_key = ?, validator = ?, etag = ?,
           refreshed_at = ?, checked_at = ?, failures = 0, in_use = COALESCE(?, in_use) WHERE name = ?`,
        [this.#number, count, content, sourceKey, validator, etag, now, now, hits ? hitsText(hits) : null, this.#list],
      );
      if (before.content === content) return;
      const details = { entries: count, entries_before: before.entry_count, in_use: added.length };
      const subject = { kind: 'list', name: this.#list };
      await recordEvent(tx, { type: 'known_bad.refreshed', accountId: 0, subject, details }, now);
    });
    await deleteBetween(this.#database, this.#list, 0, this.#number);
    return count;
  }

  /** Deletes what was written, unless it is published: a commit can have succeeded although it failed here. */
  async discard(): Promise<void> {
    const published = await this.#database.transaction(
      (tx) =>
        // Waits for the end of a commit.
        tx.get<{ generation: number }>(`SELECT generation FROM bad_lists WHERE name = ?${forUpdate(tx)}`, [this.#list]),
      { uncached: true },
    );
    if (published?.generation !== this.#number) await deleteGeneration(this.#database, this.#list, this.#number);
  }

  async #write(): Promise<void> {
    const ids = [...this.#waiting.keys()];
    if (ids.length === 0) return;
    const rows = [...this.#waiting.values()].flat();
    // No reader sees these rows yet.
    await this.#database.transaction(
      async (tx) => {
        await this.#lock(tx);
        await tx.run(`DELETE FROM bad_entries WHERE list = ? AND generation = ? AND id IN (${placeholders(ids)})`, [
          this.#list,
          this.#number,
          ...ids,
        ]);
        for (let from = 0; from < rows.length; from += statementRows)
          await tx.insertNew('bad_entries', rows.slice(from, from + statementRows));
      },
      { uncached: true },
    );
    this.#waiting = new Map();
    [this.#waitingRows, this.#waitingBytes] = [0, 0];
  }

  /** The number of the rows, and a digest of them. Throws `ListRefused` if there are too many of one name. */
  async #check(): Promise<{ count: number; content: string }> {
    const { entriesOfName, bytesOfName } = this.#limits;
    const hash = createHash('sha256');
    const start = [this.#list, this.#number, '', '', '', 0];
    const read = (after: (string | number)[]) => {
      const { sql, values } = afterKey(this.#database, key, after);
      return this.#database.select<WalkedRow>(
        `SELECT kind, name_key, id, part, size_bytes, hash FROM bad_entries WHERE list = ? AND generation = ? AND ${sql}
         ORDER BY list, generation, kind, name_key, id, part LIMIT ${pageRows}`,
        [this.#list, this.#number, ...values],
      );
    };
    const keyOf = (row: WalkedRow) => [this.#list, this.#number, row.kind, row.name_key, row.id, row.part];
    let [name, count, entries, bytes] = ['', 0, 0, 0];
    for await (const rows of pagesOf(start, pageRows, read, keyOf)) {
      for (const row of rows) {
        // All patterns are read together.
        const found = row.kind === 'pattern' ? 'patterns' : `${row.kind} ${row.name_key}`;
        if (found !== name) [name, entries, bytes] = [found, 0, 0];
        count += 1;
        entries += 1;
        bytes += row.size_bytes;
        if (entries > entriesOfName || bytes > bytesOfName)
          throw new ListRefused(`has more than ${entriesOfName} entries, or ${bytesOfName} bytes, for ${found}`);
        hash.update(JSON.stringify([row.kind, row.name_key, row.id, row.hash]));
      }
    }
    return { count, content: `sha256:${hash.digest('hex')}` };
  }

  async #lock(tx: Transaction): Promise<{ staged: number; content: string; entry_count: number }> {
    const row = await tx.get<{ staged: number; content: string; entry_count: number }>(
      `SELECT staged, content, entry_count FROM bad_lists WHERE name = ?${forUpdate(tx)}`,
      [this.#list],
    );
    if (row?.staged !== this.#number) throw new Superseded(`another run reads the list "${this.#list}" now`);
    return row;
  }
}

/** The row of a list, if it is missing. */
export async function insertList(tx: Transaction, name: string): Promise<void> {
  const none = { source_key: '', generation: 0, staged: 0, entry_count: 0, content: '', validator: '', failures: 0 };
  await tx.insertNew('bad_lists', [{ name, ...none }]);
}

/** Deletes what earlier runs of a list have left. No other run may read it now; if one does, it fails. */
export async function sweepList(database: Database, list: string, published: number): Promise<void> {
  const isLeft = async (first: number, end: number) => (await oldestBetween(database, list, first, end)) !== undefined;
  const last = Number.MAX_SAFE_INTEGER;
  if (!(await isLeft(0, published)) && !(await isLeft(published + 1, last))) return;
  const { generation, staged } = await supersede(database, list);
  await deleteBetween(database, list, 0, generation);
  await deleteBetween(database, list, generation + 1, staged);
}

/** Gives a list the number of a new generation. Runs that write one with another number cannot publish it from now on. */
function supersede(database: Database, list: string): Promise<ListNumbers> {
  return database.transaction(
    async (tx) => {
      await tx.run('UPDATE bad_lists SET staged = staged + 1 WHERE name = ?', [list]);
      return (await tx.get<ListNumbers>('SELECT generation, staged FROM bad_lists WHERE name = ?', [list]))!;
    },
    { uncached: true },
  );
}

/** Removes a list with its entries. Readers see none of them at once. */
export async function removeList(database: Database, name: string): Promise<void> {
  await database.transaction((tx) =>
    tx.run('UPDATE bad_lists SET generation = 0, entry_count = 0, staged = staged + 1 WHERE name = ?', [name]),
  );
  await deleteBetween(database, name, 0, Number.MAX_SAFE_INTEGER);
  await database.transaction((tx) => tx.run('DELETE FROM bad_lists WHERE name = ?', [name]), { uncached: true });
}

/** Deletes the entries of the generations from `first` to before `end`, which no reader sees. */
async function deleteBetween(database: Database, list: string, first: number, end: number): Promise<void> {
  for (;;) {
    const oldest = await oldestBetween(database, list, first, end);
    if (oldest === undefined) return;
    await deleteGeneration(database, list, oldest);
  }
}

async function oldestBetween(
  database: Database,
  list: string,
  first: number,
  end: number,
): Promise<number | undefined> {
  const found = await database.get<{ oldest: number | null }>(
    'SELECT MIN(generation) AS oldest FROM bad_entries WHERE list = ? AND generation >= ? AND generation < ?',
    [list, first, end],
  );
  return found?.oldest ?? undefined;
}

async function deleteGeneration(database: Database, list: string, generation: number): Promise<void> {
  for (;;) {
    const rows = await database.select<{ id: string }>(
      `SELECT id FROM bad_entries WHERE list = ? AND generation = ? ORDER BY id LIMIT ${batchRows}`,
      [list, generation],
    );
    const last = rows.at(-1)?.id;
    if (last === undefined) return;
    await database.transaction(
      (tx) => tx.run('DELETE FROM bad_entries WHERE list = ? AND generation = ? AND id <= ?', [list, generation, last]),
      { uncached: true },
    );
  }
}
