import { placeholders, type Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { taggedEntries } from '../../mirror/store/listing.ts';
import { mirroredDownloads } from '../../usage/mirrored.ts';
import { imageBytesOf, manifestTypeOf } from '../mirrored/image-entries.ts';
import { isIndex } from '../format/manifest.ts';
import { naturalKey } from '../hosted/natural-order.ts';
import type { UpstreamRepository } from '../mirrored/upstream-repository.ts';
import type { Described, Platforms, StoredImages } from './stored-images.ts';

/** A tag in a list, and its place in the natural order. Times are milliseconds since 1970 UTC. */
export interface ListedTag {
  key: readonly [sortKey: string, name: string];
  name: string;
  digest: Digest;
  mediaType: string;
  sizeBytes: number;
  updatedAt: number;
  pullCount: number;
  lastPulledAt: number | null;
  aliases: string[];
  /** Undefined if that is not stored here. */
  platforms: string[] | undefined;
}

export interface TagQuery {
  /** Tags that contain this text, which is in lower case. */
  text: string;
  /** Whether the last tag comes first. */
  isReversed: boolean;
}

/** Most tags of a mirrored repository that are sorted; further ones are not listed. */
const maxMirrored = 10_000;
/** Most other tags of a digest that are shown. */
const maxAliases = 10;
/** Tags of an older release that get their keys when a repository is listed. */
const filledAtOnce = 500;

type Row = Omit<ListedTag, 'aliases' | 'platforms'>;

/** Up to `limit` tags of a repository in natural order, after `after`. */
export async function listTags(
  stored: StoredImages,
  at: Described,
  query: TagQuery,
  limit: number,
  after: readonly [string, string] | undefined,
): Promise<ListedTag[]> {
  const { database } = stored;
  const all = at.place ? await mirroredTags(stored, at.accountId, at.place) : undefined;
  const rows = all
    ? pageOf(all, query, limit, after)
    : await hostedTags(database, at.repositoryId!, query, limit, after);
  const platforms = await stored.platformsOf(at, rows);
  const aliases = all ? aliasesIn(all) : await hostedAliases(database, at.repositoryId!, rows);
  const withPulls = at.place
    ? await addMirroredPulls(database, at, rows, platforms)
    : await addIndexPulls(database, at.repositoryId, rows);
  return withPulls.map((row) => ({
    ...row,
    platforms: platforms.get(row.digest)?.platforms,
    aliases: (aliases.get(row.digest) ?? []).filter((name) => name !== row.name).slice(0, maxAliases),
  }));
}

async function hostedTags(
  database: Database,
  repositoryId: number,
  { text, isReversed }: TagQuery,
  limit: number,
  after: readonly [string, string] | undefined,
): Promise<Row[]> {
  await fillKeys(database, repositoryId);
  const [than, order] = isReversed ? ['<', 'DESC'] : ['>', 'ASC'];
  const conditions = [
    ...(after ? [`(t.sort_key ${than} ? OR (t.sort_key = ? AND t.name ${than} ?))`] : []),
    ...(text === '' ? [] : ["LOWER(t.name) LIKE ? ESCAPE '!'"]),
  ];
  const rows = await database.select<{
    name: string;
    sort_key: string;
    digest: Digest;
    updated_at: number;
    media_type: string;
    image_bytes: number;
    pull_count: number;
    last_pulled_at: number | null;
  }>(
    `SELECT t.name, t.sort_key, t.digest, t.updated_at, m.media_type, m.image_bytes, m.pull_count, m.last_pulled_at
     FROM tags t JOIN manifests m ON m.repository_id = t.repository_id AND m.digest = t.digest
     WHERE t.repository_id = ? ${conditions.map((each) => `AND ${each}`).join(' ')}
     ORDER BY t.sort_key ${order}, t.name ${order} LIMIT ?`,
    [
      repositoryId,
      ...(after ? [after[0], after[0], after[1]] : []),
      ...(text === '' ? [] : [`%${text.replace(/[!%_]/g, '!$&')}%`]),
      limit,
    ],
  );
  return rows.map((row) => ({
    key: [row.sort_key, row.name],
    name: row.name,
    digest: row.digest,
    mediaType: row.media_type,
    sizeBytes: row.image_bytes,
    updatedAt: row.updated_at,
    pullCount: row.pull_count,
    lastPulledAt: row.last_pulled_at,
  }));
}

/** Writes the sort keys of tags that an older release has written. While the database cannot be written, they come first. */
async function fillKeys(database: Database, repositoryId: number): Promise<void> {
  const rows = await database.select<{ name: string }>(
    "SELECT name FROM tags WHERE repository_id = ? AND sort_key = '' LIMIT ?",
    [repositoryId, filledAtOnce],
  );
  if (rows.length === 0) return;
  try {
    await database.transaction(
      async (tx) => {
        for (const { name } of rows) {
          const sql = 'UPDATE tags SET sort_key = ? WHERE repository_id = ? AND name = ?';
          await tx.run(sql, [naturalKey(name), repositoryId, name]);
        }
      },
      { fleeting: true },
    );
  } catch (error) {
    if (!isDomainError(error)) throw error;
  }
}

async function mirroredTags(stored: StoredImages, accountId: number, place: UpstreamRepository): Promise<Row[]> {
  const { upstream, name } = place;
  const entries = await taggedEntries(stored.database, { kind: 'manifest', upstream: upstream.id }, name, maxMirrored);
  return (await (await stored.mirrorOf(accountId)).listedEntries(place, entries)).map((entry) => ({
    key: [naturalKey(entry.reference), entry.reference],
    name: entry.reference,
    digest: entry.digest,
    mediaType: manifestTypeOf(entry),
    sizeBytes: imageBytesOf(entry),
    updatedAt: entry.storedAt,
    pullCount: 0,
    lastPulledAt: entry.usedAt,
  }));
}

function pageOf(
  all: readonly Row[],
  { text, isReversed }: TagQuery,
  limit: number,
  after: readonly [string, string] | undefined,
): Row[] {
  const sign = isReversed ? -1 : 1;
  return all
    .filter(({ name, key }) => name.toLowerCase().includes(text) && (!after || sign * compare(key, after) > 0))
    .sort((a, b) => sign * compare(a.key, b.key))
    .slice(0, limit);
}

function compare(a: readonly [string, string], b: readonly [string, string]): number {
  if (a[0] !== b[0]) return a[0] < b[0] ? -1 : 1;
  if (a[1] === b[1]) return 0;
  return a[1] < b[1] ? -1 : 1;
}

function aliasesIn(all: readonly Row[]): Map<Digest, string[]> {
  const byDigest = Map.groupBy(all, ({ digest }) => digest);
  return new Map([...byDigest].map(([digest, rows]) => [digest, rows.map(({ name }) => name)]));
}

/** The first tags of each digest, each from its own range of the index. */
async function hostedAliases(
  database: Database,
  repositoryId: number,
  rows: readonly Row[],
): Promise<Map<Digest, string[]>> {
  const digests = [...new Set(rows.map(({ digest }) => digest))];
  if (digests.length === 0) return new Map();
  const one = `SELECT * FROM (
    SELECT name, digest FROM tags WHERE repository_id = ? AND digest = ? ORDER BY name LIMIT ${maxAliases + 1}) AS some`;
  const found = await database.select<{ name: string; digest: Digest }>(
    digests.map(() => one).join(' UNION ALL '),
    digests.flatMap((digest) => [repositoryId, digest]),
  );
  const byDigest = Map.groupBy(found, ({ digest }) => digest);
  return new Map([...byDigest].map(([digest, some]) => [digest, some.map(({ name }) => name)]));
}

/** The pulls of an index are those of its images: a client requests the index first, and that alone is no pull. */
export async function addIndexPulls<T extends Pick<Row, 'digest' | 'mediaType' | 'pullCount' | 'lastPulledAt'>>(
  database: Database,
  repositoryId: number,
  rows: readonly T[],
): Promise<T[]> {
  const indexes = rows.filter(({ mediaType }) => isIndex(mediaType)).map(({ digest }) => digest);
  if (indexes.length === 0) return [...rows];
  const found = await database.select<{ digest: Digest; pulls: number; last: number | null }>(
    `SELECT p.digest, SUM(c.pull_count) AS pulls, MAX(c.last_pulled_at) AS last FROM manifests p
     CROSS JOIN manifest_references f ON f.manifest_id = p.id
     CROSS JOIN manifests c ON c.repository_id = p.repository_id AND c.digest = f.digest
     WHERE p.repository_id = ? AND p.digest IN (${placeholders(indexes)}) GROUP BY p.digest`,
    [repositoryId, ...indexes],
  );
  const pulls = new Map(found.map((each) => [each.digest, each]));
  return rows.map((row) => {
    const sum = pulls.get(row.digest);
    return sum ? { ...row, pullCount: sum.pulls, lastPulledAt: sum.last } : row;
  });
}

/** The pulls of mirrored images by this account. */
export async function addMirroredPulls<T extends Pick<Row, 'digest' | 'pullCount'>>(
  database: Database,
  { accountId, name }: Described,
  rows: readonly T[],
  platforms: ReadonlyMap<Digest, Platforms>,
): Promise<T[]> {
  const { versions } = (await mirroredDownloads(database, accountId, 'container', [name]))(name);
  return rows.map((row) => {
    const images = [row.digest, ...(platforms.get(row.digest)?.children ?? [])];
    return { ...row, pullCount: images.reduce((sum, digest) => sum + (versions.get(digest) ?? 0), 0) };
  });
}
