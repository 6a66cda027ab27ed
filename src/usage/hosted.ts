import type { Database } from '../database/database.ts';

/**
 * Bytes that an account's packages and images take up, each blob counted once however many of them share it. Walks the
 * blobs in reads of `step`, short enough for nothing else to wait.
 */
export async function hostedBytes(database: Database, accountId: number, step = 2000): Promise<number> {
  let total = 0;
  let after = '';
  for (;;) {
    const found = await database.get<{ blobs: number; last: string | null; bytes: number | null }>(
      `SELECT COUNT(*) AS blobs, MAX(digest) AS last, SUM(CASE WHEN
         EXISTS (SELECT 1 FROM package_blobs JOIN package_versions ON package_versions.id = package_blobs.version_row
                 JOIN packages ON packages.id = package_versions.package_row
                 WHERE package_blobs.digest = page.digest AND packages.account_id = ?)
         OR EXISTS (SELECT 1 FROM repository_blobs JOIN repositories ON repositories.id = repository_blobs.repository_id
                    WHERE repository_blobs.digest = page.digest AND repositories.account_id = ?)
         OR EXISTS (SELECT 1 FROM manifests JOIN repositories ON repositories.id = manifests.repository_id
                    WHERE manifests.digest = page.digest AND repositories.account_id = ?)
         THEN size ELSE 0 END) AS bytes
       FROM (SELECT digest, size FROM blobs WHERE digest > ? ORDER BY digest LIMIT ?) AS page`,
      [accountId, accountId, accountId, after, step],
    );
    total += found?.bytes ?? 0;
    if (!found?.last || found.blobs < step) return total;
    after = found.last;
  }
}
