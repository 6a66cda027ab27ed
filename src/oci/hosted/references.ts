import type { Database } from '../../database/database.ts';
import { lineSums } from '../../history/history.ts';
import type { BlobReferences } from '../../storage/blobs/references.ts';
import { sumByPage, type RowBytes } from '../../usage/row-bytes.ts';

const accountOf = (table: string) => `SELECT repositories.account_id, ${table}.digest FROM ${table}
  JOIN repositories ON repositories.id = ABS(${table}.repository_id) WHERE ${table}.digest > ? AND ${table}.digest <= ?`;

/** The blobs of hosted images: layers and manifests. What a manifest refers to counts as long as the manifest is there, or can be restored. */
export const imageReferences: BlobReferences = {
  origin: 'hosted',
  tables: ['repository_blobs', 'manifests', 'manifest_references'],
  // An index may name images that were not pushed, and an image layers of other servers.
  sparse: ['manifest_references'],
  owned: [
    accountOf('repository_blobs'),
    accountOf('manifests'),
    // A blob that was deleted from the repository is kept as long as a manifest refers to it.
    `SELECT repositories.account_id, manifest_references.digest FROM manifest_references
     JOIN manifests ON manifests.id = manifest_references.manifest_id
     JOIN repositories ON repositories.id = ABS(manifests.repository_id)
     WHERE manifest_references.digest > ? AND manifest_references.digest <= ? AND manifest_references.absent = 0`,
  ],
  async holders(tx, digest, limit) {
    const rows = await tx.select<{ name: string }>(
      `SELECT r.name FROM repositories r WHERE r.id IN (
         SELECT repository_id FROM repository_blobs WHERE digest = ?
         UNION SELECT ABS(repository_id) FROM manifests WHERE digest = ?
         UNION SELECT ABS(m.repository_id) FROM manifest_references f JOIN manifests m ON m.id = f.manifest_id
               WHERE f.digest = ? AND f.absent = 0
       ) LIMIT ?`,
      [digest, digest, digest, limit],
    );
    return rows.map(({ name }) => `repository ${name}`);
  },
};

/** Bytes that a tag or a line of a history uses in the database, with its indexes. */
const rowBytes = 500;
/** Tags and lines that do not count: an account with little content sees only the bytes that it pushed. */
const freeRows = 1000;

/** The bytes of rows: annotations of manifests, which are kept for lists of referrers, and many tags and lines of histories. */
export async function* imageRowBytes(database: Database, step: number): AsyncGenerator<RowBytes[]> {
  yield* annotationBytes(database, step);
  const rows = new Map<number, number>();
  for (const pages of [tagBytes(database, step), sumByPage(database, step * 20, lineSums(rowBytes))]) {
    for await (const page of pages)
      for (const { account_id: id, bytes } of page) rows.set(id, (rows.get(id) ?? 0) + bytes);
  }
  yield [...rows].map(([id, bytes]) => ({ account_id: id, bytes: Math.max(0, bytes - freeRows * rowBytes) }));
}

/** The number of tags is kept with each repository. */
function tagBytes(database: Database, step: number): AsyncGenerator<RowBytes[]> {
  return sumByPage(database, step, {
    last: `SELECT COUNT(*) AS count, MAX(id) AS last
           FROM (SELECT id FROM repositories WHERE id > ? ORDER BY id LIMIT ?) AS page`,
    sum: `SELECT account_id, SUM(tag_count) * ${rowBytes} AS bytes
          FROM repositories WHERE id > ? AND id <= ? GROUP BY account_id`,
  });
}

function annotationBytes(database: Database, step: number): AsyncGenerator<RowBytes[]> {
  return sumByPage(database, step, {
    last: `SELECT COUNT(*) AS count, MAX(id) AS last
           FROM (SELECT id FROM manifests WHERE id > ? ORDER BY id LIMIT ?) AS page`,
    sum: `SELECT repositories.account_id, SUM(COALESCE(OCTET_LENGTH(manifests.annotations), 0)) AS bytes
          FROM manifests JOIN repositories ON repositories.id = manifests.repository_id
          WHERE manifests.id > ? AND manifests.id <= ? GROUP BY repositories.account_id`,
  });
}
