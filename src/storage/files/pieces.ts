/**
 * Copies bytes of `pieces`, which begin at position `start` of a body and have no gaps, into `target` from `position` on.
 * Returns the number of bytes copied.
 */
export function copyPieces(pieces: readonly Buffer[], start: number, target: Buffer, position: number): number {
  let from = start;
  let copied = 0;
  for (const piece of pieces) {
    const skip = position + copied - from;
    if (skip < piece.length) copied += piece.copy(target, copied, skip);
    if (copied === target.length) break;
    from += piece.length;
  }
  return copied;
}
