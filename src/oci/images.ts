import type { NameSet } from '../accounts/names.ts';
import type { Config } from '../config/schema.ts';
import { placeholders, type Database } from '../database/database.ts';
import type { Digest } from '../digest.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import { sizeOf } from '../storage/sizes.ts';
import { ImageBlobs } from './image-blobs.ts';
import { Manifests } from './manifests.ts';
import { Referrers } from './referrers.ts';
import { Repositories } from './repositories.ts';
import { Uploads } from './uploads.ts';

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
  /** In byte order, at most `tagsShown`; `tagCount` is the number of all. */
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

  /** Up to `limit` repositories of the account that hold a manifest, by name, after the name `cursor`; `only` of these if given. */
  async listRepositories(accountId: number, limit: number, cursor = '', only?: NameSet): Promise<RepositorySummary[]> {
    const among = only?.where('r.name');
    const values = [accountId, cursor, ...(among?.values ?? []), limit];
    return this.#summaries(`r.name > ? ${among ? `AND ${among.sql}` : ''}`, values);
  }

  /** One repository of the account, with its tags; undefined if it holds no manifest. */
  async getRepository(accountId: number, name: string): Promise<RepositorySummary | undefined> {
    return (await this.#summaries('r.name = ?', [accountId, name, 1]))[0];
  }

  async #summaries(condition: string, values: readonly (string | number | null)[]): Promise<RepositorySummary[]> {
    const rows = await this.#database.select<{
      id: number;
      name: string;
      pull_count: number;
      last_pulled_at: number | null;
      tag_count: number;
    }>(
      `SELECT r.id, r.name, r.pull_count, r.last_pulled_at,
         (SELECT COUNT(*) FROM tags t WHERE t.repository_id = r.id) AS tag_count
       FROM repositories r
       WHERE r.account_id = ? AND ${condition} AND EXISTS (SELECT 1 FROM manifests m WHERE m.repository_id = r.id)
       ORDER BY r.name LIMIT ?`,
      values,
    );
    const sizes = await this.#sizes(rows.map(({ id }) => id));
    const summaries: RepositorySummary[] = [];
    for (const row of rows) {
      summaries.push({
        id: row.id,
        name: row.name,
        sizeBytes: sizes.get(row.id) ?? 0,
        tagCount: row.tag_count,
        pullCount: row.pull_count,
        lastPulledAt: row.last_pulled_at,
        tags: await this.#tags(row.id),
      });
    }
    return summaries;
  }

  /** Deletes a tag, but not its manifest; resolves to whether the account had the tag. */
  deleteTag(accountId: number, name: string, tag: string): Promise<boolean> {
    return this.manifests.deleteTag(accountId, name, tag);
  }

  async #sizes(ids: readonly number[]): Promise<Map<number, number>> {
    if (ids.length === 0) return new Map();
    const rows = await this.#database.select<{ repository_id: number; total: number }>(
      `SELECT repository_id, COALESCE(SUM(size), 0) AS total FROM (
         SELECT rb.repository_id, rb.digest, ${sizeOf('rb.digest')} AS size FROM repository_blobs rb
         WHERE rb.repository_id IN (${placeholders(ids)})
         UNION
         SELECT m.repository_id, m.digest, m.size_bytes FROM manifests m WHERE m.repository_id IN (${placeholders(ids)})
       ) AS stored GROUP BY repository_id`,
      [...ids, ...ids],
    );
    return new Map(rows.map((row) => [row.repository_id, row.total]));
  }

  async #tags(repositoryId: number): Promise<TagSummary[]> {
    return this.#database.select<TagSummary>(
      `SELECT t.name, t.digest, m.media_type AS mediaType, m.image_bytes AS sizeBytes, t.updated_at AS updatedAt
       FROM tags t JOIN manifests m ON m.repository_id = t.repository_id AND m.digest = t.digest
       WHERE t.repository_id = ? ORDER BY t.name LIMIT ${tagsShown}`,
      [repositoryId],
    );
  }
}
