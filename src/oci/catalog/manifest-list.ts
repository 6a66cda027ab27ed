import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { entriesOfName } from '../../mirror/store/listing.ts';
import { imageBytesOf, manifestTypeOf } from '../mirrored/image-entries.ts';
import type { UpstreamRepository } from '../mirrored/upstream-repository.ts';
import type { Described, StoredImages } from './stored-images.ts';

/** A manifest without a tag. Times are milliseconds since 1970 UTC. */
export interface ListedManifest {
  digest: Digest;
  mediaType: string;
  artifactType: string | null;
  sizeBytes: number;
  subject: Digest | null;
  isChild: boolean;
  updatedAt: number;
  pullCount: number;
  lastPulledAt: number | null;
}

/** Manifests that are read for one page; those with tags are left out. */
const scanned = 2000;

/**
 * Up to `limit` manifests without a tag, by digest, after `after`. `next` is where the list continues, also after a page with
 * fewer entries; undefined at its end.
 */
export async function listUntagged(
  stored: StoredImages,
  at: Described,
  limit: number,
  after: string,
): Promise<{ items: ListedManifest[]; next: string | undefined }> {
  const rows = at.place
    ? await mirroredManifests(stored.database, at.place, after)
    : await hostedManifests(stored.database, at.repositoryId, after);
  const shown = at.place
    ? await (await stored.mirrorOf(at.accountId)).listed(at.place, rows, ({ digest }) => digest)
    : rows;
  const untagged = shown.filter(({ isTagged }) => !isTagged);
  const items = untagged.slice(0, limit).map(({ isTagged: _isTagged, ...row }) => row);
  if (untagged.length > limit) return { items, next: items.at(-1)!.digest };
  return { items, next: rows.length < scanned ? undefined : rows.at(-1)!.digest };
}

type Row = ListedManifest & { isTagged: boolean };

async function hostedManifests(database: Database, repositoryId: number, after: string): Promise<Row[]> {
  const rows = await database.select<{
    digest: Digest;
    media_type: string;
    artifact_type: string | null;
    image_bytes: number;
    subject: Digest | null;
    pushed_at: number;
    pull_count: number;
    last_pulled_at: number | null;
    tagged: number | null;
    child: number | null;
  }>(
    `SELECT m.digest, m.media_type, m.artifact_type, m.image_bytes, m.subject, m.pushed_at, m.pull_count, m.last_pulled_at,
       (SELECT 1 FROM tags t WHERE t.repository_id = m.repository_id AND t.digest = m.digest LIMIT 1) AS tagged,
       (SELECT 1 FROM manifest_references f CROSS JOIN manifests p ON p.id = f.manifest_id
        WHERE f.digest = m.digest AND p.repository_id = m.repository_id LIMIT 1) AS child
     FROM manifests m WHERE m.repository_id = ? AND m.digest > ? ORDER BY m.digest LIMIT ${scanned}`,
    [repositoryId, after],
  );
  return rows.map((row) => ({
    digest: row.digest,
    mediaType: row.media_type,
    artifactType: row.artifact_type,
    sizeBytes: row.image_bytes,
    subject: row.subject,
    isChild: row.child !== null,
    isTagged: row.tagged !== null,
    updatedAt: row.pushed_at,
    pullCount: row.pull_count,
    lastPulledAt: row.last_pulled_at,
  }));
}

/** What a mirrored manifest belongs to is not stored: it is shown as one that no index lists. */
async function mirroredManifests(
  database: Database,
  { upstream, name }: UpstreamRepository,
  after: string,
): Promise<Row[]> {
  const entries = await entriesOfName(database, { kind: 'manifest', upstream: upstream.id }, name, after, scanned);
  return entries.map(({ isTagged, ...entry }) => ({
    digest: entry.digest,
    mediaType: manifestTypeOf(entry),
    artifactType: null,
    sizeBytes: imageBytesOf(entry),
    subject: null,
    isChild: false,
    isTagged,
    updatedAt: entry.storedAt,
    pullCount: 0,
    lastPulledAt: entry.usedAt,
  }));
}
