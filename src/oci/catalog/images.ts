import type { NameSet } from '../../accounts/names.ts';
import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import { ImageBlobs } from '../hosted/image-blobs.ts';
import { Manifests } from '../hosted/manifests.ts';
import { Referrers } from '../hosted/referrers.ts';
import { hasManifest, Repositories } from '../hosted/repositories.ts';
import { Uploads } from '../uploads/uploads.ts';

export interface TagSummary {
  name: string;
  digest: Digest;
  mediaType: string;
  /** The size of the manifest and of everything that it refers to. */
  sizeBytes: number;
  updatedAt: number;
}

export interface RepositorySummary {
  id: number;
  name: string;
  /** The size of all distinct blobs and manifests of the repository. */
  sizeBytes: number;
  tagCount: number;
  pullCount: number;
  lastPulledAt: number | null;
  /** In byte order, at most as many as the caller wants; `tagCount` is the number of all. */
  tags: TagSummary[];
}

/** The most tags of one repository in a list of repositories. */
export const tagsShown = 1000;

/** The hosted images of all accounts: the registry's parts, and the queries of the management API. */
export class Images {
  readonly repositories: Repositories;
  readonly blobs: ImageBlobs;
  readonly manifests: Manifests;
  readonly referrers: Referrers;
  readonly uploads: Uploads;
  readonly #database: Database;

  /** `folder` is the identity of the data folder. */
  constructor(
    database: Database,
    blobs: BlobStore,
    { limits, gc }: Pick<Config, 'limits' | 'gc'>,
    now: () => number,
    folder: string,
  ) {
    this.#database = database;
    this.repositories = new Repositories(database);
    this.blobs = new ImageBlobs(database, blobs, gc.grace, now);
    this.manifests = new Manifests(database, blobs, now);
    this.referrers = new Referrers(database, this.manifests);
    this.uploads = new Uploads(database, blobs, this.blobs, { limits, now, folder });
  }

  /** Closes the files of uploads that are not in use; called every few seconds. */
  async flush(): Promise<void> {
    await this.uploads.closeQuiet();
  }

  /** Waits for the uploads in progress and closes their files. */
  async close(): Promise<void> {
    await this.uploads.close();
    await this.flush();
  }

  /**
   * Up to `limit` repositories of the account that hold a manifest, by name, after the name `cursor`, with up to `tags` tags
   * each; `only` of these repositories if given.
   */
  async listRepositories(
    accountId: number,
    limit: number,
    cursor = '',
    only?: NameSet,
    tags = tagsShown,
  ): Promise<RepositorySummary[]> {
    const among = only?.where('r.name');
    const values = [accountId, cursor, ...(among?.values ?? []), limit];
    return this.#summaries(`r.name > ? ${among ? `AND ${among.sql}` : ''}`, values, tags);
  }

  /** One repository of the account, without its tags; undefined if it holds no manifest. */
  async getRepository(accountId: number, name: string): Promise<RepositorySummary | undefined> {
    return (await this.#summaries('r.name = ?', [accountId, name, 1], 0))[0];
  }

  async #summaries(
    condition: string,
    values: readonly (string | number | null)[],
    tags: number,
  ): Promise<RepositorySummary[]> {
    const rows = await this.#database.select<Omit<RepositorySummary, 'tags'>>(
      `SELECT r.id, r.name, r.size_bytes AS sizeBytes, r.tag_count AS tagCount, r.pull_count AS pullCount,
         r.last_pulled_at AS lastPulledAt
       FROM repositories r
       WHERE r.account_id = ? AND ${condition} AND ${hasManifest}
       ORDER BY r.name LIMIT ?`,
      values,
    );
    const summaries: RepositorySummary[] = [];
    for (const row of rows) summaries.push({ ...row, tags: tags > 0 ? await this.#tags(row.id, tags) : [] });
    return summaries;
  }

  /** Deletes a tag, but not its manifest; resolves to whether the account had the tag. */
  deleteTag(accountId: number, name: string, tag: string): Promise<boolean> {
    return this.manifests.deleteTag(accountId, name, tag);
  }

  async #tags(repositoryId: number, limit: number): Promise<TagSummary[]> {
    return this.#database.select<TagSummary>(
      `SELECT t.name, t.digest, m.media_type AS mediaType, m.image_bytes AS sizeBytes, t.updated_at AS updatedAt
       FROM tags t JOIN manifests m ON m.repository_id = t.repository_id AND m.digest = t.digest
       WHERE t.repository_id = ? ORDER BY t.name LIMIT ?`,
      [repositoryId, limit],
    );
  }
}
