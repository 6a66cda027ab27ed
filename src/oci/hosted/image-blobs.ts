import type { NameSet } from '../../accounts/names.ts';
import type { Database, Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { Content } from '../../storage/files/content.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import { keepLive } from '../../storage/blobs/states.ts';
import { isAbandoned } from './abandoned-blobs.ts';
import { refuseKept } from './kept-images.ts';
import { ensureRepository, findRepository, lockRepository } from './repositories.ts';
import { addRepositoryCounts, bytesOfLinks } from './repository-counts.ts';
import { Recent } from '../../runtime/recent.ts';

const findBlob = `SELECT ${sizeOf('rb.digest')} AS size, rb.repository_id, rb.linked_at FROM repositories r
  JOIN repository_blobs rb ON rb.repository_id = r.id AND rb.digest = ?
  WHERE r.account_id = ? AND r.name = ?`;

interface BlobOfRepository {
  size: number;
  repository_id: number;
  linked_at: number;
}

/** The longest time, in milliseconds, between two renewals of an unreferenced blob; less with a short grace. */
const maxRenewEvery = 300_000;
/** The part of the grace after which a blob is renewed. */
const renewShare = 0.1;
const maxRenewed = 10_000;

/** The blobs of repositories. A blob can be read only through a repository that has a row for it. */
export class ImageBlobs {
  readonly #database: Database;
  readonly #blobs: BlobStore;
  readonly #now: () => number;
  readonly #renewEvery: number;
  /** Blobs whose time was checked. */
  readonly #renewed: Recent<string, true>;

  /** `grace` is how long the collector keeps unreferenced blobs, in milliseconds. */
  constructor(database: Database, blobs: BlobStore, grace: number, now: () => number) {
    this.#database = database;
    this.#blobs = blobs;
    this.#now = now;
    this.#renewEvery = Math.min(maxRenewEvery, Math.floor(grace * renewShare));
    this.#renewed = new Recent(maxRenewed, { ttl: this.#renewEvery, ttlResolution: 0, perf: { now } });
  }

  /** The content of a blob, which the caller closes; `BlobUnknown` if the repository does not have it. */
  async open(accountId: number, name: string, digest: Digest): Promise<Content> {
    const { size } = await this.#find(accountId, name, digest);
    return this.#blobs.open(digest, size);
  }

  /**
   * As `open`, for a client that will not send the blob if it exists: the time of an unreferenced blob is renewed, so that
   * it is kept until the client sends its manifest. This is checked and written at most once in `renewEvery` for each blob.
   */
  async openBeforePush(accountId: number, name: string, digest: Digest): Promise<Content> {
    const { size, repository_id: repositoryId, linked_at: linkedAt } = await this.#find(accountId, name, digest);
    const content = await this.#blobs.open(digest, size, true);
    const key = `${repositoryId} ${digest}`;
    if (this.#renewEvery === 0 || this.#renewed.has(key)) return content;
    try {
      const now = this.#now();
      // A time in the future is from a clock that was set back since.
      const isRecent = linkedAt <= now && now - linkedAt < this.#renewEvery;
      if (!isRecent && !(await this.#renew(repositoryId, digest, now))) throw blobUnknown(digest);
      this.#renewed.set(key, true);
      return content;
    } catch (error) {
      content.close();
      throw error;
    }
  }

  /** Renews the time of a blob that no manifest of the repository needs; resolves to whether the repository has the blob. */
  async #renew(repositoryId: number, digest: Digest, now: number): Promise<boolean> {
    const values = [repositoryId, digest];
    const row = await this.#database.get<{ abandoned: number }>(
      `SELECT CASE WHEN ${isAbandoned} THEN 1 ELSE 0 END AS abandoned FROM repository_blobs rb
       WHERE rb.repository_id = ? AND rb.digest = ?`,
      values,
    );
    if (row?.abandoned !== 1) return row !== undefined;
    const sql = 'UPDATE repository_blobs SET linked_at = ? WHERE repository_id = ? AND digest = ?';
    return (await this.#database.transaction((tx) => tx.run(sql, [now, ...values]))) > 0;
  }

  async #find(accountId: number, name: string, digest: Digest): Promise<BlobOfRepository> {
    const row = await this.#database.getCached<BlobOfRepository>(findBlob, [digest, accountId, name]);
    if (typeof row?.size !== 'number') throw blobUnknown(digest);
    return row;
  }

  /**
   * Makes `staged` a blob of the repository, in one transaction with the end of its upload session, if it has one. The caller
   * has verified its digest.
   */
  async add(
    accountId: number,
    name: string,
    staged: StagedFile,
    digest: Digest,
    session?: { id: string; end: (tx: Transaction) => Promise<void> },
  ): Promise<void> {
    const now = this.#now();
    const write = async (tx: Transaction) => {
      await session?.end(tx);
      const repositoryId = await ensureRepository(tx, accountId, name, now);
      await writeLink(tx, repositoryId, digest, now, session?.id);
    };
    await this.#blobs.commit([{ staged, digest }], write, accountId);
  }

  /** Whether the repository has this blob, on the disk, and this upload session was the last to put it there. */
  async isFromUpload(accountId: number, name: string, digest: Digest, uploadId: string): Promise<boolean> {
    const row = await this.#database.transaction((tx) =>
      tx.get(
        `SELECT rb.digest FROM repositories r
         JOIN repository_blobs rb ON rb.repository_id = r.id AND rb.digest = ? AND rb.upload_id = ?
         WHERE r.account_id = ? AND r.name = ?`,
        [digest, uploadId, accountId, name],
      ),
    );
    return row !== undefined;
  }

  /**
   * Adds a blob of another repository of the account (distribution-spec, "Mounting a blob"): of `from`, or of any one if
   * `from` is undefined. With `only`, the other repository must have one of these names. Resolves to whether there is one.
   * A damaged blob is not added, so that the client uploads it again, which repairs it. Throws
   * `StorageFull` if the disk has less free space than its reserve.
   */
  async mount(
    accountId: number,
    name: string,
    digest: Digest,
    from: string | undefined,
    only?: NameSet,
  ): Promise<boolean> {
    await this.#blobs.admit(0);
    const now = this.#now();
    const among = only?.where('r.name');
    const source = `SELECT r.id FROM repository_blobs rb JOIN repositories r ON r.id = rb.repository_id
                    WHERE rb.digest = ? AND r.account_id = ? ${among ? `AND ${among.sql}` : ''}`;
    const values = [digest, accountId, ...(among?.values ?? [])];
    if (!(await this.#blobs.isWhole(digest))) return false;
    return this.#database.transaction(async (tx) => {
      const found =
        from === undefined
          ? await tx.get(`${source} LIMIT 1`, values)
          : await tx.get(`${source} AND r.name = ?`, [...values, from]);
      if (!found) return false;
      return link(tx, await ensureRepository(tx, accountId, name, now), digest, now);
    });
  }

  /** Adds stored blobs to the repository. The caller checks that the mirror has them under the same name. */
  async adopt(accountId: number, name: string, digests: readonly Digest[]): Promise<void> {
    if (digests.length === 0) return;
    const now = this.#now();
    await this.#database.transaction(async (tx) => {
      const repositoryId = await ensureRepository(tx, accountId, name, now);
      for (const digest of [...digests].sort()) await link(tx, repositoryId, digest, now);
    });
  }

  /** Whether a blob was added to the repository after `since`, milliseconds since 1970 UTC. */
  async anySince(accountId: number, name: string, since: number): Promise<boolean> {
    const row = await this.#database.get(
      `SELECT rb.digest FROM repositories r JOIN repository_blobs rb ON rb.repository_id = r.id AND rb.linked_at > ?
       WHERE r.account_id = ? AND r.name = ? LIMIT 1`,
      [since, accountId, name],
    );
    return row !== undefined;
  }

  /** Removes a blob from one repository; `BlobUnknown` if the repository does not have it, `Kept` if a kept image needs it. */
  async delete(accountId: number, name: string, digest: Digest): Promise<void> {
    const deleted = await this.#database.transaction(async (tx) => {
      const repositoryId = await findRepository(tx, accountId, name);
      if (repositoryId === undefined) return 0;
      await lockRepository(tx, repositoryId, this.#now());
      await refuseKept(tx, { accountId, repositoryId, name }, digest);
      await addRepositoryCounts(tx, repositoryId, { bytes: -(await bytesOfLinks(tx, repositoryId, [digest])) });
      return tx.run('DELETE FROM repository_blobs WHERE repository_id = ? AND digest = ?', [repositoryId, digest]);
    });
    if (deleted === 0) throw blobUnknown(digest);
  }
}

/** Adds a stored blob to a repository, if it is still stored. */
export async function linkBlob(
  tx: Transaction,
  accountId: number,
  name: string,
  digest: Digest,
  now: number,
): Promise<void> {
  await link(tx, await ensureRepository(tx, accountId, name, now), digest, now);
}

/** Adds a stored blob to the repository; resolves to whether there is such a blob. */
async function link(tx: Transaction, repositoryId: number, digest: Digest, now: number): Promise<boolean> {
  if (!(await keepLive(tx, digest, now))) return false;
  await writeLink(tx, repositoryId, digest, now);
  return true;
}

/** Renews the time of an existing link too: its blob was just sent, and a manifest will soon refer to it. */
async function writeLink(
  tx: Transaction,
  repositoryId: number,
  digest: Digest,
  now: number,
  uploadId?: string,
): Promise<void> {
  const row = { repository_id: repositoryId, digest, linked_at: now, ...(uploadId && { upload_id: uploadId }) };
  if ((await tx.insertNew('repository_blobs', [row])) > 0) {
    // Last, because this locks the row of the repository, which all pushes to it need.
    await addRepositoryCounts(tx, repositoryId, { bytes: await bytesOfLinks(tx, repositoryId, [digest]) });
    return;
  }
  const changes = `linked_at = new.linked_at${uploadId ? ', upload_id = new.upload_id' : ''}`;
  await tx.upsert('repository_blobs', ['repository_id', 'digest'], [row], changes);
}

/** `BlobUnknown`, for a repository that does not have the blob. */
export function blobUnknown(digest: Digest): DomainError {
  return new DomainError('BlobUnknown', 'This repository has no blob with this digest.', { detail: { digest } });
}
