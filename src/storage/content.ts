/**
 * Bytes that can be read at any position: a stored blob, bytes in memory, or a file that is still being filled.
 * Whoever holds one closes it, once.
 */
export interface Content {
  /** Total bytes; undefined while an upstream has not said. */
  readonly size: number | undefined;
  /** Reads into `target` from `position` on; resolves to the bytes read, 0 at the end. */
  read(target: Buffer, position: number): Promise<number>;
  close(): void;
}

/** Content that is in memory already. */
export function contentOf(bytes: Buffer): Content {
  return {
    size: bytes.length,
    read: (target, position) => Promise.resolve(bytes.copy(target, 0, position)),
    close: () => undefined,
  };
}

/** The whole of small content; rejects when it is larger than `limit`. Closes it. */
export async function readAll(content: Content, limit: number): Promise<Buffer> {
  try {
    const size = content.size ?? limit;
    if (size > limit) throw new RangeError(`content of ${size} bytes is over ${limit}`);
    const bytes = Buffer.allocUnsafe(size);
    let length = 0;
    while (length < size) {
      const read = await content.read(bytes.subarray(length), length);
      if (read === 0) break;
      length += read;
    }
    return bytes.subarray(0, length);
  } finally {
    content.close();
  }
}
