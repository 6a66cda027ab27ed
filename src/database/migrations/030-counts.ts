import type { Migration } from '../migrate.ts';

/**
 * What lists of images show of each repository, kept by the transactions that change it, because a repository can have very
 * many tags and blobs. `manifest_count` is 0 for a claim without content. `size_bytes` has each digest once, whether it is a
 * manifest, a blob of the repository, or both. An instance of an older version does not keep them: the job `gc` corrects them.
 *
 * The two indexes find the claims without content among many names in use.
 */
export const counts: Migration[] = [
  {
    name: '030-1-repository-tag-count',
    sql: 'ALTER TABLE repositories ADD COLUMN tag_count BIGINT NOT NULL DEFAULT 0',
  },
  {
    name: '030-2-repository-manifest-count',
    sql: 'ALTER TABLE repositories ADD COLUMN manifest_count BIGINT NOT NULL DEFAULT 0',
  },
  {
    name: '030-3-repository-size',
    sql: 'ALTER TABLE repositories ADD COLUMN size_bytes BIGINT NOT NULL DEFAULT 0',
  },
  {
    name: '030-4-repository-counts',
    sql: `UPDATE repositories SET
      tag_count = (SELECT COUNT(*) FROM tags t WHERE t.repository_id = repositories.id),
      manifest_count = (SELECT COUNT(*) FROM manifests m WHERE m.repository_id = repositories.id),
      size_bytes = COALESCE((SELECT SUM(m.size_bytes) FROM manifests m WHERE m.repository_id = repositories.id), 0)
        + COALESCE((SELECT SUM(b.size) FROM repository_blobs rb JOIN blobs b ON b.digest = rb.digest
            WHERE rb.repository_id = repositories.id AND NOT EXISTS (SELECT 1 FROM manifests m
              WHERE m.repository_id = rb.repository_id AND m.digest = rb.digest)), 0)`,
  },
  {
    name: '030-5-repositories-empty',
    sql: 'CREATE INDEX repositories_empty ON repositories (account_id, manifest_count, name)',
  },
  {
    name: '030-6-packages-empty',
    sql: 'CREATE INDEX packages_empty ON packages (account_id, version_count, package_key)',
  },
];
