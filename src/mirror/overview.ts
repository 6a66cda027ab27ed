import { placeholders, type Database, type Value } from '../database/database.ts';
import { rankedRows } from '../database/ranked-rows.ts';
import { compareRanks, type ListTotal, type Rank, type Ranked } from '../runtime/ranked.ts';
import { DomainError } from '../runtime/errors.ts';
import { recordEvent } from '../events/record.ts';
import type { UpstreamFigures } from '../metrics/upstreams.ts';
import { discard } from '../upstream/body.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { ListedKinds } from './store/entry-kinds.ts';
import type { Mirror } from './mirror.ts';
import { UpstreamSamples } from './upstream-samples.ts';
import type { CachedTotals, MirrorTotals } from './store/totals.ts';

/** An upstream as an operator sees it. */
export interface UpstreamView {
  upstream: Upstream;
  /** The kinds of its entries. */
  kinds: readonly string[];
  /** Of all processes of this instance since its start; undefined if none has counted it. */
  figures: UpstreamFigures | undefined;
  /** Undefined while it is counted for the first time. */
  cached: CachedTotals | undefined;
}

/** A stored entry of an upstream. Times are in milliseconds since 1970 UTC. */
export interface StoredEntry {
  id: string;
  kind: string;
  name: string;
  reference: string;
  digest: string;
  contentType: string;
  sizeBytes: number;
  storedAt: number;
  validatedAt: number;
  lastUsedAt: number;
}

interface EntryFilter {
  /** Only entries of this kind. */
  kind?: string | undefined;
  /** Only names that begin with this text; in lower case. */
  prefix?: string | undefined;
}

interface OverviewParts {
  database: Database;
  mirror: Mirror;
  upstreams: readonly Upstream[];
  totals: MirrorTotals;
  /** How the entries of each kind of upstreams are listed. */
  kinds: ReadonlyMap<string, ListedKinds>;
  figures: () => Promise<UpstreamFigures[]>;
  /** The address that shows whether an upstream works. */
  probe: (upstream: Upstream) => URL;
  now: () => number;
}

const columns = `id, kind, name, reference, digest, content_type AS contentType, size_bytes AS sizeBytes,
  stored_at AS storedAt, validated_at AS validatedAt, used_at AS lastUsedAt`;
/** The numbers by which entries are sorted. */
const entryOrders = { size: 'size_bytes', used: 'used_at', stored: 'stored_at' } as const;
/** Most entries with one prefix that are sorted. */
const maxSorted = 10_000;
/** Sorts after every name that begins with the text before it. */
const lastCharacter = '\u{10FFFF}';

/** The upstreams of this server and what is stored of them, for its operator. */
export class MirrorOverview {
  readonly #parts: OverviewParts;
  readonly samples: UpstreamSamples;

  constructor(parts: OverviewParts) {
    this.#parts = parts;
    this.samples = new UpstreamSamples(parts.database, parts.now);
  }

  /** Short work that each process repeats. `own` returns the figures of this process alone. */
  chores(own: () => readonly UpstreamFigures[]) {
    const failure = 'the samples of upstreams were not written; the next attempt includes them';
    return [
      { interval: 60_000, run: () => this.samples.add(own()), failure },
      { interval: 3_600_000, run: () => this.samples.deleteOld(), failure: 'old samples were not deleted' },
    ];
  }

  /** All upstreams, in the order of the settings. */
  async list(): Promise<UpstreamView[]> {
    const { upstreams, totals, figures } = this.#parts;
    const [all, cached] = await Promise.all([figures(), totals.read()]);
    return upstreams.map((upstream) => ({
      upstream,
      kinds: this.#kindsOf(upstream),
      figures: all.find(({ kind, id }) => id === upstream.id && kind === upstream.config.kind),
      cached: cached?.get(upstream),
    }));
  }

  /** Throws `NotFound`, and `Invalid` if a feed and a registry have this ID and `kind` is undefined. */
  find(id: string, kind?: string): Upstream {
    const found = this.#parts.upstreams.filter(
      (each) => each.id === id && (kind === undefined || each.config.kind === kind),
    );
    if (found.length === 1) return found[0]!;
    if (found.length === 0) {
      throw new DomainError('NotFound', `The settings have no upstream with the ID "${id.slice(0, 100)}".`);
    }
    const choices = found.map(({ config }) => `kind=${config.kind}`).join(' or ');
    throw new DomainError('Invalid', `kind: a feed and a registry have the ID "${id}". Send ${choices}.`, {
      detail: { parameter: 'kind' },
    });
  }

  /** Ends the pauses of an upstream in this process, and sends it a request. Its state shows whether that succeeded. */
  async retry(upstream: Upstream): Promise<void> {
    upstream.tryNow();
    try {
      discard((await upstream.send({ url: this.#parts.probe(upstream), subject: 'retry' })).body);
    } catch (error) {
      if (!(error instanceof UpstreamError)) throw error;
    }
  }

  /** Up to `limit` entries of an upstream after (`kind`, `name`, `id`): by kind, name and ID. */
  async entries(
    upstream: Upstream,
    { kind, prefix = '' }: EntryFilter,
    limit: number,
    after?: readonly [kind: string, name: string, id: string],
  ): Promise<StoredEntry[]> {
    const all = this.#kindsOf(upstream);
    const kinds = all.slice(after ? Math.max(0, all.indexOf(after[0])) : 0);
    const found: StoredEntry[] = [];
    // One query for each kind, so that each reads a part of one index and no more rows than it returns.
    for (const each of kinds.filter((name) => kind === undefined || name === kind)) {
      if (found.length === limit) break;
      const [name, id] = after?.[0] === each ? [after[1], after[2]] : [prefix, ''];
      const values: Value[] = [upstream.id, each, name, name, id];
      if (prefix !== '') values.push(prefix + lastCharacter);
      found.push(
        ...(await this.#parts.database.select<StoredEntry>(
          `SELECT ${columns} FROM mirror_entries WHERE upstream = ? AND kind = ? AND name >= ? AND (name > ? OR id > ?)
           ${prefix === '' ? '' : 'AND name < ?'} ORDER BY name, id LIMIT ?`,
          [...values, limit - found.length],
        )),
      );
    }
    return found;
  }

  /**
   * Up to `limit` entries of an upstream, the largest or latest first, after `after`. Throws `Invalid` if more than 10,000
   * begin with the prefix.
   */
  async sortedEntries(
    upstream: Upstream,
    sort: keyof typeof entryOrders,
    { kind, prefix = '' }: EntryFilter,
    limit: number,
    after: Rank | undefined,
  ): Promise<Ranked<StoredEntry>[]> {
    const { database } = this.#parts;
    const found: Ranked<StoredEntry>[] = [];
    for (const each of this.#kindsOf(upstream).filter((name) => kind === undefined || name === kind)) {
      const values: Value[] = [upstream.id, each];
      let table = 'mirror_entries e';
      if (prefix !== '') {
        const begins = 'SELECT * FROM mirror_entries WHERE upstream = ? AND kind = ? AND name >= ? AND name < ?';
        values.unshift(upstream.id, each, prefix, prefix + lastCharacter);
        const beyond = await database.get(`${begins} LIMIT 1 OFFSET ${maxSorted}`, values.slice(0, 4));
        if (beyond) throw tooManyToSort();
        table = `(${begins}) e`;
      }
      const statement = {
        columns,
        from: `${table} WHERE e.upstream = ? AND e.kind = ?`,
        values,
        value: `e.${entryOrders[sort]}`,
        name: 'e.id',
      };
      found.push(...(await rankedRows<StoredEntry>(database, statement, limit, after)));
    }
    return found.sort((one, other) => compareRanks(one.rank, other.rank)).slice(0, limit);
  }

  /**
   * How many entries of an upstream a filter has, and their bytes, each content of a kind counted once. Undefined if more than
   * 10,000 begin with the prefix; without a prefix as they were counted a moment ago, and undefined before that.
   */
  async total(upstream: Upstream, { kind, prefix = '' }: EntryFilter): Promise<ListTotal | undefined> {
    const { database, totals } = this.#parts;
    const kinds = this.#kindsOf(upstream).filter((each) => kind === undefined || each === kind);
    if (prefix === '') {
      const counted = (await totals.read())?.get(upstream);
      return counted && sumOf(kinds.flatMap((each) => counted.byKind.get(each) ?? []));
    }
    if (kinds.length === 0) return sumOf([]);
    const some = `SELECT kind, digest, size_bytes FROM mirror_entries
      WHERE upstream = ? AND kind IN (${placeholders(kinds)}) AND name >= ? AND name < ? LIMIT ${maxSorted + 1}`;
    const contents = await database.select<ListTotal>(
      `SELECT SUM(entries) AS count, SUM(bytes) AS bytes FROM (
         SELECT kind, COUNT(*) AS entries, MAX(size_bytes) AS bytes FROM (${some}) AS some GROUP BY kind, digest
       ) AS contents GROUP BY kind`,
      [upstream.id, ...kinds, prefix, prefix + lastCharacter],
    );
    const total = sumOf(contents);
    return total.count > maxSorted ? undefined : total;
  }

  /** What is stored of an upstream under a name: up to 1,000 entries, and when the upstream last confirmed one of them. */
  async storedUnder(upstream: Upstream, name: string): Promise<{ entries: number; validatedAt: number | null }> {
    const kinds = this.#kindsOf(upstream);
    const some = `SELECT validated_at FROM mirror_entries WHERE kind IN (${placeholders(kinds)}) AND name = ? AND upstream = ?`;
    const row = await this.#parts.database.get<{ entries: number; validatedAt: number | null }>(
      `SELECT COUNT(*) AS entries, MAX(validated_at) AS validatedAt FROM (${some} LIMIT 1000) some`,
      [...kinds, name, upstream.id],
    );
    return row!;
  }

  /** Throws `NotFound`. */
  async entry(upstream: Upstream, id: string): Promise<StoredEntry> {
    const sql = `SELECT ${columns} FROM mirror_entries WHERE id = ? AND upstream = ?`;
    const row = await this.#parts.database.get<StoredEntry>(sql, [id, upstream.id]);
    if (row && this.#kindsOf(upstream).includes(row.kind)) return row;
    throw new DomainError('NotFound', `Nothing is stored of ${upstream.name} under this ID.`);
  }

  /** Drops an entry and records the event for `accountId`. The collector deletes its bytes later. Throws `NotFound`. */
  async drop(upstream: Upstream, id: string, accountId: number): Promise<void> {
    const { mirror, kinds, now } = this.#parts;
    const { kind, name, reference } = await this.entry(upstream, id);
    const event = kinds.get(upstream.config.kind)!.dropEvent({ kind, name, reference }, upstream.name);
    await mirror.remove({ upstream: upstream.id, kind, name, reference }, (tx) => {
      if (!event) {
        const about = { kind: 'upstream', name: upstream.name } as const;
        const dropped = { type: 'upstream.entry_dropped', accountId, subject: about } as const;
        return recordEvent(tx, { ...dropped, details: { kind, name, reference } }, now());
      }
      const subject = { kind: event.kind, name: event.name, reference };
      const details = { origin: 'mirrored', upstream: upstream.name };
      return recordEvent(tx, { type: event.type, accountId, subject, details }, now());
    });
  }

  #kindsOf({ config }: Upstream): readonly string[] {
    return Object.keys(this.#parts.kinds.get(config.kind)!.kinds);
  }
}

function sumOf(parts: readonly ListTotal[]): ListTotal {
  const sum = { count: 0, bytes: 0 };
  for (const { count, bytes } of parts) {
    sum.count += count;
    sum.bytes += bytes;
  }
  return sum;
}

function tooManyToSort(): DomainError {
  const detail = { parameter: 'name' };
  return new DomainError('Invalid', `name: more than ${maxSorted} entries begin with this text. Send a longer one.`, {
    detail,
  });
}
