import type { Database } from '../database/database.ts';
import type { ClaimObstacle, EmptyClaim } from '../mirror/claims.ts';

/** Up to `limit` repositories that the account has claimed and that have no manifest, after the position `after`. */
export function emptyContainerClaims(
  database: Database,
  accountId: number,
  after: string,
  limit: number,
): Promise<EmptyClaim[]> {
  return database.select<EmptyClaim>(
    `SELECT name, name AS position, claimed_at AS since FROM repositories
     WHERE account_id = ? AND name > ? AND claimed_at IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM manifests WHERE manifests.repository_id = repositories.id)
     ORDER BY name LIMIT ?`,
    [accountId, after, limit],
  );
}

/**
 * Releases the claim on a repository without manifests. Its row and its remaining blobs stay. Resolves to the reason if
 * that is not possible, else to undefined.
 */
export function releaseContainerClaim(
  database: Database,
  accountId: number,
  name: string,
): Promise<ClaimObstacle | undefined> {
  const values = [accountId, name];
  return database.transaction(async (tx) => {
    // Locks the row: a push locks it too before it writes its manifest.
    await tx.run('UPDATE repositories SET updated_at = updated_at WHERE account_id = ? AND name = ?', values);
    const found = await tx.get<{ id: number; manifests: number }>(
      `SELECT r.id, (SELECT COUNT(*) FROM manifests m WHERE m.repository_id = r.id) AS manifests
       FROM repositories r WHERE r.account_id = ? AND r.name = ? AND r.claimed_at IS NOT NULL`,
      values,
    );
    if (!found) return 'unclaimed';
    if (found.manifests > 0) return 'in use';
    await tx.run('UPDATE repositories SET claimed_at = NULL WHERE id = ?', [found.id]);
    return undefined;
  });
}
