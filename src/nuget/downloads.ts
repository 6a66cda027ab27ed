import type { Transaction } from '../database/database.ts';
import type { Downloads } from '../usage/record.ts';
import { movePackage, type IndexedPackage } from './term-index.ts';
import { standingOf } from './terms.ts';

/** Adds downloads to a package of the account and to its versions, as far as they are hosted. */
export async function addDownloads(tx: Transaction, { accountId, name, versions, last }: Downloads): Promise<void> {
  const total = [...versions.values()].reduce((sum, number) => sum + number, 0);
  const counted = await tx.run(
    `UPDATE packages SET download_count = download_count + ?, last_downloaded_at = ?
     WHERE account_id = ? AND package_key = ?`,
    [total, last, accountId, name],
  );
  if (counted === 0) return;
  const row = (await tx.get<IndexedPackage & { download_count: number }>(
    `SELECT id, account_id, standing, flags, terms, download_count FROM packages
     WHERE account_id = ? AND package_key = ?`,
    [accountId, name],
  ))!;
  for (const [version, number] of versions) {
    await tx.run(
      'UPDATE package_versions SET download_count = download_count + ? WHERE package_row = ? AND version_key = ?',
      [number, row.id, version],
    );
  }
  await movePackage(tx, row, standingOf(row.download_count));
}
