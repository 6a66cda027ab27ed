import { LRUCache } from 'lru-cache';
import { isDigest, type Digest } from '../digest.ts';
import { pause, withPauses } from '../event-loop.ts';
import { parseDocument } from '../mirror/document.ts';
import { entryId } from '../mirror/entries.ts';
import type { Entry } from '../mirror/mirror.ts';
import type { StatedSize } from '../mirror/stated-sizes.ts';
import { readAll } from '../storage/content.ts';
import { hasMoreValues } from './json-values.ts';
import { mostValues } from './manifest.ts';
import { resource, type Place } from './place.ts';

/** A config or layer as a manifest states it. */
export interface StatedBlob {
  readonly digest: Digest;
  readonly size: number | undefined;
}

/** Bytes of memory for all kept lists, of each list, and of each of its blobs without the digest, as measured. */
const keptBytes = 8 * 2 ** 20;
const bytesOfList = 500;
const bytesOfBlob = 80;
/** Blobs of a manifest whose sizes are written with it. */
const mostSizes = 1000;

/** By the digest of the manifest, so that a manifest in frequent use is parsed once. The manifest itself takes more memory. */
const kept = new LRUCache<Digest, readonly StatedBlob[]>({
  maxSize: keptBytes,
  sizeCalculation: (blobs) => blobs.reduce((sum, { digest }) => sum + bytesOfBlob + digest.length, bytesOfList),
});

/**
 * The config and the layers of the manifest in a complete and verified entry; closes the entry's content. None for a manifest
 * with more values than are accepted today. Others get the same array: it must not be changed.
 */
export async function blobsOf(
  entry: Pick<Entry, 'metadata' | 'content' | 'complete'>,
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
  const isTooLong = hasMoreValues(bytes, mostValues);
  await pause();
  const blobs = isTooLong ? [] : blobsIn(parseDocument(bytes) ?? {});
  kept.set(digest, blobs);
  return blobs;
}

/** The sizes of `blobs`, for the entries that they get in the mirror. Of very many, the first ones. */
export async function sizesOf(place: Place, blobs: readonly StatedBlob[]): Promise<StatedSize[]> {
  const sizes = new Map<string, number>();
  for await (const { digest, size } of withPauses(blobs.slice(0, mostSizes))) {
    if (size !== undefined) sizes.set(entryId(resource(place, 'blob', digest).key), size);
  }
  // In one order, so that manifests that are stored at the same time wait for each other and do not fail.
  return [...sizes].map(([id, size]) => ({ id, size })).sort((a, b) => (a.id < b.id ? -1 : 1));
}

/** The config and the layers of a manifest. */
export function blobsIn({ config, layers }: { config?: unknown; layers?: unknown }): StatedBlob[] {
  return [config, layers].flat().flatMap((each) => {
    const { digest, size } = (each ?? {}) as { digest?: unknown; size?: unknown };
    if (typeof digest !== 'string' || !isDigest(digest)) return [];
    return [{ digest, size: Number.isSafeInteger(size) ? (size as number) : undefined }];
  });
}
