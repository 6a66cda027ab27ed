import { recordPast, type PastLine } from '../../history/history.ts';
import { forUpdate, placeholders, type Transaction } from '../../database/database.ts';
import { entryId, nameOwner, rowOf, type EntryKey, type EntryMetadata } from './entries.ts';
import { addWords } from './words.ts';

/** An entry that another installation has fetched. Times are in milliseconds since 1970 UTC. */
export interface ImportedEntry {
  key: EntryKey;
  metadata: EntryMetadata;
  /** Whether its content never changes. */
  isImmutable: boolean;
  /** The history of what it shows. */
  seen: readonly PastLine[];
  /** Since when the upstream does not offer it, as in `Withdrawals`. */
  withdrawn?: { missingAt: number; withdrawnAt: number | null } | undefined;
  /**
   * When the other installation last asked the upstream about the name. Absent if nothing is said about an entry that stays as it is
   * here.
   */
  asOf?: number | undefined;
}

/** Entries in one statement. */
const batch = 200;

/**
 * Writes entries with the times at which another installation has seen them. An entry that is here stays if it is immutable, or if
 * an upstream has confirmed it later; what its upstream has withdrawn or offers again is noted. Resolves to the entries that were written.
 */
export async function writeImported(
  tx: Transaction,
  entries: readonly ImportedEntry[],
  now: number,
): Promise<ImportedEntry[]> {
  const written: ImportedEntry[] = [];
  for (let start = 0; start < entries.length; start += batch) {
    const some = entries.slice(start, start + batch);
    const ids = some.map(({ key }) => entryId(key));
    const known = await knownAfterInsert(tx, some, ids, now);
    const news = some.filter(({ isImmutable, metadata }, at) => {
      const before = known.get(ids[at]!);
      return before === undefined || (!isImmutable && before.validatedAt < metadata.validatedAt);
    });
    const replacing = news.filter(({ key }) => known.has(entryId(key)));
    if (replacing.length > 0) {
      const columns = replacing.map(({ key, metadata }) => rowOf(key, metadata, now));
      const changed = Object.keys(columns[0]!).filter((column) => column !== 'id' && column !== 'used_at');
      const update = changed.map((column) => `${column} = new.${column}`).join(', ');
      await tx.upsert('mirror_entries', ['id'], columns, update);
    }
    await writeWithdrawn(tx, news);
    const isNew = new Set(news);
    for (const [at, each] of some.entries()) if (!isNew.has(each)) await noteWithdrawn(tx, each, known.get(ids[at]!)!);
    for (const each of some) {
      if (each.seen.length === 0) continue;
      await recordPast(tx, nameOwner(each.key), each.seen);
      await addWords(tx, each.key);
    }
    for (const each of news) written.push(each);
  }
  return written;
}

interface KnownEntry {
  id: string;
  digest: string;
  validatedAt: number;
}

/** Inserts the entries that are not here. Resolves to the others by id, which no other transaction changes until this one ends. */
async function knownAfterInsert(
  tx: Transaction,
  entries: readonly ImportedEntry[],
  ids: readonly string[],
  now: number,
): Promise<Map<string, KnownEntry>> {
  const among = (some: readonly string[]) =>
    tx.select<KnownEntry>(
      `SELECT id, digest, validated_at AS validatedAt FROM mirror_entries WHERE id IN (${placeholders(some)})${forUpdate(tx)}`,
      some,
    );
  const known = new Map((await among(ids)).map((each) => [each.id, each]));
  const absent = new Map(ids.flatMap((id, at) => (known.has(id) ? [] : [[id, entries[at]!] as const])));
  const rows = [...absent.values()].map(({ key, metadata }) => rowOf(key, metadata, now));
  if (rows.length === 0 || (await tx.insertNew('mirror_entries', rows)) === rows.length) return known;
  // A fetch has written one meanwhile.
  for (const each of await among([...absent.keys()])) {
    const { digest, validatedAt } = absent.get(each.id)!.metadata;
    if (each.digest !== digest || each.validatedAt !== validatedAt) known.set(each.id, each);
  }
  return known;
}

async function writeWithdrawn(tx: Transaction, entries: readonly ImportedEntry[]): Promise<void> {
  if (entries.length === 0) return;
  const ids = entries.map(({ key }) => entryId(key));
  await tx.run(`DELETE FROM mirror_withdrawn WHERE id IN (${placeholders(ids)})`, ids);
  const rows = entries.flatMap(withdrawnRow);
  if (rows.length > 0) await tx.insertNew('mirror_withdrawn', rows);
}

/** Notes what is said of an entry that stays as it is here, unless its upstream has confirmed it here since. */
async function noteWithdrawn(tx: Transaction, entry: ImportedEntry, { id, validatedAt }: KnownEntry): Promise<void> {
  const { withdrawn, asOf, isImmutable } = entry;
  if (asOf === undefined) return;
  if (!withdrawn) {
    // A tag that is offered again was confirmed again, and is written.
    if (isImmutable) await tx.run('DELETE FROM mirror_withdrawn WHERE id = ? AND missing_at < ?', [id, asOf]);
    return;
  }
  const { missingAt, withdrawnAt } = withdrawn;
  if (missingAt <= validatedAt || (await tx.insertNew('mirror_withdrawn', withdrawnRow(entry))) > 0) return;
  const mark = 'UPDATE mirror_withdrawn SET withdrawn_at = ? WHERE id = ? AND withdrawn_at IS NULL';
  if (withdrawnAt !== null) await tx.run(mark, [withdrawnAt, id]);
}

/** Its row, if the upstream does not offer it. */
function withdrawnRow({ key, withdrawn }: ImportedEntry) {
  if (!withdrawn) return [];
  const { upstream, kind, name, reference } = key;
  const { missingAt: missing_at, withdrawnAt: withdrawn_at } = withdrawn;
  return [{ id: entryId(key), upstream, kind, name, reference, missing_at, withdrawn_at }];
}
