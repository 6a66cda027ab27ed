import { LRUCache } from 'lru-cache';
import { readAll } from '../storage/content.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import type { Entry } from './mirror.ts';

/** Parsed documents by the digest of their bytes, so that a document in frequent use is parsed once. Must not be changed. */
const parsed = new LRUCache<string, object>({ maxSize: 32 * 2 ** 20 });

/**
 * The JSON object or array in an entry, complete and verified; closes the entry's content. Throws `UpstreamUnavailable` if
 * the upstream sent anything else.
 */
export async function readDocument(entry: Entry, limit: number): Promise<object> {
  const known = entry.metadata && parsed.get(entry.metadata.digest);
  if (known) {
    entry.content.close();
    return known;
  }
  const bytes = await readAll(entry.content, limit);
  const { digest } = await entry.complete;
  const document = parseDocument(bytes);
  if (!document)
    throw new UpstreamError('UpstreamUnavailable', 'An upstream sent a document that is not a JSON object or array.');
  parsed.set(digest, document, { size: bytes.length + 1 });
  return document;
}

/** The JSON object or array in `bytes`; undefined for anything else. */
export function parseDocument(bytes: Buffer): object | undefined {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8').replace(/^\uFEFF/, ''));
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
