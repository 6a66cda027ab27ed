import { createHash, randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Database, Row, Transaction } from '../database/database.ts';
import { addCounts, countUse, counterNames, isBillable, isDownload, noCounts } from './counters.ts';
import type { Counters, SubjectKind, Use } from './counters.ts';
import { dayOf, dayToWrite, periodAt } from './period.ts';

/** Downloads of one package or image. */
export interface Downloads {
  accountId: number;
  name: string;
  /** How many, by version; images have one nameless version. */
  versions: ReadonlyMap<string, number>;
  last: number;
}

/** Adds downloads to whatever else keeps them, in the transaction that writes them down here. */
export type AddDownloads = (tx: Transaction, downloads: Downloads) => Promise<void>;

/** What was counted under one key since the last flush. */
interface Entry {
  accountId: number;
  token: string;
  kind: SubjectKind;
  name: string;
  day: number;
  counters: Counters;
  versions: Map<string, number> | undefined;
  last: number;
}

/** What a use is counted under. */
type Key = Pick<Use, 'at' | 'token' | 'kind' | 'subject' | 'status'>;

/** Entries that are written in one transaction: all of them, once. */
interface Batch {
  number: number;
  entries: Entry[];
}

const batchSize = 100;
const rowsPerStatement = 25;
/** So many keys are flushed without waiting for the next time. */
const many = 5000;
/** Beyond so many keys that could not be written, requests are counted without their subject. */
const mostKeys = 100_000;
/** Characters of a name in the tables. */
const longestName = 255;
/** How long a process's last batch is remembered after it ended without a farewell, in milliseconds. */
const rememberFor = 30 * 86_400_000;

/**
 * Usage, counted in memory and written down in batches by `flush`: a request writes nothing. A batch that fails is kept
 * and tried again, and is never written twice, even when nobody can tell whether its commit took place.
 */
export class UsageRecord {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #downloads: Partial<Record<SubjectKind, AddDownloads>>;
  readonly #writer = randomUUID();
  #entries = new Map<string, Entry>();
  /** The entry counted last: the next request is often about the same. */
  #last: Entry | undefined;
  #batches: Batch[] = [];
  #batchCount = 0;
  #flushing: Promise<void> | undefined;
  #writtenAt: number;

  constructor(database: Database, now: () => number, downloads: Partial<Record<SubjectKind, AddDownloads>> = {}) {
    this.#database = database;
    this.#now = now;
    this.#downloads = downloads;
    this.#writtenAt = now();
  }

  /** Counts a request that is over, if it is billable. `version` is of a package that is downloaded. */
  count(accountId: number, use: Use, version = ''): void {
    if (!isBillable(use.status)) return;
    const entry = this.#entryFor(accountId, use);
    countUse(entry.counters, use);
    if (!isDownload(use)) return;
    entry.versions ??= new Map();
    entry.versions.set(version, (entry.versions.get(version) ?? 0) + 1);
    entry.last = use.at;
  }

  /** Counts what was fetched from upstream for a request after it was over. */
  countFetched(accountId: number, use: Key & Pick<Use, 'fetched'>): void {
    if (isBillable(use.status)) this.#entryFor(accountId, use).counters.upstream_bytes += use.fetched;
  }

  /** Up to when everything counted here has been written down. */
  get asOf(): number {
    return this.#entries.size === 0 && this.#batches.length === 0 ? this.#now() : this.#writtenAt;
  }

  /** Writes down what was counted until now; called every few seconds. What could not be written is kept. */
  flush(): Promise<void> {
    const turn = (this.#flushing ?? Promise.resolve()).catch(() => undefined).then(() => this.#write());
    const flushing = turn.finally(() => {
      if (this.#flushing === flushing) this.#flushing = undefined;
    });
    this.#flushing = flushing;
    return flushing;
  }

  /** The last flush. */
  async close(): Promise<void> {
    await this.flush();
    if (this.#batchCount === 0) return;
    await this.#database.transaction((tx) => tx.run('DELETE FROM usage_writers WHERE id = ?', [this.#writer]));
  }

  #entryFor(accountId: number, use: Key): Entry {
    const { token = '', at } = use;
    const day = dayOf(at);
    let { kind } = use;
    // An error is nobody's use of a subject; a name that is not there would fill the table.
    let name = use.status < 400 ? nameOf(use.subject) : '';
    const last = this.#last;
    if (
      last?.name === name &&
      last.token === token &&
      last.accountId === accountId &&
      last.kind === kind &&
      last.day === day
    ) {
      return last;
    }
    let key = `${accountId} ${token} ${kind} ${day} ${name}`;
    let entry = this.#entries.get(key);
    if (entry) return (this.#last = entry);
    if (this.#entries.size + this.#batches.length * batchSize >= mostKeys) {
      kind = 'other';
      name = '';
      key = `${accountId} ${token} ${kind} ${day} `;
      entry = this.#entries.get(key);
      if (entry) return entry;
    }
    entry = { accountId, token, kind, name, day, counters: noCounts(), versions: undefined, last: 0 };
    this.#entries.set(key, entry);
    // What fails now fails again when somebody waits for it.
    if (this.#entries.size === many) this.flush().catch(() => undefined);
    return entry;
  }

  async #write(): Promise<void> {
    await this.#writeBatches();
    const until = this.#now();
    this.#seal();
    await this.#writeBatches();
    this.#writtenAt = until;
  }

  async #writeBatches(): Promise<void> {
    for (let batch = this.#batches[0]; batch; batch = this.#batches[0]) {
      const { number, entries } = batch;
      await this.#database.transaction((tx) => this.#writeBatch(tx, number, entries));
      this.#batches.shift();
      // SQLite answers without a turn of the event loop.
      await nextTurn();
    }
  }

  #seal(): void {
    const entries = [...this.#entries.values()];
    this.#entries = new Map();
    this.#last = undefined;
    for (let start = 0; start < entries.length; start += batchSize) {
      this.#batches.push({ number: ++this.#batchCount, entries: entries.slice(start, start + batchSize) });
    }
  }

  async #writeBatch(tx: Transaction, number: number, entries: readonly Entry[]): Promise<void> {
    if (!(await this.#isNew(tx, number))) return;
    const now = this.#now();
    const rows = rowsOf(entries, now);
    const update = counterNames.map((name) => `${name} = usage_counts.${name} + new.${name}`).join(', ');
    for (let start = 0; start < rows.length; start += rowsPerStatement) {
      const some = rows.slice(start, start + rowsPerStatement);
      await tx.upsert('usage_counts', ['account_id', 'dimension', 'period_start', 'name', 'day'], some, update);
    }
    for (const { kind, accountId, name, versions, last } of entries) {
      if (versions) await this.#downloads[kind]?.(tx, { accountId, name, versions, last });
    }
  }

  /** The update waits for an earlier try of the same batch whose end is not known, and then finds its number. */
  async #isNew(tx: Transaction, number: number): Promise<boolean> {
    const now = this.#now();
    if (number === 1) await tx.run('DELETE FROM usage_writers WHERE written_at < ?', [now - rememberFor]);
    await tx.insertNew('usage_writers', [{ id: this.#writer, batch: 0, written_at: now }]);
    const sql = 'UPDATE usage_writers SET batch = ?, written_at = ? WHERE id = ? AND batch < ?';
    return (await tx.run(sql, [number, now, this.#writer, number])) > 0;
  }
}

/**
 * What a subject is counted under. A repository's name behind its upstream's can be longer than the columns hold: then
 * its start and a hash, because a row that the database refuses would keep all others from being written.
 */
function nameOf(subject: string): string {
  if (subject.length <= longestName) return subject;
  const hash = createHash('sha256').update(subject).digest('hex').slice(0, 16);
  return `${subject.slice(0, longestName - 1 - hash.length)}~${hash}`;
}

/** An account's, each token's and each subject's rows, in the order of their key so that writers do not cross. */
function rowsOf(entries: readonly Entry[], now: number): Row[] {
  const rows = new Map<string, { counters: Counters; row: Row }>();
  for (const { accountId, token, kind, name, day: counted, counters } of entries) {
    const day = dayToWrite(counted, now);
    const dimensions: [string, string][] = [
      ['account', ''],
      ['token', token],
    ];
    if (kind !== 'other') dimensions.push([kind, name]);
    for (const [dimension, value] of dimensions) {
      const key = `${String(accountId).padStart(16, '0')} ${dimension} ${day} ${value}`;
      let found = rows.get(key);
      if (!found) {
        const row = { account_id: accountId, dimension, period_start: periodAt(day).start, name: value, day };
        rows.set(key, (found = { counters: noCounts(), row }));
      }
      addCounts(found.counters, counters);
    }
  }
  return [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, { row, counters }]) => ({ ...row, ...counters }));
}
