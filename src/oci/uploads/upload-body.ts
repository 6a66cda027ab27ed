import type { Readable } from 'node:stream';
import type { AppendOptions } from '../../storage/files/append.ts';
import { algorithmOf, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { Allowance } from '../../usage/quota.ts';
import type { UploadLease } from './upload-lease.ts';

/** A body to append. */
export interface Chunk {
  source: Readable;
  /** The start and the length that the client states; undefined if it does not. */
  start?: number | undefined;
  length?: number | undefined;
  /** Its Content-Length; 0 if the client states none. */
  size: number;
  /** Milliseconds without data after which the source is destroyed; by default the setting. */
  idle?: number | undefined;
  /** Measures how many bytes the unfinished uploads of the account may have together; undefined without a limit. */
  allowance: (() => Promise<Allowance>) | undefined;
  /** Called with the size of each piece that arrives. */
  onData: (bytes: number) => void;
  /** Called after each write of pieces that arrived. */
  onWritten?: () => void;
}

/** The fewest and the most bytes that are reserved at once for a body without a length. */
const smallestStep = 2 ** 20;
const maxStep = 64 * 2 ** 20;

/**
 * Appends the body to the session's file; resolves to the number of bytes appended. With a limit of storage, each part of
 * the file is reserved before it is written; throws `QuotaExceeded` if there is no room for the next one.
 */
export async function appendBody(
  staged: StagedFile,
  { source, size, allowance, onData, onWritten }: Chunk,
  options: AppendOptions,
  lease: UploadLease | undefined,
): Promise<number> {
  const start = staged.size;
  let arrived = start;
  let reserved = lease && allowance ? start : Number.POSITIVE_INFINITY;
  let hold = new AbortController();
  let appending = staged.append(source, { ...options, progress: onWritten, until: hold.signal });
  source.on('data', (piece: Buffer) => {
    arrived += piece.length;
    onData(piece.length);
    // The append keeps this piece, pauses the body and ends.
    if (arrived > reserved) hold.abort();
  });
  for (;;) {
    await appending;
    if (!hold.signal.aborted) return staged.size - start;
    const step = Math.min(maxStep, Math.max(smallestStep, arrived - start));
    const most = Math.max(start + size, arrived + step);
    try {
      reserved = await lease!.reserve(arrived, most, await allowance!());
    } finally {
      // After an error, the rest of the body is read and dropped, so that the client gets the answer.
      source.resume();
    }
    hold = new AbortController();
    appending = staged.append(source, { ...options, progress: onWritten, until: hold.signal });
  }
}

/** Throws `DigestMismatch`. `known` is the recorded digest of the file, if any, so that the file is not read again. */
export async function verify(staged: StagedFile, digest: Digest, known: Digest | null): Promise<void> {
  const algorithm = algorithmOf(digest);
  const found = known && algorithmOf(known) === algorithm ? known : await staged.digest(algorithm);
  if (found === digest) return;
  throw new DomainError(
    'DigestMismatch',
    'The uploaded bytes do not have this digest, and were removed. Start a new upload.',
    { detail: { expected: digest, found } },
  );
}
