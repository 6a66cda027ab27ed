import type { Migration } from '../migrate.ts';

/**
 * `repository_blobs.upload_id` is the upload session that last put the blob into the repository. When the answer to the last
 * request of a session is lost, the client repeats the request, and finds its blob by this id. NULL for a blob that came
 * without a session.
 */
export const finishedUploads: Migration[] = [
  {
    name: '017-1-repository-blobs-upload',
    sql: 'ALTER TABLE repository_blobs ADD COLUMN upload_id VARCHAR(36){ascii}',
  },
];
