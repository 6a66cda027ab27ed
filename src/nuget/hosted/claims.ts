import { placeholders, type Database } from '../../database/database.ts';
import type { ClaimObstacle, EmptyClaim } from '../../mirror/claims.ts';
import { packageKey } from './packages.ts';

/** Ids in one statement. */
const batch = 1000;

/** The keys of those `ids` that the account claims, because it hosts or once hosted a version. */
export async function claimedAmong(
  database: Database,
  accountId: number,
  ids: readonly string[],
): Promise<Set<string>> {
  const claimed = new Set<string>();
  for (let start = 0; start < ids.length; start += batch) {
    const some = ids.slice(start, start + batch);
    const rows = await database.select<{ package_key: string }>(
      `SELECT package_key FROM packages WHERE account_id = ? AND package_key IN (${placeholders(some)})`,
      [accountId, ...some.map(packageKey)],
    );
    for (const { package_key: key } of rows) claimed.add(key);
  }
  return claimed;
}

/** Up to `limit` claimed ids without a version, after the position `after`. */
export function emptyPackageClaims(
  database: Database,
  accountId: number,
  after: string,
  limit: number,
): Promise<EmptyClaim[]> {
  return database.select<EmptyClaim>(
    `SELECT package_id AS name, package_key AS position, created_at AS since FROM packages
     WHERE account_id = ? AND package_key > ? AND version_count = 0 ORDER BY package_key LIMIT ?`,
    [accountId, after, limit],
  );
}

/** Releases the claim on an id without versions. Resolves to the obstacle, or to undefined on success. */
export function releasePackageClaim(
  database: Database,
  accountId: number,
  id: string,
): Promise<ClaimObstacle | undefined> {
  const values = [accountId, packageKey(id)];
  return database.transaction(async (tx) => {
    const gone = 'DELETE FROM packages WHERE account_id = ? AND package_key = ? AND version_count = 0';
    if ((await tx.run(gone, values)) > 0) return undefined;
    const found = await tx.get('SELECT id FROM packages WHERE account_id = ? AND package_key = ?', values);
    return found ? 'in use' : 'unclaimed';
  });
}
