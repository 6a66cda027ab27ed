import { algorithmOf, digestSoFar, startHash, type Digest } from '../runtime/digest.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { sortedInTurns } from '../runtime/sorted.ts';
import { tarBlock } from '../storage/files/tar.ts';
import { piecesOf } from '../storage/files/content.ts';
import type { BlobStore } from '../storage/blobs/blob-store.ts';
import { bundleInvalid, type BundleBad, type BundleBlob, type BundleEntry } from './format.ts';
import { layoutOf } from './layout.ts';

/** Bytes of a segment for the statement, the end of the archive, and headers. */
const overhead = 128 * 1024;
/** Bytes of a line of content in the list, at most. */
const lineBytes = 320;
/** Bytes of a segment for content, at least. */
const leastRoom = 512 * 1024;

/** Where the bytes of all content are. */
interface SegmentPlan {
  blobs: BundleBlob[];
  segments: number;
  /** Bytes of content, without what the receiver has. */
  bytes: number;
}

/** Content that may be in a bundle. */
interface SizedContent {
  digest: Digest;
  size: number;
}

/**
 * Divides content into segments of at most `limit` bytes, in the order of the digests. Content that is larger than a segment is
 * cut; to know the digests of its parts, it is read. What `base` has is left out. Throws `Invalid` if a segment is too small.
 */
export async function planSegments(
  store: BlobStore,
  contents: readonly SizedContent[],
  entries: readonly BundleEntry[],
  {
    limit,
    base,
    knownBad = [],
  }: { knownBad?: readonly BundleBad[]; limit: number | undefined; base: Pick<ReadonlySet<string>, 'has'> },
): Promise<SegmentPlan> {
  const room = limit === undefined ? Number.POSITIVE_INFINITY : limit - (await fixedBytes(contents, entries, knownBad));
  if (room < leastRoom)
    throw bundleInvalid(
      `a segment needs at least ${Math.ceil((limit! - room + leastRoom) / 2 ** 20)} MiB for this bundle, because each has the list of all content`,
    );
  const plan: SegmentPlan = { blobs: [], segments: 1, bytes: 0 };
  let used = 0;
  const place = (size: number): number => {
    const needed = tarBlock + Math.ceil(size / tarBlock) * tarBlock;
    if (used > 0 && used + needed > room) {
      plan.segments += 1;
      used = 0;
    }
    used += needed;
    return plan.segments;
  };
  const sorted = await sortedInTurns(contents, (one, other) => (one.digest < other.digest ? -1 : 1));
  for await (const { digest, size } of withPauses(sorted)) {
    if (base.has(digest)) {
      plan.blobs.push({ digest, size, base: true });
      continue;
    }
    plan.bytes += size;
    if (tarBlock * 2 + size <= room) {
      plan.blobs.push({ digest, size, segment: place(size) });
      continue;
    }
    const parts = [];
    for await (const part of partsOf(store, { digest, size }, room - 2 * tarBlock))
      parts.push({ ...part, segment: place(part.size) });
    plan.blobs.push({ digest, size, parts });
  }
  return plan;
}

/** Bytes of a segment that are not content: the list, and what makes it a layout. */
async function fixedBytes(
  contents: readonly SizedContent[],
  entries: readonly BundleEntry[],
  knownBad: readonly BundleBad[],
): Promise<number> {
  let list = 0;
  for await (const each of withPauses([...entries, ...knownBad])) list += Buffer.byteLength(JSON.stringify(each)) + 2;
  let layout = 0;
  for await (const { size } of layoutOf(entries, () => true)) layout += size + 2 * tarBlock;
  return overhead + list + lineBytes * contents.length + layout;
}

/** The digests of the parts of content, each of `size` bytes at most. Throws `ContentDamaged` if its bytes are not those of its digest. */
async function* partsOf(store: BlobStore, content: SizedContent, size: number): AsyncGenerator<SizedContent> {
  const algorithm = algorithmOf(content.digest);
  let hash = startHash(algorithm);
  let length = 0;
  for await (const piece of piecesOf(await store.open(content.digest, content.size, true))) {
    for (let at = 0; at < piece.length;) {
      const some = piece.subarray(at, at + size - length);
      hash.update(some);
      length += some.length;
      at += some.length;
      if (length < size) continue;
      yield { digest: digestSoFar(hash, algorithm), size: length };
      hash = startHash(algorithm);
      length = 0;
    }
  }
  if (length > 0) yield { digest: digestSoFar(hash, algorithm), size: length };
}
