import { Readable } from 'node:stream';
import { piecesOf, type Content } from '../storage/files/content.ts';
import type { StagedFile } from '../storage/files/staged-file.ts';

/** Writes all of `content` to a staged file, and closes it. Throws `TooLarge` above `limit` bytes. */
export async function fillFrom(staged: StagedFile, content: Content, limit: number): Promise<void> {
  await staged.append(Readable.from(piecesOf(content), { objectMode: false }), { limit });
}
