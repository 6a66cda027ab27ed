import { createHash, randomUUID } from 'node:crypto';
import type { Principal } from '../accounts/principal.ts';
import { inTurn } from '../runtime/in-turn.ts';
import type { Database, Row, Transaction } from '../database/database.ts';
import { addCounts, countUse, counterNames, isBillable, isDownload, noCounts } from './counters.ts';
import type { Counters, SubjectKind, Use } from './counters.ts';
import { dayOf, dayToWrite, periodAt } from './period.ts';
import { noteContent, type Pulls, type UsedContents, type WrittenPulls } from './pulls.ts';

/** Downloads of one package or image. */
export interface Downloads {
  accountId: number;
  name: string;
  /** Number of downloads by version; of an image by the digest of its manifest. */
  versions: ReadonlyMap<string, number>;
  /** Time of the last one; milliseconds since 1970 UTC. */
  last: number;
}

/** Adds downloads to other tables, in the transaction that writes them to the usage tables. */
export type AddDownloads = (tx: Transaction, downloads: Downloads) => Promise<void>;

/** Counts of one key since the last flush. */
interface UnwrittenCounts {
  accountId: number;
  token: string;
  kind: SubjectKind;
  name: string;
  day: number;
  counters: Counters;
  versions: Map<string, number> | undefined;
  contents: UsedContents[];
  last: number;
}

/** The fields of a use that decide which entry it counts for. */
type Key = Pick<Use, 'at' | 'token' | 'kind' | 'subject' | 'status'>;

/** Entries that one transaction writes exactly once. */
interface Batch {
  number: number;
  entries: UnwrittenCounts[];
}

/** Counts of a process that could not write them. `writer` and the numbers of the batches say which are in the database. */
export interface UnwrittenUsage {
  writer: string;
  batches: readonly Batch[];
}

const batchSize = 100;
const rowsPerStatement = 25;
/** At this many keys, a flush starts at once. */
const many = 5000;
/** At this many keys that are not written yet, requests are counted without their subject, so that memory stays bounded. */
const maxKeys = 100_000;
/** Most characters of a name in the tables. */
const maxNameLength = 255;
/** The number of the last batch of a process that was killed is kept for this long, in milliseconds. */
const rememberFor = 30 * 86_400_000;

/**
 * Counts usage in memory. `flush` writes it in batches, so a request writes nothing. A batch that fails is kept and
 * repeated. No batch is written twice, even when it is unknown whether its commit succeeded.
 */
export class UsageRecord {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #downloads: Partial<Record<SubjectKind, AddDownloads>>;
  readonly #pulls: Pulls | undefined;
  readonly #writer = randomUUID();
  #entries = new Map<string, UnwrittenCounts>();
  /** The entry of the last request, because the next request often has the same. */
  #last: UnwrittenCounts | undefined;
  #batches: Batch[] = [];
  #batchCount = 0;
  #writtenAt: number;
  #isTaken = false;

  constructor(
    database: Database,
    now: () => number,
    downloads: Partial<Record<SubjectKind, AddDownloads>> = {},
    pulls?: Pulls,
  ) {
    this.#pulls = pulls;
    this.#database = database;
    this.#now = now;
    this.#downloads = downloads;
    this.#writtenAt = now();
  }

  /**
   * Counts a finished request if it is billable. `version` is the version of a package, or the digest of an image, that the request
   * got or sent. With `principal` it is also recorded who did so.
   */
  count(accountId: number, use: Use, version = '', principal?: Principal): void {
    if (!isBillable(use.status)) return;
    const entry = this.#entryFor(accountId, use);
    countUse(entry.counters, use);
    if (principal && version !== '') {
      noteContent(entry.contents, principal, use, version);
    }
    if (!isDownload(use)) return;
    entry.versions ??= new Map();
    entry.versions.set(version, (entry.versions.get(version) ?? 0) + 1);
    entry.last = use.at;
  }

  /** Counts bytes that were fetched from an upstream for a request after its end. */
  countFetched(accountId: number, use: Key & Pick<Use, 'fetched'>): void {
    if (isBillable(use.status)) this.#entryFor(accountId, use).counters.upstream_bytes += use.fetched;
  }

  /** Everything counted before this time is written; milliseconds since 1970 UTC. */
  get asOf(): number {
    return this.#entries.size === 0 && this.#batches.length === 0 ? this.#now() : this.#writtenAt;
  }

  /** Writes all counts so far; called every few seconds. Counts that could not be written are kept. */
  readonly flush = inTurn(() => this.#write());

  /** The last flush. */
  async close(): Promise<void> {
    await this.flush();
    // The next start still needs the number of the last batch for the counts that were taken.
    if (this.#batchCount === 0 || this.#isTaken) return;
    await this.#database.transaction((tx) => tx.run('DELETE FROM usage_writers WHERE id = ?', [this.#writer]));
  }

  /**
   * The counts that are not written, or whose write has not ended, for `restore` in another process. Call it when `close`
   * failed or did not end. Undefined if there are none.
   */
  takeUnwritten(): UnwrittenUsage | undefined {
    this.#isTaken = true;
    this.#seal();
    return this.#batches.length === 0 ? undefined : { writer: this.#writer, batches: [...this.#batches] };
  }

  /**
   * Writes the counts that another process could not write, except batches that are in the database already. It can be
   * repeated, also by several processes, for the 30 days that the number of a last batch is kept.
   */
  async restore({ writer, batches }: UnwrittenUsage): Promise<void> {
    for (const { number, entries } of batches) {
      await this.#writeOnce(writer, number, entries);
    }
  }

  #entryFor(accountId: number, use: Key): UnwrittenCounts {
    const { token = '', at } = use;
    const day = dayOf(at);
    let { kind } = use;
    // Errors are counted without a subject: names that do not exist would fill the table.
    let name = use.status < 400 ? usageName(use.subject) : '';
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
    if (this.#entries.size + this.#batches.length * batchSize >= maxKeys) {
      kind = 'other';
      name = '';
      key = `${accountId} ${token} ${kind} ${day} `;
      entry = this.#entries.get(key);
      if (entry) return entry;
    }
    entry = {
      accountId,
      token,
      kind,
      name,
      day,
      counters: noCounts(),
      versions: undefined,
      contents: [],
      last: 0,
    };
    this.#entries.set(key, entry);
    // A failure is ignored here: the next flush reports it.
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
      await this.#writeOnce(this.#writer, number, entries);
      this.#batches.shift();
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

  async #writeOnce(writer: string, number: number, entries: readonly UnwrittenCounts[]): Promise<void> {
    const written = await this.#database.transaction((tx) => this.#writeBatch(tx, writer, number, entries));
    if (written) this.#pulls?.remember(written);
  }

  /** Resolves to what `Pulls` wrote; undefined if it wrote nothing. */
  async #writeBatch(
    tx: Transaction,
    writer: string,
    number: number,
    entries: readonly UnwrittenCounts[],
  ): Promise<WrittenPulls | undefined> {
    if (!(await this.#isNew(tx, writer, number))) return undefined;
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
    return this.#pulls?.write(tx, entries);
  }

  /** If an earlier attempt of this batch may still commit, the update waits for it, and then finds its number. */
  async #isNew(tx: Transaction, writer: string, number: number): Promise<boolean> {
    const now = this.#now();
    if (number === 1) await tx.run('DELETE FROM usage_writers WHERE written_at < ?', [now - rememberFor]);
    await tx.insertNew('usage_writers', [{ id: writer, batch: 0, written_at: now }]);
    const sql = 'UPDATE usage_writers SET batch = ?, written_at = ? WHERE id = ? AND batch < ?';
    return (await tx.run(sql, [number, now, writer, number])) > 0;
  }
}

/**
 * The name under which a subject is counted. The names of an upstream and its repository together can be longer than the
 * column. Then this is the start of the name and a hash: a row that the database refuses would block all other rows.
 */
export function usageName(subject: string): string {
  if (subject.length <= maxNameLength) return subject;
  const hash = createHash('sha256').update(subject).digest('hex').slice(0, 16);
  return `${subject.slice(0, maxNameLength - 1 - hash.length)}~${hash}`;
}

/** The rows of accounts, tokens and subjects, in the order of their keys, so that concurrent writers do not deadlock. */
function rowsOf(entries: readonly UnwrittenCounts[], now: number): Row[] {
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
