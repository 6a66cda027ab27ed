import { placeholders, type Database } from '../database/database.ts';
import type { UpstreamFigures } from '../metrics/upstreams.ts';

/** What was asked of an upstream. */
export interface Sums {
  requests: number;
  /** Requests without an answer that can be used. */
  failures: number;
  /** Until the upstream began to answer, of all requests together. */
  milliseconds: number;
  /** Documents and files that clients needed. */
  needed: number;
  /** Those of them that needed no request. */
  hits: number;
  received_bytes: number;
}

/** The sums of a time that begins at `start`, in milliseconds since 1970 UTC. */
type UpstreamSample = Sums & { start: number };

const hour = 3_600_000;
/** How long samples are kept, in milliseconds. */
const keepFor = 400 * 24 * hour;
const columns: readonly (keyof Sums)[] = ['requests', 'failures', 'milliseconds', 'needed', 'hits', 'received_bytes'];
/** Statuses of requests that failed; see `UpstreamCounts.statuses`. */
const failed = /^(?:timeout|error|other|401|403|429|5\d\d)$/;

/** What was asked of each upstream by the hour, for all processes. */
export class UpstreamSamples {
  readonly #database: Database;
  readonly #now: () => number;
  /** What this process has written. */
  readonly #written = new Map<string, Sums>();

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Adds what this process has counted since the last call to the current hour. */
  async add(figures: readonly UpstreamFigures[]): Promise<void> {
    const current = Math.floor(this.#now() / hour) * hour;
    const sums = new Map(figures.map((each) => [`${each.kind} ${each.id}`, sumsOf(each)]));
    const rows = figures.flatMap(({ kind, id }) => {
      const key = `${kind} ${id}`;
      const [all, before] = [sums.get(key)!, this.#written.get(key)];
      const added = Object.fromEntries(columns.map((name) => [name, all[name] - (before?.[name] ?? 0)]));
      return Object.values(added).some((value) => value > 0) ? [{ kind, upstream: id, hour: current, ...added }] : [];
    });
    if (rows.length > 0) {
      const update = columns.map((name) => `${name} = upstream_samples.${name} + new.${name}`).join(', ');
      const key = ['kind', 'upstream', 'hour'];
      await this.#database.transaction((tx) => tx.upsert('upstream_samples', key, rows, update), { fleeting: true });
    }
    for (const [key, all] of sums) this.#written.set(key, all);
  }

  /** The samples of an upstream since a time, added up for each `step` milliseconds, which are hours. */
  async list({ kind, id }: { kind: string; id: string }, since: number, step: number): Promise<UpstreamSample[]> {
    const rows = await this.#database.select<Record<keyof UpstreamSample, number | string>>(
      `SELECT hour - hour % ? AS start, ${columns.map((name) => `SUM(${name}) AS ${name}`).join(', ')}
       FROM upstream_samples WHERE kind = ? AND upstream = ? AND hour >= ? GROUP BY start ORDER BY start`,
      [step, kind, id, since],
    );
    return rows.map((row) => {
      const sums = Object.fromEntries(columns.map((name) => [name, Number(row[name])])) as Record<keyof Sums, number>;
      return { start: Number(row.start), ...sums };
    });
  }

  /** The requests to each of `upstreams` on each of `days`, which are their starts, the earliest first. */
  async daily(
    upstreams: readonly { id: string; config: { kind: string } }[],
    days: readonly number[],
  ): Promise<(upstream: (typeof upstreams)[number]) => number[]> {
    const found = new Map<string, number>();
    for (const [kind, some] of Map.groupBy(upstreams, ({ config }) => config.kind)) {
      const rows = await this.#database.select<{ upstream: string; day: number; requests: number }>(
        `SELECT upstream, hour - hour % ? AS day, SUM(requests) AS requests FROM upstream_samples
         WHERE kind = ? AND upstream IN (${placeholders(some)}) AND hour >= ? GROUP BY upstream, day`,
        [24 * hour, kind, ...some.map(({ id }) => id), days[0]!],
      );
      for (const { upstream, day, requests } of rows) found.set(`${kind} ${upstream} ${day}`, requests);
    }
    return ({ id, config }) => days.map((day) => found.get(`${config.kind} ${id} ${day}`) ?? 0);
  }

  /** What was asked of an upstream since a time. */
  async since({ kind, id }: { kind: string; id: string }, since: number): Promise<Sums> {
    const row = await this.#database.get<Record<keyof Sums, number | string | null>>(
      `SELECT ${columns.map((name) => `SUM(${name}) AS ${name}`).join(', ')} FROM upstream_samples
       WHERE kind = ? AND upstream = ? AND hour >= ?`,
      [kind, id, since],
    );
    return Object.fromEntries(columns.map((name) => [name, Number(row![name] ?? 0)])) as Record<keyof Sums, number>;
  }

  async deleteOld(): Promise<void> {
    const sql = 'DELETE FROM upstream_samples WHERE hour < ?';
    await this.#database.transaction((tx) => tx.run(sql, [this.#now() - keepFor]), { fleeting: true });
  }
}

function sumsOf({ statuses, outcomes, received, times }: UpstreamFigures): Sums {
  return {
    requests: sum(statuses, (status) => status !== 'cancelled'),
    failures: sum(statuses, (status) => failed.test(status)),
    milliseconds: Math.round(times.sum * 1000),
    needed: sum(outcomes, () => true),
    hits: sum(outcomes, (outcome) => outcome === 'hit' || outcome === 'stale'),
    received_bytes: received,
  };
}

function sum(counts: Readonly<Record<string, number>>, which: (name: string) => boolean): number {
  return Object.entries(counts).reduce((all, [name, value]) => (which(name) ? all + value : all), 0);
}
