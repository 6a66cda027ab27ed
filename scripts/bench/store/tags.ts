import type { Row } from '../../../src/database/database.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { suffixesOf } from '../../../src/mirror/store/words.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { tagRow } from '../../../src/oci/hosted/natural-order.ts';

/** An image with one tag, as from `pushImage`. */
export interface MadeImage {
  repository: string;
  tag: string;
  /** Digests and sizes of its manifest, its config and its layer. */
  manifest: MadeBlob;
  parts: MadeBlob[];
}

export interface MadeBlob {
  digest: string;
  size: number;
}

/** Generates images, a hundred tags per repository. */
export function* makeImages(count: number): Generator<MadeImage> {
  for (let index = 0; index < count; index += 1) {
    const repository = `team${Math.floor(index / 1000)}/app${Math.floor(index / 100)}`;
    const tag = `1.${index % 100}`;
    const blob = (what: string, size: number) => ({ digest: digestOf(`${what} ${repository} ${tag}`), size });
    const parts = [blob('config', 1500), blob('layer', 30_000_000)];
    yield { repository, tag, manifest: blob('manifest', 500), parts };
  }
}

/** What `repositories` counts of the content of a repository. */
export interface Counts {
  tag_count: number;
  manifest_count: number;
  size_bytes: number;
}

/** The row of a repository with this content. */
export function repositoryRow(
  name: string,
  keys: { accountId: number; repository: number; now: number },
  counts: Counts,
): Row {
  const { accountId, repository, now } = keys;
  return {
    id: repository,
    account_id: accountId,
    name,
    claimed_at: now,
    created_at: now,
    updated_at: now,
    pull_count: 0,
    last_pulled_at: null,
    ...counts,
  };
}

/** The rows by which a search finds a repository. */
export function wordRows(name: string, accountId: number): Row[] {
  return suffixesOf(name).map((suffix) => ({ account_id: accountId, suffix, name }));
}

/** The rows that a push of an image writes for its repository, by table. The files do not exist. */
export function rowsOfImage(
  { tag, manifest, parts }: MadeImage,
  { repository, id, now }: { repository: number; id: number; now: number },
) {
  return {
    manifests: [
      {
        id,
        repository_id: repository,
        digest: manifest.digest,
        media_type: mediaTypes.image,
        artifact_type: 'application/vnd.oci.image.config.v1+json',
        subject: null,
        annotations: null,
        size_bytes: manifest.size,
        image_bytes: [manifest, ...parts].reduce((sum, { size }) => sum + size, 0),
        pushed_at: now,
        untagged_at: null,
        pull_count: 0,
        last_pulled_at: null,
      },
    ],
    tags: [tagRow(repository, tag, manifest.digest as Digest, now)],
    repository_blobs: parts.map(({ digest }): Row => ({ repository_id: repository, digest, linked_at: now })),
    manifest_references: parts.map(({ digest }): Row => ({ manifest_id: id, digest, absent: 0 })),
    blobs: [manifest, ...parts].map(({ digest, size }): Row => ({ digest, size, stored_at: now })),
  };
}
