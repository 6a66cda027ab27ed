import type { NameSet } from '../accounts/names.ts';
import type { Database, Transaction } from '../database/database.ts';
import type { Digest } from '../digest.ts';
import { DomainError } from '../errors.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { Content } from '../storage/content.ts';
import { sizeOf } from '../storage/sizes.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { keepLive } from '../storage/states.ts';
import { ensureRepository, findRepository, lockRepository } from './repositories.ts';

const sizeOfBlob = `SELECT ${sizeOf('rb.digest')} AS size FROM repositories r
  JOIN repository_blobs rb ON rb.repository_id = r.id AND rb.digest = ?
  WHERE r.account_id = ? AND r.name = ?`;

/** The blobs of repositories. A blob can be read only through a repository that has a row for it. */
export class ImageBlobs {
  readonly #database: Database;
  readonly #blobs: BlobStore;
  readonly #now: () => number;

  constructor(database: Database, blobs: BlobStore, now: () => number) {
    this.#database = database;
    this.#blobs = blobs;
    this.#now = now;
  }

  /** The content of a blob, which the caller closes; `BlobUnknown` if the repository does not have it. */
  async open(accountId: number, name: string, digest: Digest): Promise<Content> {
    const row = await this.#database.getCached<{ size: number | null }>(sizeOfBlob, [digest, accountId, name]);
    if (typeof row?.size !== 'number') throw blobUnknown(digest);
    return this.#blobs.open(digest, row.size);
  }

  /** Makes `staged` a blob of the repository, in one transaction with `alongside`. The caller has verified its digest. */
  async add(
    accountId: number,
    name: string,
    staged: StagedFile,
    digest: Digest,
    alongside?: (tx: Transaction) => Promise<void>,
  ): Promise<void> {
    const now = this.#now();
    await this.#blobs.commit([{ staged, digest }], async (tx) => {
      await alongside?.(tx);
      const repositoryId = await ensureRepository(tx, accountId, name, now);
      await writeLink(tx, repositoryId, digest, now);
    });
  }

  /**
   * Adds a blob of another repository of the account (distribution-spec, "Mounting a blob"): of `from`, or of any one if
   * `from` is undefined. With `only`, the other repository must have one of these names. Resolves to whether there is one.
   * Throws `StorageFull` if the disk has less free space than its reserve.
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

  /** Removes a blob from one repository; `BlobUnknown` if the repository does not have it. */
  async delete(accountId: number, name: string, digest: Digest): Promise<void> {
    const deleted = await this.#database.transaction(async (tx) => {
      const repositoryId = await findRepository(tx, accountId, name);
      if (repositoryId === undefined) return 0;
      await lockRepository(tx, repositoryId, this.#now());
      return tx.run('DELETE FROM repository_blobs WHERE repository_id = ? AND digest = ?', [repositoryId, digest]);
    });
    if (deleted === 0) throw blobUnknown(digest);
  }
}

/** Adds a stored blob to the repository; resolves to whether there is such a blob. */
async function link(tx: Transaction, repositoryId: number, digest: Digest, now: number): Promise<boolean> {
  if (!(await keepLive(tx, digest, now))) return false;
  await writeLink(tx, repositoryId, digest, now);
  return true;
}

/** Renews the time of an existing link too: its blob was just sent, and a manifest will soon refer to it. */
async function writeLink(tx: Transaction, repositoryId: number, digest: Digest, now: number): Promise<void> {
  const row = { repository_id: repositoryId, digest, linked_at: now };
  await tx.upsert('repository_blobs', ['repository_id', 'digest'], [row], 'linked_at = new.linked_at');
}

/** `BlobUnknown`, for a repository that does not have the blob. */
export function blobUnknown(digest: Digest): DomainError {
  return new DomainError('BlobUnknown', 'This repository has no blob with this digest.', { detail: { digest } });
}
