import type { Database } from '../../database/database.ts';
import { pagesOf } from '../../runtime/pages.ts';

/** Digests in one statement. */
const page = 2000;

/** The digests of all stored content of these upstreams, in order. */
export async function* storedDigests(database: Database, upstreams: readonly string[]): AsyncGenerator<string> {
  if (upstreams.length === 0) return;
  const places = upstreams.map(() => '?').join(', ');
  const read = (after: string) =>
    database.select<{ digest: string }>(
      `SELECT DISTINCT digest FROM mirror_entries WHERE digest > ? AND upstream IN (${places}) ORDER BY digest LIMIT ?`,
      [after, ...upstreams, page],
    );
  for await (const rows of pagesOf('', page, read, ({ digest }) => digest)) for (const { digest } of rows) yield digest;
}

/** Keeps content from eviction that another installation counts on, until the next call. */
export async function countOn(database: Database, digests: readonly string[]): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.run('DELETE FROM mirror_counted_on');
    for (let start = 0; start < digests.length; start += page)
      await tx.insertNew(
        'mirror_counted_on',
        digests.slice(start, start + page).map((digest) => ({ digest })),
      );
  });
}
