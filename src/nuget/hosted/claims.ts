import { forUpdate, placeholders, type Database } from '../../database/database.ts';
import { recordEvent } from '../../events/record.ts';
import type { ClaimObstacle, EmptyClaim, EmptyClaims } from '../../mirror/policy/claims.ts';
import { removeAdvisories } from './advisories.ts';
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

/** The claims of ids without versions. */
export function packageClaims(database: Database, now: () => number): EmptyClaims {
  return {
    contents: 'versions',
    list: (accountId, after, limit) =>
      database.select<EmptyClaim>(
        `SELECT package_id AS name, package_key AS position, created_at AS since FROM packages
         WHERE account_id = ? AND package_key > ? AND version_count = 0 ORDER BY package_key LIMIT ?`,
        [accountId, after, limit],
      ),
    release: (accountId, id) => release(database, accountId, id, now()),
  };
}

function release(database: Database, accountId: number, id: string, now: number): Promise<ClaimObstacle | undefined> {
  const values = [accountId, packageKey(id)];
  return database.transaction(async (tx) => {
    const found = await tx.get<{ id: number; package_id: string }>(
      `SELECT id, package_id FROM packages WHERE account_id = ? AND package_key = ?${forUpdate(tx)}`,
      values,
    );
    if (!found) return 'unclaimed';
    if (await tx.get('SELECT id FROM package_versions WHERE package_row = ? LIMIT 1', [-found.id])) return 'deleted';
    const gone = 'DELETE FROM packages WHERE account_id = ? AND package_key = ? AND version_count = 0';
    if ((await tx.run(gone, values)) === 0) return 'in use';
    await removeAdvisories(tx, accountId, found.id, now);
    const subject = { kind: 'package', name: found.package_id } as const;
    await recordEvent(tx, { type: 'claim.released', accountId, subject }, now);
    return undefined;
  });
}
