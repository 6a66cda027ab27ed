import { algorithmOf, digestSoFar, startHash, type Digest } from '../runtime/digest.ts';
import { pause } from '../runtime/event-loop.ts';
import { piecesOf } from '../storage/files/content.ts';
import { unreadable, type OpenBundle } from './read.ts';

/** What a check of the bytes of a bundle found. */
interface CheckedBundle {
  /** Content whose bytes are right. */
  count: number;
  bytes: number;
  /** Content whose bytes are wrong, and the segment that has it. */
  damaged: { digest: Digest; place: string }[];
  /** Content that the receiver must have already. */
  base: number;
}

/** Compares all bytes in the segments with their digests. */
export async function checkBytes(
  bundle: OpenBundle,
  { watch, signal }: { watch: (bytes: number, of: number) => void; signal: AbortSignal },
): Promise<CheckedBundle> {
  const result: CheckedBundle = { count: 0, bytes: 0, damaged: [], base: 0 };
  const total = bundle.list.header.bytes;
  for (const blob of bundle.list.blobs) {
    if ('base' in blob) result.base += 1;
    const found = await bundle.open(blob);
    if (!found) continue;
    const algorithm = algorithmOf(blob.digest);
    const hash = startHash(algorithm);
    try {
      for await (const piece of piecesOf(found.content)) {
        signal.throwIfAborted();
        hash.update(piece);
        await pause();
      }
    } catch (error) {
      unreadable(found.place, error);
    }
    if (digestSoFar(hash, algorithm) === blob.digest) {
      result.count += 1;
      result.bytes += blob.size;
    } else {
      result.damaged.push({ digest: blob.digest, place: found.place });
    }
    watch(result.bytes, total);
  }
  return result;
}
