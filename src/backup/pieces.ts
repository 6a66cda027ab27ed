import type { Content } from '../storage/files/content.ts';
import type { StagedFile } from '../storage/files/staged-file.ts';

const piece = 256 * 1024;

/** The bytes of `content` in pieces; closes it at the end. */
export async function* piecesOf(content: Content): AsyncGenerator<Buffer> {
  try {
    for (let position = 0; ;) {
      const bytes = Buffer.allocUnsafe(piece);
      const read = await content.read(bytes, position);
      if (read === 0) return;
      position += read;
      yield bytes.subarray(0, read);
    }
  } finally {
    content.close();
  }
}

/** Appends all pieces to `file`. */
export async function writePieces(file: StagedFile, pieces: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const each of pieces) await file.write(each);
}
