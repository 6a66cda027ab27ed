import { placeholders, type Database } from '../database/database.ts';
import { packageKey } from './packages.ts';

/** Ids that are looked up at once. */
const batch = 1000;

/** Which of `ids` the account claims: it hosts, or once hosted, a version. Keys, in lower case. */
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
