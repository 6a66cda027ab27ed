import type { StagedFile } from '../storage/files/staged-file.ts';

/** Appends all pieces to `file`. */
export async function writePieces(file: StagedFile, pieces: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const each of pieces) await file.write(each);
}
