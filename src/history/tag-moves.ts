import type { Database } from '../database/database.ts';
import type { NameOwner } from './history.ts';

/** A line of a tag's history: it was pointed to a manifest, or deleted from it. */
export interface TagMove {
  id: number;
  isDeletion: boolean;
  /** Of a deletion the digest that the tag had before. */
  digest: string;
  /** Of the manifest; undefined if an older version of this server wrote the line. */
  content: { mediaType: string; size: number } | undefined;
  /** Milliseconds since 1970 UTC. */
  seenAt: number;
}

/** Bounds of a list; all are excluded. */
export interface TagMovesRange {
  /** The id of the last line of the page before. */
  after?: number | undefined;
  since?: number | undefined;
  before?: number | undefined;
  digest?: string | undefined;
}

interface MoveRow {
  id: number;
  digest: string;
  seen_at: number;
  media_type: string | null;
  size_bytes: number | null;
}

const rowsAtATime = 500;

/** The lines of a tag, the latest first. A deletion that follows no digest is left out. */
export async function* tagMoves(
  database: Database,
  { accountId, upstream, name }: NameOwner,
  tag: string,
  { after = Number.MAX_SAFE_INTEGER, since, before, digest }: TagMovesRange,
): AsyncGenerator<TagMove> {
  let deletion: MoveRow | undefined;
  for (let last = after; ;) {
    const rows = await database.select<MoveRow>(
      `SELECT id, digest, seen_at, media_type, size_bytes FROM history WHERE account_id = ? AND upstream = ? AND name = ?
       AND kind = 'tag' AND reference = ? AND id < ? ORDER BY id DESC LIMIT ${rowsAtATime}`,
      [accountId, upstream, name, tag, last],
    );
    for (const row of rows) {
      if (row.digest !== '') {
        if (deletion) {
          const { id, seen_at } = deletion;
          const gone = moveOf({ ...row, id, seen_at }, true);
          if (isWanted(gone, since, before, digest)) yield gone;
        }
        const move = moveOf(row, false);
        if (isWanted(move, since, before, digest)) yield move;
      }
      deletion = row.digest === '' ? row : undefined;
    }
    if (rows.length < rowsAtATime) return;
    last = rows.at(-1)!.id;
  }
}

function moveOf(
  { id, digest, seen_at: seenAt, media_type: mediaType, size_bytes: size }: MoveRow,
  isDeletion: boolean,
) {
  const content = mediaType === null || size === null ? undefined : { mediaType, size };
  return { id, isDeletion, digest, content, seenAt };
}

function isWanted({ seenAt, digest }: TagMove, since = -Infinity, before = Infinity, wanted = digest): boolean {
  return seenAt > since && seenAt < before && digest === wanted;
}
