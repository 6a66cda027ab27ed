import type { Database } from '../database/database.ts';

const page = 500;

/** The ids, in lower case, of all packages of which a version is mirrored, in pages. */
export async function* mirroredPackages(database: Database): AsyncGenerator<string> {
  for (let last = ''; ;) {
    const rows = await database.select<{ name: string }>(
      "SELECT DISTINCT name FROM mirror_entries WHERE kind = 'nupkg' AND name > ? ORDER BY name LIMIT ?",
      [last, page],
    );
    for (const { name } of rows) yield name;
    if (rows.length < page) return;
    last = rows.at(-1)!.name;
  }
}

/** The tags that clients have pulled through the mirror since `since` (milliseconds), in pages. */
export async function* pulledTags(
  database: Database,
  since: number,
): AsyncGenerator<{ upstream: string; name: string; tag: string }> {
  let [id, usedAt] = ['', since];
  for (;;) {
    const rows = await database.select<{
      id: string;
      upstream: string;
      name: string;
      reference: string;
      used_at: number;
    }>(
      `SELECT id, upstream, name, reference, used_at FROM mirror_entries
       WHERE (used_at > ? OR (used_at = ? AND id > ?)) AND kind = 'manifest' ORDER BY used_at, id LIMIT ?`,
      [usedAt, usedAt, id, page],
    );
    for (const { upstream, name, reference } of rows) {
      if (!reference.includes(':')) yield { upstream, name, tag: reference };
    }
    const last = rows.at(-1);
    if (!last || rows.length < page) return;
    [id, usedAt] = [last.id, last.used_at];
  }
}
