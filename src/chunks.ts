/**
 * Frees a chunk's memory at once, for whoever is the last to hold it. Left to the garbage collector, a fast body makes it
 * mark the whole heap every few mebibytes, which costs more than the hashing.
 */
export function release(chunk: Buffer): void {
  if (chunk.buffer instanceof ArrayBuffer && chunk.length === chunk.buffer.byteLength) chunk.buffer.transfer(0);
}
