import { Readable } from 'node:stream';
import { isDigest, type Digest } from '../digest.ts';
import { fetchJson, unusable } from '../mirror/fetch.ts';
import type { Fetched } from '../mirror/resource.ts';
import { mediaTypes, type Descriptor } from './manifest.ts';
import { scopeOf, urlOf, type Place } from './place.ts';
import { isTag } from './reference.ts';

/** The most bytes, items and pages of one list of an upstream. */
export const listLimit = 16 * 2 ** 20;
const itemsLimit = 200_000;
const pagesLimit = 200;

/** The valid descriptors in an upstream's list, each digest once, in byte order. */
export function readDescriptors(items: readonly unknown[]): Descriptor[] {
  const descriptors = new Map<Digest, Descriptor>();
  for (const item of items) {
    const { mediaType, digest, size, artifactType, annotations } = (item ?? {}) as Record<string, unknown>;
    if (typeof digest !== 'string' || !isDigest(digest) || typeof mediaType !== 'string') continue;
    descriptors.set(digest, {
      mediaType,
      digest,
      size: Number.isSafeInteger(size) ? (size as number) : 0,
      ...(typeof artifactType === 'string' && { artifactType }),
      ...(typeof annotations === 'object' && annotations && { annotations: stringsIn(annotations) }),
    });
  }
  return [...descriptors.values()].sort((a, b) => (a.digest < b.digest ? -1 : 1));
}

function stringsIn(annotations: object): Record<string, string> {
  const strings = Object.entries(annotations).filter(([, value]) => typeof value === 'string');
  return Object.fromEntries(strings) as Record<string, string>;
}

/** The valid tags, each once, in byte order. Tags are ASCII, so the order of UTF-16 is the same. */
export function sortedTags(items: readonly unknown[]): string[] {
  return [...new Set(items.filter((tag) => typeof tag === 'string' && isTag(tag)) as string[])].sort();
}

/** The first page of a repository's tags. */
export function firstTags(place: Place): URL {
  const url = urlOf(place, 'tags', 'list');
  url.searchParams.set('n', '1000');
  return url;
}

/**
 * Follows the pages of a list (`Link`, RFC 8288) from `first`, and joins their arrays in `field` to one document, with what
 * `read` takes of each array. Keeps the text of earlier pages only. Throws `UpstreamUnavailable` for a list above the limits.
 */
export async function collect(
  place: Place,
  first: URL,
  field: string,
  read: (items: readonly unknown[]) => readonly unknown[],
  signal: AbortSignal,
): Promise<Fetched> {
  const parts: string[] = [];
  let items = 0;
  let bytes = 0;
  let url: URL | undefined = first;
  for (let pages = 0; url; pages += 1) {
    if (pages === pagesLimit) throw unusable(place.upstream, `has a list of more than ${pagesLimit} pages`);
    const accept = `application/json, ${mediaTypes.index}`;
    const request = { url, headers: { accept }, subject: place.name, scope: scopeOf(place), signal };
    const page = await fetchJson(place.upstream, request, listLimit);
    if (!page) return { kind: 'absent' };
    const part = (page.value as Record<string, unknown>)[field];
    if (Array.isArray(part)) {
      items += part.length;
      if (items > itemsLimit) throw unusable(place.upstream, `has a list of more than ${itemsLimit} items`);
      const text = JSON.stringify(read(part as unknown[])).slice(1, -1);
      if (text !== '') parts.push(text);
      bytes += Buffer.byteLength(text) + 1;
    }
    if (bytes > listLimit) throw unusable(place.upstream, `has a list of more than ${listLimit} bytes`);
    const next = /<([^>]+)>\s*;[^,]*rel="?next"?/.exec(String(page.headers.link ?? ''))?.[1];
    const following: URL | null = next === undefined ? null : URL.parse(next, url.href);
    url = following?.origin === url.origin ? following : undefined;
  }
  return inMemory(Buffer.from(`[${parts.join(',')}]`), 'application/json');
}

export function inMemory(bytes: Buffer, type: string): Extract<Fetched, { kind: 'fetched' }> {
  const body = Readable.from([bytes]);
  return { kind: 'fetched', body, size: bytes.length, type, etag: null, lastModified: null };
}
