import type { Database } from '../../src/database/database.ts';
import { parseVersion, sortKey } from '../../src/nuget/format/version.ts';

const rowsPerStatement = 400;
const names = new Set(['version_key', 'version', 'full_version']);

/** Adds versions to a package by copying its one version with other numbers, because pushing many versions is slow. */
export async function addVersions(database: Database, id: string, versions: readonly string[]): Promise<void> {
  await database.transaction(async (tx) => {
    const { id: row, ...first } = (await tx.get(
      'SELECT v.* FROM packages p JOIN package_versions v ON v.package_row = p.id WHERE p.package_key = ?',
      [id.toLowerCase()],
    ))!;
    const columns = Object.keys(first);
    const copied = columns.map((each) =>
      names.has(each) ? 'n.version' : each === 'sort_key' ? 'n.sort_key' : `v.${each}`,
    );
    for (let start = 0; start < versions.length; start += rowsPerStatement) {
      const some = versions.slice(start, start + rowsPerStatement);
      const numbers = some.map((_, index) => (index === 0 ? 'SELECT ? AS version, ? AS sort_key' : 'SELECT ?, ?'));
      await tx.run(
        `INSERT INTO package_versions (${columns.join(', ')}) SELECT ${copied.join(', ')}
         FROM package_versions v JOIN (${numbers.join(' UNION ALL ')}) AS n WHERE v.id = ?`,
        [...some.flatMap((version) => [version, sortKey(parseVersion(version)!)]), row!],
      );
    }
    await tx.run(
      `UPDATE packages SET version_count = version_count + ?, metadata_bytes = metadata_bytes * ?,
         revision = revision + 1 WHERE id = ?`,
      [versions.length, versions.length + 1, first['package_row']!],
    );
  });
}
