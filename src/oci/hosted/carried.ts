import type { NameSet } from '../../accounts/names.ts';
import { maxHostedMemory, type HostedContents, type HostedEntry } from '../../bundle/hosted-contents.ts';
import { batches } from '../../database/batches.ts';
import { placeholders, type Database, type Transaction } from '../../database/database.ts';
import { historyLines, recordPast } from '../../history/history.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import { readAll } from '../../storage/files/content.ts';
import type { Manifest } from '../format/manifest.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';
import { linkBlob } from './image-blobs.ts';
import type { Manifests } from './manifests.ts';
import { hasManifest } from './repositories.ts';

/** Rows that one statement reads. */
const page = 500;

export interface CarriedParts {
  database: Database;
  blobs: BlobStore;
  manifests: Manifests;
  /** Tells the upstream that a name is mirrored from, if the account does not claim it. */
  source: { mirroredFrom(accountId: number, name: string): Promise<string | undefined> };
  /** Most bytes of a manifest. */
  limit: number;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

export interface PreparedManifest {
  manifest: Manifest;
  digest: Digest;
  size: number;
  tags: string[];
}

/** A repository that is ready to be written. */
interface PreparedRepository {
  name: string;
  blobs: Digest[];
  /** Each after those to which it refers. */
  manifests: PreparedManifest[];
  seen: HostedEntry['seen'];
  mirroredFrom: string | undefined;
}

/** The hosted images of bundles. */
export function carriedImages(parts: CarriedParts): HostedContents {
  const { database } = parts;
  return {
    entries: (accountId, names) => entriesOf(database, accountId, names),
    among: async (accountId, digests) => {
      const found = new Set<string>();
      for (const some of batches(digests)) {
        const of = (table: string) =>
          `SELECT c.digest FROM ${table} c JOIN repositories r ON r.id = c.repository_id
           WHERE r.account_id = ? AND c.digest IN (${placeholders(some)})`;
        const values = [accountId, ...some];
        const rows = await database.select<{ digest: string }>(`${of('repository_blobs')} UNION ${of('manifests')}`, [
          ...values,
          ...values,
        ]);
        for (const { digest } of rows) found.add(digest);
      }
      return found;
    },
    prepare: async (accountId, entries) => {
      const prepared: PreparedRepository[] = [];
      let memory = 0;
      for (const [name, some] of Map.groupBy(entries, (each) => each.name)) {
        for (const { kind, size } of some) if (kind === 'manifest') memory += size;
        if (memory > maxHostedMemory)
          throw new DomainError('Invalid', 'the bundle has too many hosted images. Carry them in several bundles');
        prepared.push(await prepareRepository(parts, accountId, name, some));
      }
      return async (tx, { isOlder }) => {
        let changed = 0;
        for (const each of prepared) changed += await writeRepository(tx, parts, accountId, each, isOlder);
        return changed;
      };
    },
  };
}

async function* entriesOf(database: Database, accountId: number, names: NameSet): AsyncGenerator<HostedEntry> {
  const among = names.where('r.name');
  const read = (after: string) =>
    database.select<{ id: number; name: string }>(
      `SELECT r.id, r.name FROM repositories r
       WHERE r.account_id = ? AND r.name > ? AND ${among.sql} AND ${hasManifest} ORDER BY r.name LIMIT ?`,
      [accountId, after, ...among.values, page],
    );
  for await (const rows of pagesOf('', page, read, ({ name }) => name))
    for (const row of rows) yield* contentsOf(database, accountId, row);
}

/** The manifests of a repository, its tags, and the blobs to which its manifests refer. */
async function* contentsOf(
  database: Database,
  accountId: number,
  { id, name }: { id: number; name: string },
): AsyncGenerator<HostedEntry> {
  const manifests = 'SELECT digest, media_type AS type, size_bytes AS size FROM manifests WHERE repository_id = ?';
  const tags = `SELECT t.name AS reference, t.digest, m.media_type AS type, m.size_bytes AS size FROM tags t
    JOIN manifests m ON m.repository_id = t.repository_id AND m.digest = t.digest WHERE t.repository_id = ?`;
  const blobs = `SELECT rb.digest, 'application/octet-stream' AS type, ${sizeOf('rb.digest')} AS size FROM repository_blobs rb
    WHERE rb.repository_id = ? AND rb.digest IN (SELECT f.digest FROM manifest_references f
      JOIN manifests m ON m.id = f.manifest_id WHERE m.repository_id = rb.repository_id)`;
  const queries = [
    { kind: 'blob', sql: blobs, column: 'rb.digest' },
    { kind: 'manifest', sql: manifests, column: 'digest' },
    { kind: 'manifest', sql: tags, column: 't.name' },
  ];
  for (const { kind, sql, column } of queries) {
    const read = (after: string) =>
      database.select<{ reference?: string; digest: Digest; type: string; size: number | null }>(
        `${sql} AND ${column} > ? ORDER BY ${column} LIMIT ?`,
        [id, after, page],
      );
    for await (const rows of pagesOf('', page, read, ({ reference, digest }) => reference ?? digest)) {
      const asked = rows.flatMap(({ reference }) =>
        reference === undefined ? [] : { kind: 'tag' as const, reference },
      );
      const lines = await historyLines(database, { accountId, upstream: '', name }, asked);
      const seenOf = Map.groupBy(lines, ({ reference }) => reference);
      for (const { reference, digest, type, size } of rows) {
        if (size === null) continue;
        const seen = reference === undefined ? [] : (seenOf.get(reference) ?? []);
        yield { kind, name, reference: reference ?? digest, digest, size, type, attributes: {}, seen };
      }
    }
  }
}

async function prepareRepository(
  { blobs, manifests, source, limit }: CarriedParts,
  accountId: number,
  name: string,
  entries: readonly HostedEntry[],
): Promise<PreparedRepository> {
  if (!isRepositoryName(name)) throw new DomainError('Invalid', `the bundle has an image with the wrong name ${name}`);
  const byDigest = new Map<Digest, PreparedManifest>();
  const found: PreparedRepository = {
    name,
    blobs: [],
    manifests: [],
    seen: entries.flatMap(({ reference, seen }) =>
      seen.filter((line) => line.kind === 'tag' && line.reference === reference),
    ),
    mirroredFrom: await source.mirroredFrom(accountId, name),
  };
  for (const { kind, reference, digest, size, type } of entries) {
    if (kind === 'blob') found.blobs.push(digest);
    if (kind !== 'manifest' || reference !== digest) continue;
    await pause();
    const bytes = await readAll(await blobs.open(digest, size), Math.min(size, limit));
    byDigest.set(digest, { manifest: await manifests.read(name, digest, bytes, type), digest, size, tags: [] });
  }
  for (const { kind, reference, digest } of entries) {
    if (kind === 'blob' || reference === digest) continue;
    const tagged = byDigest.get(digest);
    if (kind !== 'manifest' || !isTag(reference) || isDigest(reference) || !tagged)
      throw new DomainError('Invalid', `the bundle has a ${kind} ${name}:${reference} without its content`);
    tagged.tags.push(reference);
  }
  found.manifests = manifestsInOrder(byDigest);
  return found;
}

/** Each manifest after those to which it refers. */
export function manifestsInOrder(byDigest: ReadonlyMap<Digest, PreparedManifest>): PreparedManifest[] {
  const sorted = new Map<Digest, PreparedManifest>();
  // An index of indexes is after them; a manifest cannot contain its own digest, so there is an end.
  const add = (digest: Digest): void => {
    const found = byDigest.get(digest);
    if (!found || sorted.has(digest)) return;
    for (const each of found.manifest.references) add(each.digest);
    sorted.set(digest, found);
  };
  for (const digest of byDigest.keys()) add(digest);
  return [...sorted.values()];
}

/** Resolves to how many manifests and tags changed. */
export async function writeRepository(
  tx: Transaction,
  { manifests, now }: Pick<CarriedParts, 'manifests' | 'now'>,
  accountId: number,
  { name, blobs, manifests: prepared, seen, mirroredFrom }: PreparedRepository,
  isOlder: boolean,
): Promise<number> {
  let changed = 0;
  for (const digest of blobs.toSorted()) {
    await pause();
    await linkBlob(tx, accountId, name, digest, now());
  }
  await recordPast(tx, { accountId, upstream: '', name }, seen);
  for (const each of prepared) {
    await pause();
    const tags = isOlder ? [] : each.tags;
    const before = await knownOf(tx, accountId, name, each.digest, tags);
    const moved = tags.filter((tag) => !before.tags.has(tag));
    if (before.isThere && moved.length === 0) continue;
    await manifests.write(tx, accountId, name, { ...each, tags: moved }, { mirroredFrom });
    changed += moved.length + (before.isThere ? 0 : 1);
  }
  return changed;
}

/** Whether the repository has a manifest, and those of `tags` that point to it. */
async function knownOf(tx: Transaction, accountId: number, name: string, digest: Digest, tags: readonly string[]) {
  const of = 'repositories r ON r.account_id = ? AND r.name = ?';
  const manifest = await tx.get(
    `SELECT m.id FROM manifests m JOIN ${of} AND r.id = m.repository_id WHERE m.digest = ?`,
    [accountId, name, digest],
  );
  const found = new Set<string>();
  for (const some of batches(tags)) {
    const rows = await tx.select<{ name: string }>(
      `SELECT t.name FROM tags t JOIN ${of} AND r.id = t.repository_id WHERE t.digest = ? AND t.name IN (${placeholders(some)})`,
      [accountId, name, digest, ...some],
    );
    for (const each of rows) found.add(each.name);
  }
  return { isThere: manifest !== undefined, tags: found };
}
