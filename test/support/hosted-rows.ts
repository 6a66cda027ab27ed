import type { Database, Row } from '../../src/database/database.ts';
import {
  isPrerelease,
  isSemVer2,
  normalize,
  parseVersion,
  sortKey,
  versionKey,
} from '../../src/nuget/format/version.ts';

interface HostedVersion {
  version: string;
  publishedAt?: number;
  listed?: boolean;
  /** The digest of its readme. */
  readme?: string;
  /** Bytes of its metadata, as they are counted. */
  bytes?: number;
}

/** Writes the rows of a hosted package that lists and documents read, without content: the last version is the newest one. */
export function hostRows(
  database: Database,
  accountId: number,
  id: string,
  versions: readonly (string | HostedVersion)[],
  more: Row = {},
): Promise<void> {
  return database.transaction(async (tx) => {
    const key = id.toLowerCase();
    const given = versions.map((each) => (typeof each === 'string' ? { version: each } : each));
    const bytes = given.map((each) => each.bytes ?? 10);
    const row = { account_id: accountId, package_key: key, package_id: id, version_count: given.length };
    await tx.insertNew('packages', [
      {
        ...row,
        download_count: 0,
        standing: 63,
        flags: 15,
        created_at: 1,
        updated_at: 1,
        metadata_bytes: bytes.reduce((sum, each) => sum + each, 0),
        largest_metadata: Math.max(0, ...bytes),
        ...more,
      },
    ]);
    const found = await tx.get<{ id: number }>('SELECT id FROM packages WHERE account_id = ? AND package_key = ?', [
      accountId,
      key,
    ]);
    for (const [at, { version: text, publishedAt = 1, listed = true, readme }] of given.entries()) {
      const version = parseVersion(text)!;
      await tx.insertNew('package_versions', [
        {
          package_row: found!.id,
          version_key: versionKey(version),
          version: normalize(version),
          full_version: text,
          sort_key: sortKey(version),
          listed: listed ? 1 : 0,
          prerelease: isPrerelease(version) ? 1 : 0,
          semver2: isSemVer2(version) ? 1 : 0,
          published_at: publishedAt,
          size_bytes: 1,
          sha512: '',
          nupkg_digest: '',
          nuspec_digest: '',
          readme_digest: readme ?? null,
          metadata: JSON.stringify({ id, tags: [], packageTypes: [] }),
          metadata_bytes: bytes[at]!,
        },
      ]);
    }
    const newest = 'SELECT MAX(id) FROM package_versions WHERE package_row = ?';
    for (const column of ['latest_stable', 'latest_pre', 'latest_stable2', 'latest_pre2'])
      await tx.run(`UPDATE packages SET ${column} = (${newest}) WHERE id = ?`, [found!.id, found!.id]);
  });
}
