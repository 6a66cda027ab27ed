import type { Logger } from 'pino';
import { NameSet } from '../accounts/names.ts';
import type { Database } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import { digestOf } from '../runtime/digest.ts';
import { isDomainError } from '../runtime/errors.ts';
import { storageFailure } from '../storage/files/unavailable.ts';
import { messageOf } from '../upstream/failures.ts';
import { defaultListLimits, ListRefused, type AffectedTest, type ListLimits } from './entry.ts';
import { Generation, insertList, removeList, Superseded, sweepList } from './generation.ts';
import type { ListSettings } from './list-settings.ts';
import { readRecord } from './record.ts';
import { hitsOf, type ContentInUse, type Generations, type Hits } from './in-use.ts';
import { openSource, type SourceParts, type SourceState } from './source.ts';

/** Changed when records are read in another way, so that each list is read again. */
const format = 1;
const maxFailure = 500;

interface RefreshParts {
  database: Database;
  lists: () => Promise<readonly ListSettings[]>;
  stage: SourceParts['stage'];
  proxy: SourceParts['proxy'];
  /** Whether no URL may be requested. */
  offline: boolean;
  log: Logger;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  limits?: Partial<ListLimits> | undefined;
  isAffected: AffectedTest;
}

interface RefreshWork {
  signal: AbortSignal;
  /** Whether a user wants all lists to be read now. */
  isAsked?: boolean;
  say: (line: string) => void;
}

interface ListRow extends SourceState {
  name: string;
  source_key: string;
  generation: number;
  refreshed_at: number | null;
  failures: number;
}

/** Reads the lists of known bad content again. The job that calls it runs once at a time on all instances. */
export class ListRefresh {
  readonly #parts: RefreshParts;
  readonly #limits: ListLimits;

  constructor(parts: RefreshParts) {
    this.#parts = parts;
    this.#limits = { ...defaultListLimits, ...parts.limits };
  }

  /**
   * Reads each list whose time has come, whose settings have changed, or whose last attempt failed, or all if a user asks for it, and
   * removes lists that are no longer in the policy. A list that cannot be read stays as it is. Events say which of `content` new entries deny. Resolves to counts; rejects when the database fails or the
   * signal is aborted.
   */
  async run({ signal, say, isAsked = false }: RefreshWork, content?: ContentInUse): Promise<Record<string, number>> {
    const { database, log } = this.#parts;
    const settings = await this.#parts.lists();
    const rows = await database.select<ListRow>(
      'SELECT name, source_key, generation, validator, etag, refreshed_at, failures FROM bad_lists',
    );
    const counts = { lists_read: 0, lists_unchanged: 0, lists_failed: 0, lists_removed: 0, entries: 0 };
    for (const { name, generation } of rows) {
      if (settings.some((each) => each.name === name)) {
        await sweepList(database, name, generation);
        continue;
      }
      await removeList(database, name);
      counts.lists_removed += 1;
    }
    for (const each of settings) {
      const row = rows.find(({ name }) => name === each.name);
      if (!this.#isDue(each, row, isAsked)) continue;
      signal.throwIfAborted();
      try {
        const entries = await this.#read(each, row, content, signal);
        if (entries === undefined) counts.lists_unchanged += 1;
        else {
          counts.lists_read += 1;
          counts.entries += entries;
        }
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof Superseded || isDomainError(error, 'DatabaseUnavailable')) throw error;
        const reason = reasonOf(error);
        await this.#recordFailure(each.name, reason);
        log.warn({ list: each.name, reason }, 'a list of known bad content was not read');
        say(`the list "${each.name}" ${reason}`);
        counts.lists_failed += 1;
      }
    }
    return counts;
  }

  #isDue(settings: ListSettings, row: ListRow | undefined, isAsked: boolean): boolean {
    if (settings.url !== undefined && this.#parts.offline) return false;
    if (isAsked || !row || row.refreshed_at === null || row.failures > 0 || row.source_key !== keyOf(settings))
      return true;
    const age = this.#parts.now() - row.refreshed_at;
    // After the clock was set back, a list would wait for too long.
    return age < 0 || age >= settings.refresh;
  }

  /** Resolves to the number of entries; undefined if the source has not changed. */
  async #read(
    settings: ListSettings,
    row: ListRow | undefined,
    content: ContentInUse | undefined,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const { database, stage, proxy, now } = this.#parts;
    const { name } = settings;
    const limits = this.#limits;
    const sourceKey = keyOf(settings);
    const known = row && row.generation > 0 && row.source_key === sourceKey ? row : undefined;
    await using source = await openSource(settings, known, { stage, proxy, limits, signal });
    if (!source || source.validator === known?.validator) {
      await this.#recordUnchanged(name, source?.etag ?? known!.etag);
      return undefined;
    }
    const wanted = new NameSet(settings.ids);
    const counts = (id: string) => wanted.includes(id.toLowerCase());
    const generation = await Generation.begin(database, name, limits);
    try {
      for await (const { value, label } of source.records({ limits, counts })) {
        signal.throwIfAborted();
        const record = readRecord(value, label, counts);
        if (record) await generation.add(record);
      }
      const { isAffected } = this.#parts;
      const inUse = async (generations: Generations): Promise<Hits> => {
        if (!content) return { added: [], known: [] };
        const { added, known } = await hitsOf({ database, content, isAffected, signal, now: now() }, generations);
        const [excepted = [], told = []] = [true, false].map((wanted) =>
          added.filter(({ id }) => settings.except.includes(id) === wanted),
        );
        return { added: told, known: [...known, ...excepted] };
      };
      return await generation.publish(sourceKey, source, inUse, now());
    } catch (error) {
      // If this fails too, the next run deletes it.
      await generation.discard().catch(() => undefined);
      throw error;
    }
  }

  async #recordUnchanged(name: string, etag: string | null): Promise<void> {
    const { database, now } = this.#parts;
    const sql = 'UPDATE bad_lists SET etag = ?, refreshed_at = ?, checked_at = ?, failures = 0 WHERE name = ?';
    await database.transaction((tx) => tx.run(sql, [etag, now(), now(), name]), { uncached: true });
  }

  /** Records an event for the first failure after a success. */
  async #recordFailure(name: string, reason: string): Promise<void> {
    const { database, now } = this.#parts;
    const at = now();
    await database.transaction(
      async (tx) => {
        await insertList(tx, name);
        const before = await tx.get<{ failures: number }>('SELECT failures FROM bad_lists WHERE name = ?', [name]);
        const sql =
          'UPDATE bad_lists SET failures = failures + 1, failure = ?, failed_at = ?, checked_at = ? WHERE name = ?';
        await tx.run(sql, [reason, at, at, name]);
        if (before!.failures > 0) return;
        const subject = { kind: 'list', name };
        await recordEvent(tx, { type: 'known_bad.failed', accountId: 0, subject, details: { reason } }, at);
      },
      { uncached: true },
    );
  }
}

/** By which it is known that the settings of a list have changed so that it must be read again. */
function keyOf({ url, file, ids }: ListSettings): string {
  return digestOf(JSON.stringify([format, url ?? null, file ?? null, ids]));
}

/** Follows the name of the list in a sentence. */
function reasonOf(error: unknown): string {
  const { message, code } = error as { message: string; code?: string };
  if (error instanceof ListRefused) return message.slice(0, maxFailure);
  if (code === 'ENOENT') return 'cannot be read: there is no such file or folder';
  const text = isDomainError(error) || storageFailure(error) ? `cannot be read: ${message}` : messageOf(error);
  return text.slice(0, maxFailure);
}
