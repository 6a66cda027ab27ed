import { placeholders, type Transaction } from '../../database/database.ts';
import { lockBlobs } from '../../storage/blobs/states.ts';
import type { Digest } from '../../runtime/digest.ts';

/** Content that an import has stored, and that is not shown yet. `mirror_staged` holds its bytes. */
export interface StagedContent {
  digest: Digest;
  size: number;
}

/** Holds content whose bytes are stored in the same transaction. */
export async function stageContent(
  tx: Transaction,
  importId: string,
  contents: readonly StagedContent[],
): Promise<void> {
  const rows = contents.map(({ digest, size }) => ({ import_id: importId, digest, size_bytes: size }));
  await tx.insertNew('mirror_staged', rows);
}

/**
 * Those of `contents` that the mirror has already, or that an import has stored, locked until the transaction ends. Other stored content, such
 * as what an account has pushed, does not count: its digest alone must not make it mirrored content. The digests `own` count, too.
 */
export async function mirroredAmong(
  tx: Transaction,
  contents: readonly StagedContent[],
  own: ReadonlySet<string>,
): Promise<StagedContent[]> {
  const digests = contents.map(({ digest }) => digest);
  const rows = await lockBlobs(tx, digests);
  const live = new Map(rows.filter(({ state }) => state === 'live').map(({ digest, size }) => [digest, size]));
  const places = placeholders(digests);
  const mirrored = await tx.select<{ digest: string }>(
    `SELECT digest FROM mirror_entries WHERE digest IN (${places})
     UNION SELECT digest FROM mirror_staged WHERE digest IN (${places})`,
    [...digests, ...digests],
  );
  const known = new Set(mirrored.map(({ digest }) => digest));
  return contents.filter(({ digest, size }) => live.get(digest) === size && (known.has(digest) || own.has(digest)));
}

/** Holds those of `contents` that `mirroredAmong` finds; resolves to them. */
export async function holdMirrored(
  tx: Transaction,
  importId: string,
  contents: readonly StagedContent[],
  own: ReadonlySet<string> = new Set(),
): Promise<StagedContent[]> {
  const found = await mirroredAmong(tx, contents, own);
  await stageContent(tx, importId, found);
  return found;
}

/** Holds the content of an import no more: it was shown, or the import was given up. */
export async function releaseStaged(tx: Transaction, importId: string): Promise<void> {
  await tx.run('DELETE FROM mirror_staged WHERE import_id = ?', [importId]);
}
