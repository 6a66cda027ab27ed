import type { Database } from '../database/database.ts';
import { afterKey } from '../database/tables.ts';
import { DomainError } from '../runtime/errors.ts';
import { pause, withPauses } from '../runtime/event-loop.ts';
import { sortedInTurns } from '../runtime/sorted.ts';
import { pagesOf } from '../runtime/pages.ts';
import type { BadDetail } from './entry.ts';
import { ecosystem, type NewEntry } from './record.ts';

/** Bytes of the entries of all lists that are read together. */
const maxBytes = 64 * 2 ** 20;
const pageRows = 1000;
const key = ['kind', 'name_key', 'id', 'part'] as const;

/** A record of a list, as another installation reads it from a file. */
export interface ListRecord {
  list: string;
  record: { id: string } & Record<string, unknown>;
}

interface DetailRow {
  kind: NewEntry['kind'];
  name_key: string;
  id: string;
  part: number;
  detail: string;
}

/**
 * The records of these lists as they were read last, in the order of the lists and of their IDs. Throws `NotFound` for a list that was never read,
 * `TooLarge`, and `Aborted` if one is replaced meanwhile.
 */
export async function recordsOf(database: Database, lists: readonly string[]): Promise<ListRecord[]> {
  const records: ListRecord[] = [];
  let bytes = 0;
  for (const list of lists) {
    const generation = await generationOf(database, list);
    if (generation === 0) throw new DomainError('NotFound', `The list ${list} of known bad content was never read.`);
    const byId = new Map<string, NewEntry[]>();
    for await (const { kind, name_key: name, id, detail } of rowsOf(database, list, generation)) {
      await pause();
      if ((bytes += detail.length) > maxBytes)
        throw new DomainError('TooLarge', `The lists of known bad content have more than ${maxBytes / 2 ** 20} MiB.`);
      const entry = { kind, key: name, detail: JSON.parse(detail) as BadDetail };
      const known = byId.get(id);
      if (known) known.push(entry);
      else byId.set(id, [entry]);
    }
    if ((await generationOf(database, list)) !== generation)
      throw new DomainError('Aborted', `The list ${list} of known bad content was read again meanwhile. Try again.`);
    for await (const id of withPauses(await sortedInTurns([...byId.keys()], (one, other) => (one < other ? -1 : 1))))
      records.push({ list, record: recordOf(id, byId.get(id)!) });
  }
  return records;
}

async function generationOf(database: Database, list: string): Promise<number> {
  const row = await database.get<{ generation: number }>('SELECT generation FROM bad_lists WHERE name = ?', [list]);
  return row?.generation ?? 0;
}

async function* rowsOf(database: Database, list: string, generation: number): AsyncGenerator<DetailRow> {
  const read = (after: (string | number)[]) => {
    const { sql, values } = afterKey(database, key, after);
    return database.select<DetailRow>(
      `SELECT kind, name_key, id, part, detail FROM bad_entries WHERE list = ? AND generation = ? AND ${sql}
       ORDER BY kind, name_key, id, part LIMIT ${pageRows}`,
      [list, generation, ...values],
    );
  };
  const keyOf = ({ kind, name_key: name, id, part }: DetailRow) => [kind, name, id, part];
  for await (const rows of pagesOf(['', '', '', 0], pageRows, read, keyOf)) yield* rows;
}

/** Entries as the record that `readRecord` reads into the same entries. */
function recordOf(id: string, entries: readonly NewEntry[]): ListRecord['record'] {
  const { reason } = entries[0]!.detail;
  // Only records in OSV's format have these, and names that own records cannot have.
  if (
    entries.some(
      ({ kind, key: name, detail }) =>
        detail.ranges || detail.versions || (kind === 'package' && !/^[\w.-]+$/.test(name)),
    )
  )
    return {
      id,
      summary: reason,
      affected: entries.map(({ key: name, detail: { ranges = [], versions = [] } }) => ({
        package: { ecosystem, name },
        ranges: ranges.map((events) => ({ type: 'ECOSYSTEM', events })),
        versions,
      })),
    };
  const of = (...kinds: NewEntry['kind'][]) => entries.filter(({ kind }) => kinds.includes(kind));
  return {
    id,
    reason,
    packages: of('package').map(({ key: name, detail: { range } }) => ({
      id: name,
      ...(range !== undefined && { versions: range }),
    })),
    images: of('image', 'pattern').map(({ key: name }) => name),
    digests: of('digest').map(({ key: digest }) => digest),
  };
}
