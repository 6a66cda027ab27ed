import type { Migration } from '../migrate.ts';

/**
 * Hosted images. The first manifest sets `claimed_at`, which stays after the last manifest is deleted: the name is not
 * requested from upstreams. `repository_blobs` is the permission to read a blob through a repository.
 * `manifests.annotations` is stored only for referrers. Names, tags and digests compare by bytes.
 *
 * The staged file of an upload session has its first `received` bytes. `digest` is their digest, if it is known without
 * reading them again. `writer` has a lease on the file until `writer_until`. `torn` marks a session whose writer
 * disappeared.
 */
export const repositories: Migration[] = [
  {
    name: '004-1-repositories',
    sql: `CREATE TABLE repositories (
      id {serial},
      account_id BIGINT NOT NULL,
      name VARCHAR(255) NOT NULL,
      claimed_at BIGINT,
      created_at BIGINT NOT NULL,
      updated_at BIGINT NOT NULL,
      pull_count BIGINT NOT NULL DEFAULT 0,
      last_pulled_at BIGINT,
      UNIQUE (account_id, name)
    )`,
  },
  {
    name: '004-2-manifests',
    sql: `CREATE TABLE manifests (
      id {serial},
      repository_id BIGINT NOT NULL,
      digest VARCHAR(135) NOT NULL,
      media_type VARCHAR(255) NOT NULL,
      artifact_type VARCHAR(255),
      subject VARCHAR(135),
      annotations {text},
      size_bytes BIGINT NOT NULL,
      image_bytes BIGINT NOT NULL,
      pushed_at BIGINT NOT NULL,
      UNIQUE (repository_id, digest)
    )`,
  },
  {
    name: '004-3-manifests-subject',
    sql: 'CREATE INDEX manifests_subject ON manifests (repository_id, subject, digest)',
  },
  { name: '004-4-manifests-digest', sql: 'CREATE INDEX manifests_digest ON manifests (digest)' },
  {
    name: '004-5-tags',
    sql: `CREATE TABLE tags (
      repository_id BIGINT NOT NULL,
      name VARCHAR(128) NOT NULL,
      digest VARCHAR(135) NOT NULL,
      updated_at BIGINT NOT NULL,
      PRIMARY KEY (repository_id, name)
    )`,
  },
  { name: '004-6-tags-digest', sql: 'CREATE INDEX tags_digest ON tags (repository_id, digest)' },
  {
    name: '004-7-repository-blobs',
    sql: `CREATE TABLE repository_blobs (
      repository_id BIGINT NOT NULL,
      digest VARCHAR(135) NOT NULL,
      linked_at BIGINT NOT NULL,
      PRIMARY KEY (repository_id, digest)
    )`,
  },
  { name: '004-8-repository-blobs-digest', sql: 'CREATE INDEX repository_blobs_digest ON repository_blobs (digest)' },
  {
    name: '004-9-manifest-references',
    sql: `CREATE TABLE manifest_references (
      manifest_id BIGINT NOT NULL,
      digest VARCHAR(135) NOT NULL,
      PRIMARY KEY (manifest_id, digest)
    )`,
  },
  {
    name: '004-10-manifest-references-digest',
    sql: 'CREATE INDEX manifest_references_digest ON manifest_references (digest)',
  },
  {
    name: '004-11-uploads',
    sql: `CREATE TABLE uploads (
      id CHAR(36) PRIMARY KEY,
      account_id BIGINT NOT NULL,
      repository VARCHAR(255) NOT NULL,
      received BIGINT NOT NULL,
      digest VARCHAR(135),
      torn SMALLINT NOT NULL DEFAULT 0,
      writer CHAR(36),
      writer_until BIGINT,
      created_at BIGINT NOT NULL,
      updated_at BIGINT NOT NULL
    )`,
  },
  { name: '004-12-uploads-age', sql: 'CREATE INDEX uploads_age ON uploads (updated_at)' },
];
