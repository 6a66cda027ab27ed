import { placeholders, type Database, type Transaction } from '../database/database.ts';
import type { NameKind } from '../accounts/names.ts';
import type { Downloads } from './record.ts';

/** The downloads of a mirrored package or image by one account, by version; of an image by the digest of its manifest. Older pulls of images have no digest. */
export interface MirroredDownloads {
  total: number;
  versions: ReadonlyMap<string, number>;
}

const none: MirroredDownloads = { total: 0, versions: new Map() };

/** Adds downloads of mirrored content. */
export async function addMirrored(
  tx: Transaction,
  kind: NameKind,
  { accountId, name, versions }: Pick<Downloads, 'accountId' | 'name' | 'versions'>,
): Promise<void> {
  const rows = [...versions].map(([version, downloads]) => ({ account_id: accountId, kind, name, version, downloads }));
  const update = 'downloads = mirrored_downloads.downloads + new.downloads';
  await tx.upsert('mirrored_downloads', ['account_id', 'kind', 'name', 'version'], rows, update);
}

/** The account's downloads of each of `names`, without those that are not written to the database yet. */
export async function mirroredDownloads(
  database: Database,
  accountId: number,
  kind: NameKind,
  names: readonly string[],
): Promise<(name: string) => MirroredDownloads> {
  if (names.length === 0) return () => none;
  const rows = await database.select<{ name: string; version: string; downloads: number }>(
    `SELECT name, version, downloads FROM mirrored_downloads
     WHERE account_id = ? AND kind = ? AND name IN (${placeholders(names)})`,
    [accountId, kind, ...names],
  );
  const byName = Map.groupBy(rows, ({ name }) => name);
  return (name) => {
    const found = byName.get(name);
    if (!found) return none;
    const versions = new Map(found.map(({ version, downloads }) => [version, downloads]));
    return { total: found.reduce((sum, { downloads }) => sum + downloads, 0), versions };
  };
}
