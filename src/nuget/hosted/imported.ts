import type { Transaction } from '../../database/database.ts';
import { storedDeprecation, type HostedDeprecation } from '../format/deprecation.ts';
import { changeNotices } from './deprecations.ts';
import type { FeedContext } from './feed-context.ts';
import { lockPackage } from './packages.ts';
import type { EarlierVersion } from './publish.ts';

/** What a source told of a version when it was read last. */
interface SourceState {
  from: string;
  listed: boolean;
  deprecation: HostedDeprecation | null;
}

/** The value of the column `imported` of a version that comes from a source. */
export function importedText({ from, listed, deprecation }: EarlierVersion): string {
  return JSON.stringify({ from, listed, deprecation: deprecation ?? null } satisfies SourceState);
}

/** Whether the version came from this source, and the source tells something else of it than when it was read last. */
export function hasChangedAtSource(imported: string | null, offered: EarlierVersion): boolean {
  if (imported === null || imported === importedText(offered)) return false;
  return (JSON.parse(imported) as SourceState).from === offered.from;
}

/**
 * Changes of a hosted version what has changed at its source since that was read last: whether it is listed, and its deprecation. What was
 * changed here meanwhile, and not there, stays. Resolves to what changed here.
 */
export function followSource(
  { database, now }: FeedContext,
  accountId: number,
  offered: EarlierVersion,
): Promise<string[]> {
  return database.transaction(async (tx) => {
    const { id, version: key } = offered;
    const found = await versionOf(tx, accountId, id, key);
    if (!found || !hasChangedAtSource(found.imported, offered)) return [];
    const before = JSON.parse(found.imported!) as SourceState;
    const after = JSON.parse(importedText(offered)) as SourceState;
    const isListing = before.listed !== after.listed;
    const isDeprecating = JSON.stringify(before.deprecation) !== JSON.stringify(after.deprecation);
    const own = storedDeprecation(found.deprecation);
    const change = {
      deprecation: isDeprecating ? (after.deprecation ?? undefined) : own,
      listed: isListing ? after.listed : undefined,
    };
    const { changed } = await changeNotices(tx, { accountId, id, keys: [key], after: '', now: now() }, change);
    await tx.run('UPDATE package_versions SET imported = ? WHERE id = ?', [importedText(offered), found.id]);
    if (changed === 0) return [];
    return [
      ...(isListing && (found.listed === 1) !== after.listed ? [after.listed ? 'listed' : 'unlisted'] : []),
      ...(isDeprecating ? [after.deprecation ? 'deprecated' : 'not deprecated any more'] : []),
    ];
  });
}

async function versionOf(tx: Transaction, accountId: number, id: string, key: string) {
  const packageRow = await lockPackage(tx, accountId, id);
  if (packageRow === undefined) return undefined;
  return tx.get<{ id: number; listed: number; imported: string | null; deprecation: string | null }>(
    'SELECT id, listed, imported, deprecation FROM package_versions WHERE package_row = ? AND version_key = ?',
    [packageRow, key],
  );
}
