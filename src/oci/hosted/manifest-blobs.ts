import { LRUCache } from 'lru-cache';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { pause } from '../../runtime/event-loop.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { MirrorEntry } from '../../mirror/mirror.ts';
import { readAll } from '../../storage/files/content.ts';
import { hasMoreValues } from '../../runtime/json-values.ts';
import { maxValues } from '../format/manifest.ts';

/** A config or layer as a manifest states it. */
interface StatedBlob {
  readonly digest: Digest;
  readonly size: number | undefined;
}

/** What a manifest names: the config and layers of an image, or the children of an index. */
export interface NamedContent {
  readonly blobs: readonly StatedBlob[];
  readonly children: readonly StatedBlob[];
}

/** Bytes of memory for all kept lists, of each list, and of each of its blobs without the digest, as measured. */
const keptBytes = 8 * 2 ** 20;
const bytesOfList = 500;
const bytesOfBlob = 80;

/** By the digest of the manifest, so that a manifest in frequent use is parsed once. The manifest itself takes more memory. */
const kept = new LRUCache<Digest, NamedContent>({
  maxSize: keptBytes,
  sizeCalculation: ({ blobs, children }) =>
    [...blobs, ...children].reduce((sum, { digest }) => sum + bytesOfBlob + digest.length, bytesOfList),
});

/** What a manifest with this digest names, if it was read a short time ago. */
export function knownContent(digest: string): NamedContent | undefined {
  return kept.get(digest as Digest);
}

/**
 * What the manifest in a complete and verified entry names; closes the entry's content. Nothing for a manifest with more values
 * than are accepted today. Others get the same value: it must not be changed.
 */
export async function contentOfEntry(
  entry: Pick<MirrorEntry, 'metadata' | 'content' | 'complete'>,
): Promise<NamedContent> {
  const { digest, size } = entry.metadata ?? (await entry.complete);
  const known = kept.get(digest);
  if (known) {
    entry.content.close();
    return known;
  }
  // Its size was checked when it was stored. The limit may have been lowered since.
  const bytes = await readAll(entry.content, size);
  await pause();
  const isTooLong = hasMoreValues(bytes, maxValues);
  await pause();
  const { config, layers, manifests } = isTooLong ? {} : ((parseDocument(bytes) ?? {}) as Record<string, unknown>);
  const content = { blobs: descriptorsIn([config, layers].flat()), children: descriptorsIn([manifests].flat()) };
  kept.set(digest, content);
  return content;
}

function descriptorsIn(list: readonly unknown[]): StatedBlob[] {
  return list.flatMap((each) => {
    const { digest, size } = (each ?? {}) as { digest?: unknown; size?: unknown };
    if (typeof digest !== 'string' || !isDigest(digest)) return [];
    return [{ digest, size: Number.isSafeInteger(size) ? (size as number) : undefined }];
  });
}
