import { placeholders, type Database, type Queryable, type Transaction } from '../../database/database.ts';
import { algorithmOf, digestOf, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { recordEvent } from '../../events/record.ts';
import { guardOf, kept } from '../../permanence/rules.ts';
import { record, recordPast } from '../../history/history.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { Content } from '../../storage/files/content.ts';
import { batches } from '../../database/batches.ts';
import { parsePushedManifest, verifyDigest, type ContentCheck, type Manifest } from '../format/manifest.ts';
import type { Reference } from '../format/reference.ts';
import { ensureRepository, findRepository, lockRepository, nameUnknown } from './repositories.ts';
import { addRepositoryCounts, isLinked } from './repository-counts.ts';
import { deleteManifest, resizeParents, tagsInEvent } from './manifest-deletion.ts';
import { refuseKept } from './kept-images.ts';
import { sizesOf } from './manifest-sizes.ts';
import { deleteTag, noteUntagged, refuseFrozen, writeTags } from './tags.ts';

/** A manifest to serve. */
interface StoredManifest {
  repositoryId: number;
  digest: Digest;
  mediaType: string;
  /** The exact bytes that were pushed; the caller closes it. */
  content: Content;
}

/** A manifest in a request. */
export interface SentManifest {
  tags: readonly string[];
  /** The digest in the request, if any. */
  digest: Digest | undefined;
  bytes: Buffer;
  contentType: string | undefined;
  /** When another registry got the tags, milliseconds since 1970 UTC; undefined for a push. */
  pushedAt?: number | undefined;
  /** To what the tags pointed there before, the earliest first. */
  past?: readonly PastManifest[] | undefined;
}

/** A manifest to which a tag pointed from a time on, milliseconds since 1970 UTC. */
export interface PastManifest {
  digest: Digest;
  seenAt: number;
  content: { mediaType: string; size: number };
}

/** A manifest that was read and is ready to be written. */
interface ReadManifest extends Pick<SentManifest, 'tags' | 'pushedAt' | 'past'> {
  manifest: Manifest;
  digest: Digest;
  /** Bytes of the manifest itself. */
  size: number;
}

interface PushOptions {
  isWhole?: boolean;
  mirroredFrom?: string | undefined;
}

export interface PushedManifest {
  digest: Digest;
  subject: Digest | undefined;
  /** Whether this push claimed the repository: it is the first one, or the first after a released claim. */
  claimed: boolean;
}

const columns = 'm.repository_id, m.digest, m.media_type, m.size_bytes';
const findByDigest = `SELECT ${columns} FROM repositories r
  JOIN manifests m ON m.repository_id = r.id AND m.digest = ? WHERE r.account_id = ? AND r.name = ?`;
const findByTag = `SELECT ${columns} FROM repositories r JOIN tags t ON t.repository_id = r.id AND t.name = ?
  JOIN manifests m ON m.repository_id = r.id AND m.digest = t.digest WHERE r.account_id = ? AND r.name = ?`;

interface ManifestRow {
  repository_id: number;
  digest: Digest;
  media_type: string;
  size_bytes: number;
}

/** The manifests and tags of repositories. */
export class Manifests {
  readonly #database: Database;
  readonly #blobs: BlobStore;
  readonly #examine: ContentCheck;
  readonly #now: () => number;
  readonly #deletedFor: number;

  /** Deletions can be undone for `deletedFor` milliseconds. */
  constructor(
    database: Database,
    blobs: BlobStore,
    { examine, deletedFor, now }: { examine: ContentCheck; deletedFor: number; now: () => number },
  ) {
    this.#database = database;
    this.#blobs = blobs;
    this.#examine = examine;
    this.#now = now;
    this.#deletedFor = deletedFor;
  }

  /** The manifest of a tag or digest; throws `NameUnknown` or `ManifestUnknown`. */
  async open(accountId: number, name: string, reference: Reference): Promise<StoredManifest> {
    const row = await this.#find(accountId, name, reference);
    if (!row) {
      if ((await findRepository(this.#database, accountId, name)) === undefined) throw nameUnknown(name);
      throw manifestUnknown(reference);
    }
    return {
      repositoryId: row.repository_id,
      digest: row.digest,
      mediaType: row.media_type,
      content: await this.#blobs.open(row.digest, row.size_bytes),
    };
  }

  /** Whether there is a manifest with this tag or digest. */
  async has(accountId: number, name: string, reference: Reference): Promise<boolean> {
    return (await this.#find(accountId, name, reference)) !== undefined;
  }

  /**
   * Stores a manifest under its digest and points its tags to it, in one transaction. Throws `ManifestInvalid`,
   * `DigestMismatch`, or `ManifestBlobUnknown` if the repository lacks a blob that it needs. With `isWhole` this is also
   * thrown if it lacks anything that an index refers to. `mirroredFrom` is the upstream that the name is mirrored from.
   */
  async push(
    accountId: number,
    name: string,
    sent: SentManifest,
    { isWhole = false, mirroredFrom }: PushOptions = {},
  ): Promise<PushedManifest> {
    const { tags, digest, bytes, contentType } = sent;
    if (digest) verifyDigest(bytes, digest);
    const manifest = await this.read(name, digest ?? digestOf(bytes), bytes, contentType);
    const arrival = await this.#blobs.stageBytes(bytes, digest && algorithmOf(digest));
    const { pushedAt, past } = sent;
    const stored = { manifest, digest: arrival.digest, size: bytes.length, tags, pushedAt, past };
    const write = (tx: Transaction) => this.write(tx, accountId, name, stored, { isWhole, mirroredFrom });
    const claimed = await this.#blobs.commit([arrival], write, accountId);
    return { digest: arrival.digest, subject: manifest.subject, claimed };
  }

  /** Reads a manifest as a push does. Throws `ManifestInvalid`, and `Denied` for content that is refused. */
  async read(name: string, digest: Digest, bytes: Buffer, mediaType: string | undefined): Promise<Manifest> {
    const manifest = await parsePushedManifest(bytes, mediaType);
    await this.#examine(name, [digest, ...manifest.references.map((each) => each.digest)]);
    return manifest;
  }

  /**
   * Adds a manifest to a repository and points its tags to it. Its bytes are stored in the same transaction, or are held until it
   * ends. Resolves to whether this claimed the repository. Throws `ManifestBlobUnknown` as `push` does, and `TagFrozen`.
   */
  async write(
    tx: Transaction,
    accountId: number,
    name: string,
    { manifest, digest, size, tags, pushedAt, past = [] }: ReadManifest,
    { isWhole = false, mirroredFrom }: PushOptions,
  ): Promise<boolean> {
    const now = this.#now();
    const repositoryId = await ensureRepository(tx, accountId, name, now);
    await lockRepository(tx, repositoryId, now);
    await refuseFrozen(tx, { accountId, repositoryId, name }, tags, digest);
    const isRepeated = await hasAlready(tx, repositoryId, digest, tags);
    const children = await childSizes(tx, repositoryId, manifest, isWhole);
    await this.#write(tx, repositoryId, manifest, digest, size, children);
    await noteUntagged(tx, repositoryId, tags, now);
    await writeTags(tx, repositoryId, tags, digest, Math.min(pushedAt ?? now, now));
    const content = { mediaType: manifest.mediaType, size };
    const owner = { accountId, upstream: '', name };
    if (pushedAt !== undefined) {
      const lines = [...past, { digest, seenAt: pushedAt, content }].map((line) => ({
        ...line,
        seenAt: Math.min(line.seenAt, now),
      }));
      await recordPast(
        tx,
        owner,
        tags.flatMap((reference) => lines.map((line) => ({ kind: 'tag' as const, reference, ...line }))),
      );
    }
    await record(
      tx,
      owner,
      [
        { kind: 'manifest', reference: digest, digest },
        ...tags.map((tag) => ({ kind: 'tag' as const, reference: tag, digest, content })),
      ],
      now,
    );
    const claim = 'UPDATE repositories SET claimed_at = ? WHERE id = ? AND claimed_at IS NULL';
    const isClaim = (await tx.run(claim, [now, repositoryId])) > 0;
    const subject = { kind: 'container', name, reference: tags[0] ?? digest } as const;
    const details = {
      digest,
      media_type: manifest.mediaType,
      ...tagsOf(tags),
      ...(isClaim && mirroredFrom !== undefined && { taken_over_from: mirroredFrom }),
    };
    // Otherwise a client could fill the record with pushes that change nothing.
    if (!isRepeated || isClaim) await recordEvent(tx, { type: 'image.pushed', accountId, subject, details }, now);
    return isClaim;
  }

  /** What the repository lacks: blobs that an image needs, anything that an index refers to. */
  async missing(accountId: number, name: string, manifest: Manifest): Promise<Digest[]> {
    const digests = neededBy(manifest, true);
    const repositoryId = await findRepository(this.#database, accountId, name);
    if (repositoryId === undefined) return digests;
    const sizes = await sizesOf(this.#database, repositoryId, manifest);
    return digests.filter((each) => !sizes.has(each));
  }

  /** Deletes a tag but not its manifest, or a manifest with its tags. Throws `NameUnknown`, `ManifestUnknown` or `Kept`. */
  async delete(accountId: number, name: string, reference: Reference): Promise<void> {
    await this.#database.transaction(async (tx) => {
      const repositoryId = await findRepository(tx, accountId, name);
      if (repositoryId === undefined) throw nameUnknown(name);
      const deletion = { now: this.#now(), deletedFor: this.#deletedFor };
      await lockRepository(tx, repositoryId, deletion.now);
      if (reference.tag === undefined) {
        const { digest } = reference;
        await refuseKept(tx, { accountId, repositoryId, name }, digest);
        if ((await deleteManifest(tx, repositoryId, digest, deletion)) === 0) throw manifestUnknown(reference);
        return;
      }
      const { tag } = reference;
      if ((await deleteTag(tx, repositoryId, tag, deletion)) === 0) throw manifestUnknown(reference);
      // This undoes the deletion.
      if ((await guardOf(tx, accountId)).keepsTag(name, tag)) throw kept(`${name}:${tag}`);
    });
  }

  /** Deletes a tag but not its manifest; resolves to whether the account had the tag. Throws `Kept`. */
  async deleteTag(accountId: number, name: string, tag: string): Promise<boolean> {
    try {
      await this.delete(accountId, name, { tag });
      return true;
    } catch (error) {
      if (isDomainError(error, 'NameUnknown') || isDomainError(error, 'ManifestUnknown')) return false;
      throw error;
    }
  }

  #find(accountId: number, name: string, reference: Reference): Promise<ManifestRow | undefined> {
    return reference.tag === undefined
      ? this.#database.getCached<ManifestRow>(findByDigest, [reference.digest, accountId, name])
      : this.#database.getCached<ManifestRow>(findByTag, [reference.tag, accountId, name]);
  }

  async #write(
    tx: Transaction,
    repositoryId: number,
    manifest: Manifest,
    digest: Digest,
    size: number,
    children: ReadonlyMap<Digest, number>,
  ): Promise<void> {
    const row = {
      repository_id: repositoryId,
      digest,
      media_type: manifest.mediaType,
      artifact_type: manifest.artifactType ?? null,
      subject: manifest.subject ?? null,
      annotations: manifest.subject && manifest.annotations ? JSON.stringify(manifest.annotations) : null,
      size_bytes: size,
      image_bytes: size + [...children.values()].reduce((sum, bytes) => sum + bytes, 0),
      pushed_at: this.#now(),
    };
    const key = [repositoryId, digest];
    const before = await tx.get<{ image_bytes: number }>(
      'SELECT image_bytes FROM manifests WHERE repository_id = ? AND digest = ?',
      key,
    );
    // The index that names a manifest comes after it: until then, a rule about untagged images must not see its old time.
    const update = `media_type = new.media_type, artifact_type = new.artifact_type, image_bytes = new.image_bytes,
      untagged_at = new.pushed_at`;
    await tx.upsert('manifests', ['repository_id', 'digest'], [row], update);
    await resizeParents(tx, repositoryId, digest, row.image_bytes - (before?.image_bytes ?? 0));
    if (!before) {
      await addRepositoryCounts(tx, repositoryId, {
        manifests: 1,
        bytes: (await isLinked(tx, repositoryId, digest)) ? 0 : size,
      });
    }
    const stored = await tx.get<{ id: number }>('SELECT id FROM manifests WHERE repository_id = ? AND digest = ?', key);
    for (const part of batches(manifest.references)) {
      await tx.insertNew(
        'manifest_references',
        part.map((each) => ({
          manifest_id: stored!.id,
          digest: each.digest,
          absent: children.has(each.digest) ? 0 : 1,
        })),
      );
    }
  }
}

/** The type and size of those of `digests` that are manifests of a repository. */
export async function describedManifests(
  database: Database,
  accountId: number,
  name: string,
  digests: readonly Digest[],
): Promise<Map<string, { mediaType: string; size: number }>> {
  const rows = await database.select<ManifestRow>(
    `SELECT ${columns} FROM repositories r JOIN manifests m ON m.repository_id = r.id
     AND m.digest IN (${placeholders(digests)}) WHERE r.account_id = ? AND r.name = ?`,
    [...digests, accountId, name],
  );
  return new Map(rows.map((row) => [row.digest, { mediaType: row.media_type, size: row.size_bytes }]));
}

/** As `sizesOf`; throws `ManifestBlobUnknown` if the repository lacks what the manifest needs. */
async function childSizes(
  tx: Queryable,
  repositoryId: number,
  manifest: Manifest,
  isWhole: boolean,
): Promise<ReadonlyMap<Digest, number>> {
  const sizes = await sizesOf(tx, repositoryId, manifest);
  const missing = neededBy(manifest, isWhole).filter((digest) => !sizes.has(digest));
  if (missing.length > 0) throw manifestBlobUnknown(missing);
  return sizes;
}

/** An image needs its blobs. An index needs nothing, unless it has to be whole. */
function neededBy({ kind, references, required }: Manifest, isWhole: boolean): Digest[] {
  return kind === 'index' && isWhole ? references.map(({ digest }) => digest) : required;
}

/** Tags for the details of an event; those above the limit are only counted. */
function tagsOf(tags: readonly string[]): { tags: string[]; tag_count: number } {
  return { tags: tags.slice(0, tagsInEvent), tag_count: tags.length };
}

/** `ManifestBlobUnknown`, for blobs or manifests that a repository lacks. */
export function manifestBlobUnknown(missing: readonly Digest[]): DomainError {
  return new DomainError(
    'ManifestBlobUnknown',
    `The manifest refers to ${missing[0]}, which was not pushed to this repository. Push that first.`,
    { detail: { digest: missing[0], missing: missing.length } },
  );
}

/**
 * `ManifestUnknown`, for a tag or digest that the repository does not have, or did not have on the day `date` because it is known
 * since a later one.
 */
export function manifestUnknown({ tag, digest }: Reference, known?: { since: string; date: string }): DomainError {
  const what = tag === undefined ? 'digest' : 'tag';
  const message = known
    ? `This ${what} is known from ${known.since}, and this name shows the repository of ${known.date}.`
    : 'This repository has no manifest with this tag or digest.';
  return new DomainError('ManifestUnknown', message, { detail: tag === undefined ? { digest } : { tag } });
}

/** Whether the repository has the manifest, and all `tags` point to it. */
async function hasAlready(
  tx: Transaction,
  repositoryId: number,
  digest: Digest,
  tags: readonly string[],
): Promise<boolean> {
  const sql = 'SELECT id FROM manifests WHERE repository_id = ? AND digest = ?';
  if (!(await tx.get(sql, [repositoryId, digest]))) return false;
  if (tags.length === 0) return true;
  const same = await tx.select(
    `SELECT name FROM tags WHERE repository_id = ? AND digest = ? AND name IN (${placeholders(tags)})`,
    [repositoryId, digest, ...tags],
  );
  return same.length === new Set(tags).size;
}
