import { pagesOf } from '../runtime/pages.ts';
import { batches } from '../database/batches.ts';
import { placeholders, type Database, type Queryable, type Transaction, type Value } from '../database/database.ts';

/** References in one statement. */
const batch = 500;
/** References of one statement that reads all of a name. */
const longPage = 2000;
/** References in one statement that reads many lines of each. */
const longBatch = 20;
/** The most lines of one reference. */
const maxLines = 1000;

/**
 * What a reference of a history is: a mirrored package version, a manifest by its digest, or a tag. `listed` is a version that an
 * upstream offered without a date, or a manifest that it listed as a referrer, before its content was stored; lists do not show it.
 */
export type ReferenceKind = 'version' | 'manifest' | 'tag' | 'listed';

/** Whose name it is: of an account, or of an upstream and so of all accounts. */
export interface NameOwner {
  /** 0 for mirrored content. */
  accountId: number;
  /** The upstream's id; empty for hosted content. */
  upstream: string;
  /** The package's key, or the repository as its owner names it. */
  name: string;
}

/** A name of an upstream, with the name under which the upstream is shown. */
export interface MirroredOwner extends NameOwner {
  upstreamName: string;
  /** Those of its `entries` that lists show. */
  listed(entries: readonly HistoryEntry[]): Promise<readonly HistoryEntry[]>;
}

/** A reference and the content that it has. */
export interface SeenReference {
  kind: ReferenceKind;
  reference: string;
  /** Empty if the reference was deleted. */
  digest: string;
  /** Of the manifest that a tag points to. */
  content?: { mediaType: string; size: number };
  /** The digest of the files in a package, apart from its signature; for events, the kind of its name and the name of its upstream. */
  files?: { digest: string; subject: string; from: string };
}

/** A line of a history. */
export interface HistoryEntry extends Omit<SeenReference, 'content' | 'files'> {
  kind: Exclude<ReferenceKind, 'listed'>;
  id: number;
  upstream: string;
  /** Milliseconds since 1970 UTC. */
  seenAt: number;
}

/**
 * Appends what was not recorded yet: a reference seen for the first time here, or with another digest than before. Of a tag, the
 * latest `maxLines` lines are kept; of a version or manifest, the first one, which is when it was first seen, and the latest others.
 * Of two instances that record the same at once, both may append it. Resolves to those that had another digest before.
 */
export async function record(
  tx: Transaction,
  { accountId, upstream, name }: NameOwner,
  sightings: readonly SeenReference[],
  now: number,
): Promise<SeenReference[]> {
  const changed: SeenReference[] = [];
  const owner = { account_id: accountId, upstream, name };
  for (const [kind, some] of Map.groupBy(sightings, (each) => each.kind)) {
    for (let start = 0; start < some.length; start += batch) {
      const part = some.slice(start, start + batch);
      const rows = await tx.select<{ id: number; reference: string; digest: string; files: string | null }>(
        `SELECT id, reference, digest, files_digest AS files FROM history WHERE id IN (
           SELECT MAX(id) FROM history WHERE account_id = ? AND upstream = ? AND name = ? AND kind = ?
           AND reference IN (${placeholders(part)}) GROUP BY reference)`,
        [accountId, upstream, name, kind, ...part.map(({ reference }) => reference)],
      );
      const known = new Map(rows.map((row) => [row.reference, row]));
      const isNew = ({ reference, digest }: SeenReference) => (known.get(reference)?.digest ?? '') !== digest;
      const news = part.filter(isNew);
      for (const { reference, digest, files } of part) {
        const line = known.get(reference);
        if (files && line?.digest === digest && line.files === null)
          await tx.run('UPDATE history SET files_digest = ? WHERE id = ?', [files.digest, line.id]);
      }
      await tx.insertNew(
        'history',
        news.map(({ reference, digest, content, files }) => ({
          ...owner,
          kind,
          reference,
          digest,
          seen_at: now,
          media_type: content?.mediaType ?? null,
          size_bytes: content?.size ?? null,
          files_digest: files?.digest ?? null,
        })),
      );
      const moved = news.filter(({ reference }) => known.has(reference));
      for (const each of moved) changed.push(each);
      const references = moved.map(({ reference }) => reference);
      await dropOldest(tx, { accountId, upstream, name }, kind, references);
    }
  }
  return changed;
}

/** The digest of the files that a version had first; undefined if none is known. */
export async function firstFiles(
  database: Queryable,
  { accountId, upstream, name }: NameOwner,
  reference: string,
): Promise<string | undefined> {
  const row = await database.get<{ files: string }>(
    `SELECT files_digest AS files FROM history WHERE account_id = ? AND upstream = ? AND name = ? AND kind = 'version'
     AND reference = ? AND files_digest IS NOT NULL ORDER BY id LIMIT 1`,
    [accountId, upstream, name, reference],
  );
  return row?.files;
}

/** A line of a history, as another installation has it. */
export interface PastLine extends Omit<SeenReference, 'files'> {
  /** Milliseconds since 1970 UTC. */
  seenAt: number;
}

/** The lines of `references` of a name, each kind with its own references, the earliest first. */
export async function historyLines(
  database: Queryable,
  { accountId, upstream, name }: NameOwner,
  references: readonly Pick<SeenReference, 'kind' | 'reference'>[],
): Promise<PastLine[]> {
  const lines: PastLine[] = [];
  for (const [kind, some] of Map.groupBy(references, (each) => each.kind)) {
    for (let start = 0; start < some.length; start += batch) {
      const part = some.slice(start, start + batch);
      const rows = await database.select<{
        reference: string;
        digest: string;
        seenAt: number;
        type: string | null;
        size: number;
      }>(
        `SELECT reference, digest, seen_at AS seenAt, media_type AS type, size_bytes AS size FROM history
         WHERE account_id = ? AND upstream = ? AND name = ? AND kind = ? AND reference IN (${placeholders(part)})
         ORDER BY id`,
        [accountId, upstream, name, kind, ...part.map(({ reference }) => reference)],
      );
      for (const { reference, digest, seenAt, type, size } of rows)
        lines.push({ kind, reference, digest, seenAt, ...(type !== null && { content: { mediaType: type, size } }) });
    }
  }
  return lines;
}

/**
 * Adds `lines` of another installation to the history of a name. A version or manifest counts as first seen at the earlier of both
 * times. Of a tag, the lines are added that are later than all that are known here.
 */
export async function recordPast(tx: Transaction, owner: NameOwner, lines: readonly PastLine[]): Promise<void> {
  const known = await historyLines(tx, owner, lines);
  const byReference = Map.groupBy(known, ({ kind, reference }) => `${kind} ${reference}`);
  const news = lines.filter(({ kind, reference, digest, seenAt }) => {
    const before = byReference.get(`${kind} ${reference}`) ?? [];
    if (kind === 'tag') return before.every((each) => each.seenAt < seenAt) && before.at(-1)?.digest !== digest;
    return before.every((each) => each.seenAt > seenAt);
  });
  const rows = news.map(({ kind, reference, digest, seenAt, content }) => ({
    account_id: owner.accountId,
    upstream: owner.upstream,
    name: owner.name,
    kind,
    reference,
    digest,
    seen_at: seenAt,
    media_type: content?.mediaType ?? null,
    size_bytes: content?.size ?? null,
  }));
  for (const some of batches(rows)) await tx.insertNew('history', some);
  const tags = news.filter(({ kind }) => kind === 'tag').map(({ reference }) => reference);
  for (const some of batches([...new Set(tags)])) await dropOldest(tx, owner, 'tag', some);
}

/** Deletes the lines of `references` that are too many. Of very many, some are left to the next time. */
async function dropOldest(
  tx: Transaction,
  { accountId, upstream, name }: NameOwner,
  kind: ReferenceKind,
  references: readonly string[],
): Promise<void> {
  if (references.length === 0) return;
  const ofKind = 'account_id = ? AND upstream = ? AND name = ? AND kind = ?';
  const values = [accountId, upstream, name, kind];
  const long = await tx.select<{ reference: string; count: number }>(
    `SELECT reference, COUNT(*) AS count FROM history WHERE ${ofKind} AND reference IN (${placeholders(references)})
     GROUP BY reference HAVING COUNT(*) > ${maxLines}`,
    [...values, ...references],
  );
  for (const { reference, count } of long) {
    const rows = await tx.select<{ id: number }>(
      `SELECT id FROM history WHERE ${ofKind} AND reference = ? ORDER BY id LIMIT ? OFFSET ?`,
      [...values, reference, Math.min(count - maxLines, batch), kind === 'tag' ? 0 : 1],
    );
    await tx.run(
      `DELETE FROM history WHERE id IN (${placeholders(rows)})`,
      rows.map(({ id }) => id),
    );
  }
}

/** When each of `references` of a name was first recorded, in milliseconds since 1970 UTC. */
export async function firstSeen(
  database: Queryable,
  { accountId, upstream, name }: NameOwner,
  kind: ReferenceKind,
  references: readonly string[],
): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  const read = (more: string, values: readonly Value[]) =>
    database.select<{ reference: string; seenAt: number }>(
      `SELECT reference, MIN(seen_at) AS seenAt FROM history
       WHERE account_id = ? AND upstream = ? AND name = ? AND kind = ? ${more} AND digest <> ''
       GROUP BY reference ORDER BY reference LIMIT ${longPage}`,
      [accountId, upstream, name, kind, ...values],
    );
  const add = (rows: readonly { reference: string; seenAt: number }[]) => {
    for (const { reference, seenAt } of rows) found.set(reference, seenAt);
  };
  // Most versions of an ID were never recorded: all that were are read faster than each is looked up.
  if (kind === 'version' && references.length > batch) {
    const after = (reference: string) => read('AND reference > ?', [reference]);
    for await (const page of pagesOf('', longPage, after, ({ reference }) => reference)) add(page);
    return found;
  }
  for (let start = 0; start < references.length; start += batch) {
    const some = references.slice(start, start + batch);
    add(await read(`AND reference IN (${placeholders(some)})`, some));
  }
  return found;
}

/** Up to `limit` digests that each of `tags` of a name has had, the latest first. */
export async function digestsOf(
  database: Queryable,
  { accountId, upstream, name }: NameOwner,
  tags: readonly string[],
  limit: number,
): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (let start = 0; start < tags.length; start += longBatch) {
    const some = tags.slice(start, start + longBatch);
    const rows = await database.select<{ reference: string; digest: string }>(
      `SELECT reference, digest FROM (
         SELECT id, reference, digest, ROW_NUMBER() OVER (PARTITION BY reference ORDER BY id DESC) AS place FROM history
         WHERE account_id = ? AND upstream = ? AND name = ? AND kind = 'tag' AND reference IN (${placeholders(some)})
       ) AS latest WHERE place <= ? ORDER BY id DESC`,
      [accountId, upstream, name, ...some, limit],
    );
    for (const { reference, digest } of rows) {
      if (digest === '') continue;
      const known = found.get(reference);
      if (known) known.push(digest);
      else found.set(reference, [digest]);
    }
  }
  return found;
}

/** The digest that each of `tags` of a name had last. */
export async function latestDigests(
  database: Queryable,
  { accountId, upstream, name }: NameOwner,
  tags: readonly string[],
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (let start = 0; start < tags.length; start += batch) {
    const some = tags.slice(start, start + batch);
    const rows = await database.select<{ reference: string; digest: string }>(
      `SELECT reference, digest FROM history WHERE id IN (
         SELECT MAX(id) FROM history WHERE account_id = ? AND upstream = ? AND name = ? AND kind = 'tag'
         AND reference IN (${placeholders(some)}) GROUP BY reference)`,
      [accountId, upstream, name, ...some],
    );
    for (const { reference, digest } of rows) if (digest !== '') found.set(reference, digest);
  }
  return found;
}

/** Statements that count the lines of accounts page by page, by `id`; each line has `bytes`. */
export function lineSums(bytes: number): { last: string; sum: string } {
  return {
    last: 'SELECT COUNT(*) AS count, MAX(id) AS last FROM (SELECT id FROM history WHERE id > ? ORDER BY id LIMIT ?) AS page',
    sum: `SELECT account_id, COUNT(*) * ${bytes} AS bytes
          FROM history WHERE id > ? AND id <= ? AND account_id > 0 GROUP BY account_id`,
  };
}

interface HistoryQuery {
  limit: number;
  /** The id of an entry that comes after the wanted ones. */
  before?: number | undefined;
  /** Only entries of this kind. */
  kind?: ReferenceKind | undefined;
}

/** Up to `limit` entries of these names, the latest first. */
export async function readHistory(
  database: Database,
  owners: readonly NameOwner[],
  { limit, before = Number.MAX_SAFE_INTEGER, kind }: HistoryQuery,
): Promise<HistoryEntry[]> {
  if (owners.length === 0) return [];
  // For each name its own index range: with OR, a database may read the whole table backwards.
  const ofOwner = `SELECT * FROM (
    SELECT id, upstream, kind, reference, digest, seen_at FROM history
    WHERE account_id = ? AND upstream = ? AND name = ? AND ${kind === undefined ? "kind <> 'listed'" : 'kind = ?'} AND id < ?
    ORDER BY id DESC LIMIT ?) AS some`;
  const rows = await database.select<Omit<HistoryEntry, 'seenAt'> & { seen_at: number }>(
    `${owners.map(() => ofOwner).join(' UNION ALL ')} ORDER BY id DESC LIMIT ?`,
    [
      ...owners.flatMap(({ accountId, upstream, name }) => [
        accountId,
        upstream,
        name,
        ...(kind ? [kind] : []),
        before,
        limit,
      ]),
      limit,
    ],
  );
  return rows.map(({ seen_at: seenAt, ...row }) => ({ ...row, seenAt }));
}
