import type { Database } from '../../database/database.ts';
import type { BlobReferences } from '../../storage/blobs/references.ts';
import { sumByPage, type RowBytes } from '../../usage/row-bytes.ts';

/** The blobs of hosted packages: their files, symbols among them. Deleted versions that can be restored need theirs, too. */
export const packageReferences: BlobReferences = {
  origin: 'hosted',
  tables: ['package_blobs'],
  owned: [
    `SELECT packages.account_id, package_blobs.digest FROM package_blobs
     JOIN package_versions ON package_versions.id = package_blobs.version_row
     JOIN packages ON packages.id = ABS(package_versions.package_row)
     WHERE package_blobs.digest > ? AND package_blobs.digest <= ?`,
  ],
  async holders(tx, digest, limit) {
    const rows = await tx.select<{ id: string; version: string }>(
      `SELECT p.package_id AS id, v.version FROM package_blobs b JOIN package_versions v ON v.id = b.version_row
       JOIN packages p ON p.id = ABS(v.package_row) WHERE b.digest = ? LIMIT ?`,
      [digest, limit],
    );
    return rows.map(({ id, version }) => `package ${id} ${version}`);
  },
};

/**
 * The bytes of packages' rows. A package's words are in its row, in a table of their own and in an index of that: about
 * five times their length.
 */
export function packageRowBytes(database: Database, step: number): AsyncGenerator<RowBytes[]> {
  return sumByPage(database, step, {
    last: `SELECT COUNT(*) AS count, MAX(id) AS last
           FROM (SELECT id FROM packages WHERE id > ? ORDER BY id LIMIT ?) AS page`,
    sum: `SELECT account_id, SUM(metadata_bytes + 5 * COALESCE(OCTET_LENGTH(terms), 0)) AS bytes FROM packages
          WHERE id > ? AND id <= ? GROUP BY account_id`,
  });
}
