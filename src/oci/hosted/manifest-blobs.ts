import { LRUCache } from 'lru-cache';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { pause } from '../../runtime/event-loop.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { MirrorEntry } from '../../mirror/mirror.ts';
import { readAll } from '../../storage/files/content.ts';
import { hasMoreValues } from '../format/json-values.ts';
import { maxValues } from '../format/manifest.ts';

/** A config or layer as a manifest states it. */
export interface StatedBlob {
  readonly digest: Digest;
  readonly size: number | undefined;
}

/** Bytes of memory for all kept lists, of each list, and of each of its blobs without the digest, as measured. */
const keptBytes = 8 * 2 ** 20;
const bytesOfList = 500;
const bytesOfBlob = 80;

/** By the digest of the manifest, so that a manifest in frequent use is parsed once. The manifest itself takes more memory. */
const kept = new LRUCache<Digest, readonly StatedBlob[]>({
  maxSize: keptBytes,
  sizeCalculation: (blobs) => blobs.reduce((sum, { digest }) => sum + bytesOfBlob + digest.length, bytesOfList),
});

/**
 * The config and the layers of the manifest in a complete and verified entry; closes the entry's content. None for a manifest
 * with more values than are accepted today. Others get the same array: it must not be changed.
 */
export async function blobsOfEntry(
  entry: Pick<MirrorEntry, 'metadata' | 'content' | 'complete'>,
  limit: number,
): Promise<readonly StatedBlob[]> {
  const known = entry.metadata && kept.get(entry.metadata.digest);
  if (known) {
    entry.content.close();
    return known;
  }
  const bytes = await readAll(entry.content, limit);
  const { digest } = await entry.complete;
  await pause();
  const isTooLong = hasMoreValues(bytes, maxValues);
  await pause();
  const blobs = isTooLong ? [] : blobsIn(parseDocument(bytes) ?? {});
  kept.set(digest, blobs);
  return blobs;
}

function blobsIn({ config, layers }: { config?: unknown; layers?: unknown }): StatedBlob[] {
  return [config, layers].flat().flatMap((each) => {
    const { digest, size } = (each ?? {}) as { digest?: unknown; size?: unknown };
    if (typeof digest !== 'string' || !isDigest(digest)) return [];
    return [{ digest, size: Number.isSafeInteger(size) ? (size as number) : undefined }];
  });
}
