import type { Queryable } from '../database/database.ts';

/** Where rows refer to blobs: what is hosted, and what was fetched from upstreams. */
const hosted = ['repository_blobs', 'manifests', 'manifest_references', 'package_blobs'] as const;
const mirrored = ['mirror_entries'] as const;

function exists(tables: readonly string[]): string {
  const looks = tables.map((table) => `EXISTS (SELECT 1 FROM ${table} WHERE ${table}.digest = blobs.digest)`);
  return `(${looks.join(' OR ')})`;
}

/** Conditions on a row of `blobs`. */
export const isHosted = exists(hosted);
export const isMirrored = exists(mirrored);
export const isReferenced = exists([...hosted, ...mirrored]);

/** The last digest of the next `limit` blobs after `after`; undefined when there are fewer. By key alone, so that it is quick. */
export async function pageEnd(from: Queryable, after: string, limit: number): Promise<string | undefined> {
  const last = await from.get<{ digest: string }>(
    'SELECT digest FROM blobs WHERE digest > ? ORDER BY digest LIMIT 1 OFFSET ?',
    [after, limit - 1],
  );
  return last?.digest;
}
