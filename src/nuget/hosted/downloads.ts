import type { Transaction } from '../../database/database.ts';
import { addMirrored } from '../../usage/mirrored.ts';
import type { Downloads } from '../../usage/record.ts';
import { movePackage, type IndexedPackage } from './term-index.ts';
import { standingOf } from '../format/terms.ts';

/** Adds downloads to a package of the account and to its versions. Versions that are not hosted count as mirrored. */
export async function addDownloads(tx: Transaction, { accountId, name, versions, last }: Downloads): Promise<void> {
  const total = [...versions.values()].reduce((sum, number) => sum + number, 0);
  const counted = await tx.run(
    `UPDATE packages SET download_count = download_count + ?, last_downloaded_at = ?
     WHERE account_id = ? AND package_key = ?`,
    [total, last, accountId, name],
  );
  if (counted === 0) {
    await addMirrored(tx, 'package', { accountId, name, versions });
    return;
  }
  const row = (await tx.get<IndexedPackage & { download_count: number }>(
    `SELECT id, account_id, standing, flags, terms, index_version, download_count FROM packages
     WHERE account_id = ? AND package_key = ?`,
    [accountId, name],
  ))!;
  const others = new Map<string, number>();
  for (const [version, number] of versions) {
    const hosted = await tx.run(
      'UPDATE package_versions SET download_count = download_count + ? WHERE package_row = ? AND version_key = ?',
      [number, row.id, version],
    );
    if (hosted === 0) others.set(version, number);
  }
  await addMirrored(tx, 'package', { accountId, name, versions: others });
  await movePackage(tx, row, standingOf(row.download_count));
}
