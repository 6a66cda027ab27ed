import type { Database } from '../../database/database.ts';
import { recordEvent } from '../../events/record.ts';
import type { ClaimObstacle, EmptyClaim, EmptyClaims } from '../../mirror/policy/claims.ts';

/** The claims of repositories without manifests. */
export function imageClaims(database: Database, now: () => number): EmptyClaims {
  return {
    contents: 'manifests',
    list: (accountId, after, limit) =>
      database.select<EmptyClaim>(
        `SELECT name, name AS position, claimed_at AS since FROM repositories
         WHERE account_id = ? AND manifest_count = 0 AND name > ? AND claimed_at IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM manifests WHERE manifests.repository_id = repositories.id)
         ORDER BY name LIMIT ?`,
        [accountId, after, limit],
      ),
    release: (accountId, name) => release(database, accountId, name, now()),
  };
}

/** The repository's row stays, with blobs that may be left in it. */
function release(database: Database, accountId: number, name: string, now: number): Promise<ClaimObstacle | undefined> {
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
    if (await tx.get('SELECT id FROM manifests WHERE repository_id = ? LIMIT 1', [-found.id])) return 'deleted';
    await tx.run('UPDATE repositories SET claimed_at = NULL WHERE id = ?', [found.id]);
    await recordEvent(tx, { type: 'claim.released', accountId, subject: { kind: 'container', name } }, now);
    return undefined;
  });
}
