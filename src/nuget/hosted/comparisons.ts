import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';

/** A comparison counts for this many milliseconds. */
const kept = 90 * 86_400_000;
/** Old ones that are deleted at a time. */
const batch = 1000;

/** The file of a source whose content an upstream has, apart from its signature. */
export interface Comparison {
  /** The id of the upstream. */
  upstream: string;
  /** Of the file of the source, in Base64. */
  sha512: string;
  digest: Digest;
  size: number;
}

/** The versions of a package whose content at a source was that of an upstream, by their keys. */
export async function comparisonsOf(
  database: Database,
  accountId: number,
  id: string,
  now: number,
): Promise<Map<string, Comparison>> {
  const rows = await database.select<Comparison & { [column: string]: never; version: never }>(
    `SELECT version_key AS version, upstream, sha512, digest, size_bytes AS size FROM package_comparisons
     WHERE account_id = ? AND package_key = ? AND compared_at > ?`,
    [accountId, id, now - kept],
  );
  return new Map(rows.map(({ version, ...rest }) => [version, rest]));
}

/** Notes that an upstream has the same content as a source, and forgets some old comparisons. */
export async function noteComparison(
  database: Database,
  { accountId, id, version }: { accountId: number; id: string; version: string },
  { upstream, sha512, digest, size }: Comparison,
  now: number,
): Promise<void> {
  const key = { account_id: accountId, package_key: id, version_key: version };
  const row = { ...key, upstream, sha512, digest, size_bytes: size, compared_at: now };
  const columns = ['upstream', 'sha512', 'digest', 'size_bytes', 'compared_at'];
  const update = columns.map((each) => `${each} = new.${each}`).join(', ');
  await database.transaction(
    async (tx) => {
      await tx.upsert('package_comparisons', Object.keys(key), [row], update);
      const [last] = await tx.select<{ time: number }>(
        `SELECT compared_at AS time FROM package_comparisons WHERE compared_at <= ? ORDER BY compared_at LIMIT 1 OFFSET ${batch}`,
        [now - kept],
      );
      if (last) await tx.run('DELETE FROM package_comparisons WHERE compared_at <= ?', [last.time]);
    },
    { uncached: true },
  );
}
