import { placeholders, type Database } from '../database/database.ts';
import { packageKey } from './packages.ts';

/** Which of `ids` the account claims: it hosts, or once hosted, a version. Keys, in lower case. */
export async function claimedAmong(
  database: Database,
  accountId: number,
  ids: readonly string[],
): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const rows = await database.select<{ package_key: string }>(
    `SELECT package_key FROM packages WHERE account_id = ? AND package_key IN (${placeholders(ids)})`,
    [accountId, ...ids.map(packageKey)],
  );
  return new Set(rows.map((row) => row.package_key));
}
