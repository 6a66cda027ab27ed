import { digestSoFar, startHash, type Digest, type DigestAlgorithm } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { concatInTurns } from '../../runtime/long-texts.ts';

/**
 * Bytes that can be read at any position: a stored blob, bytes in memory, or a file that is still being filled. Its
 * owner must close it.
 */
export interface Content {
  /** Total bytes; undefined while the length is unknown. */
  readonly size: number | undefined;
  /** Content with the same source has the same bytes. Undefined: the reads of this content cannot be shared. */
  readonly source?: string | undefined;
  /** All bytes, if they are in memory. Must not be changed. */
  readonly bytes?: Buffer;
  /** The same in pieces. */
  readonly pieces?: readonly Buffer[];
  /** Makes a URL at which a client gets these bytes from the storage itself, without credentials, for some minutes. */
  location?: (() => Promise<string>) | undefined;
  /** Reads into `target` from `position` on; resolves to the number of bytes read, 0 at the end. */
  read(target: Buffer, position: number): Promise<number>;
  close(): void;
}

/** A file of at most so many bytes is read as a whole where parts of it are needed: they would be several reads of the disk. */
export const wholeBytes = 128 * 1024;

/** Bytes in memory as content. */
export function contentOf(bytes: Buffer): Content {
  return {
    size: bytes.length,
    bytes,
    read: (target, position) => Promise.resolve(bytes.copy(target, 0, position)),
    close: () => undefined,
  };
}

/** Bytes in memory as content, for so many that one Buffer of them would hold other requests. */
export function contentOfPieces(pieces: readonly Buffer[]): Content {
  return {
    size: pieces.reduce((sum, { length }) => sum + length, 0),
    pieces,
    read: (target, position) => {
      let start = 0;
      for (const piece of pieces) {
        if (position < start + piece.length) return Promise.resolve(piece.copy(target, 0, position - start));
        start += piece.length;
      }
      return Promise.resolve(0);
    },
    close: () => undefined,
  };
}

/** Reads all of small content and closes it; rejects when it is larger than `limit` bytes. */
export async function readAll(content: Content, limit: number): Promise<Buffer> {
  const end = content.size ?? Number.POSITIVE_INFINITY;
  const pieces: Buffer[] = [];
  let length = 0;
  try {
    while (length <= limit && length < end) {
      const piece = Buffer.allocUnsafe(content.size === undefined ? 65_536 : Math.min(end, limit + 1) - length);
      const read = await content.read(piece, length);
      if (read === 0) break;
      pieces.push(piece.subarray(0, read));
      length += read;
    }
  } finally {
    content.close();
  }
  if (length > limit) throw new RangeError(`content is larger than ${limit} bytes`);
  return pieces.length === 1 ? pieces[0]! : concatInTurns(pieces);
}

/** Bytes of a piece of `piecesOf`. */
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

/**
 * Reads content to its end and closes it; resolves to the number of bytes. The mirror sends the end only after it has
 * verified and stored everything.
 */
export async function readThrough(content: Content): Promise<number> {
  let bytes = 0;
  for await (const some of piecesOf(content)) bytes += some.length;
  return bytes;
}

/** The digest of all bytes of `content`; closes it. */
export async function digestOfContent(content: Content, algorithm: DigestAlgorithm = 'sha256'): Promise<Digest> {
  const hash = startHash(algorithm);
  for await (const piece of piecesOf(content)) {
    hash.update(piece);
    await pause();
  }
  return digestSoFar(hash, algorithm);
}

/** Memory of one kept Buffer beside its bytes: its objects and its place in a map, as measured. */
export const keptOverhead = 600;

/**
 * The same bytes in memory of their own, for bytes that are kept. A small Buffer is a part of a piece of 8 KiB, which would be kept
 * as a whole.
 */
export function ownBytes(bytes: Buffer): Buffer {
  if (bytes.buffer.byteLength === bytes.length) return bytes;
  const own = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(own);
  return own;
}

/** `ContentDamaged`, for a live blob whose bytes are missing or wrong. */
export function contentDamaged(digest: Digest, cause?: unknown): DomainError {
  return new DomainError(
    'ContentDamaged',
    `The stored bytes of ${digest} are missing or damaged. Push this content again to repair it.`,
    { detail: { digest }, cause },
  );
}
