import { placeholders, type Database, type Value } from '../../database/database.ts';
import { batches } from '../../database/batches.ts';
import type { ListedKinds } from './entry-kinds.ts';
import { allNames } from './listing.ts';

/** Stored content that clients have used. */
interface UsedContent {
  /** The kind of its name, as in events. */
  kind: string;
  /** The name by which clients request it, as lists have it, and its other names. */
  name: string;
  otherNames: readonly string[];
  /** A version, a tag or a digest. */
  reference: string;
  digest: string;
  /** Milliseconds since 1970 UTC. */
  usedAt: number;
}

interface UsedRow {
  upstream: string;
  kind: string;
  name: string;
  reference: string;
  digest: string;
  usedAt: number;
}

interface KnownUpstream {
  id: string;
  name: string;
  entries: ListedKinds;
}

/** Most rows that one statement reads. */
const most = 2000;

/** Finds the mirrored content that clients have used since some time, by the names that clients use or by its digest. */
export class UsedEntries {
  readonly #database: Database;
  readonly #upstreams: readonly KnownUpstream[];

  constructor(database: Database, upstreams: readonly KnownUpstream[]) {
    this.#database = database;
    this.#upstreams = upstreams;
  }

  /** Up to 2,000 of each 500 `names`. */
  async named(names: readonly string[], since: number): Promise<UsedContent[]> {
    const wanted = new Set(names);
    const places = names.flatMap((name) => [
      name,
      ...this.#upstreams
        .filter((each) => name.startsWith(`${each.name}/`))
        .flatMap((each) => formsOf(each, name.slice(each.name.length + 1))),
    ]);
    const found = await this.#read('name', [...new Set(places)], since);
    return found.filter(({ name, otherNames }) => [name, ...otherNames].some((each) => wanted.has(each)));
  }

  /** Up to 2,000 of each 500 `digests`; content that has no name of its own is told under the one of its image. */
  withDigests(digests: readonly string[], since: number): Promise<UsedContent[]> {
    return this.#read('digest', digests, since);
  }

  /** All names of what is stored of upstreams. */
  async *names(): AsyncGenerator<string> {
    for (const upstream of this.#upstreams) {
      const { id, name: upstreamName, entries } = upstream;
      for (const kind of contentKinds(entries))
        for await (const stored of allNames(this.#database, { kind, upstreams: [id] }))
          for (const name of formsOf(upstream, stored))
            yield entries.dropEvent({ kind, name, reference: '' }, upstreamName)!.name;
    }
  }

  async #read(column: 'name' | 'digest', keys: readonly string[], since: number): Promise<UsedContent[]> {
    if (this.#upstreams.length === 0) return [];
    const used: UsedContent[] = [];
    const kinds = [...new Set(this.#upstreams.flatMap(({ entries }) => Object.keys(entries.kinds)))];
    for (const some of batches(keys)) {
      const values: Value[] = [...kinds, ...some, since, most];
      const rows = await this.#database.select<UsedRow>(
        `SELECT upstream, kind, name, reference, digest, used_at AS usedAt FROM mirror_entries
         WHERE kind IN (${placeholders(kinds)}) AND ${column} IN (${placeholders(some)}) AND used_at >= ? LIMIT ?`,
        values,
      );
      for (const row of rows) {
        const subject = this.#subjectOf(row);
        if (subject) used.push({ ...subject, reference: row.reference, digest: row.digest, usedAt: row.usedAt });
      }
    }
    return used;
  }

  #subjectOf({
    upstream: id,
    kind,
    name: stored,
    reference,
  }: UsedRow): Pick<UsedContent, 'kind' | 'name' | 'otherNames'> | undefined {
    const upstream = this.#upstreams.find((each) => each.id === id);
    if (!upstream) return undefined;
    const { entries, name: upstreamName } = upstream;
    const [content] = contentKinds(entries);
    const isContent = entries.kinds[kind] !== 'document';
    const eventOf = (name: string) =>
      entries.dropEvent({ kind, name, reference }, upstreamName) ??
      (isContent && content !== undefined
        ? entries.dropEvent({ kind: content, name, reference }, upstreamName)
        : undefined);
    const [event, ...others] = formsOf(upstream, stored).map(eventOf);
    return event && { kind: event.kind, name: event.name, otherNames: others.map((each) => each!.name) };
  }
}

function formsOf({ name: upstreamName, entries }: KnownUpstream, name: string): readonly string[] {
  return entries.namesAtUpstream?.(name, upstreamName) ?? [name];
}

/** The kinds of entries that are content by themselves. */
function contentKinds(entries: ListedKinds): string[] {
  return Object.keys(entries.kinds).filter((kind) => entries.dropEvent({ kind, name: '', reference: '' }, ''));
}
