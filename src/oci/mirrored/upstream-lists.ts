import { Readable } from 'node:stream';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { pause } from '../../runtime/event-loop.ts';
import { fetchBytes, largeInTurn, notJson, unusable, type Grown } from '../../mirror/fetch/fetch.ts';
import type { Fetched } from '../../mirror/fetch/resource.ts';
import type { MirrorEntry } from '../../mirror/mirror.ts';
import { readAll } from '../../storage/files/content.ts';
import { itemsIn } from '../../runtime/json-items.ts';
import { nextPage } from '../../upstream/next-page.ts';
import type { UpstreamRequest } from '../../upstream/upstream.ts';
import { mediaTypes, type Descriptor } from '../format/manifest.ts';
import { pullScope, urlOf, type UpstreamRepository } from './upstream-repository.ts';
import { isTag } from '../format/reference.ts';

/** The most bytes, items and pages of one list of an upstream. */
export const listLimit = 16 * 2 ** 20;
const itemsLimit = { tags: 200_000, manifests: 20_000 };
const pagesLimit = 200;
/** All pages of a list must come in this many time-outs of the upstream, or in this many milliseconds for each page. */
const listTimeouts = 6;
const pageTime = 2000;

/** What registries without the referrers API answer to a path that they do not know, besides 404. Clients read the fallback tag then, too. */
export const withoutReferrers: readonly number[] = [400, 405, 406];

/** Bytes of a list that are staged at once. */
const pieceSize = 256 * 1024;

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
  return Object.fromEntries(strings);
}

/** The valid tags in an upstream's list. */
export function readTags(items: readonly unknown[]): string[] {
  return items.filter((tag) => typeof tag === 'string' && isTag(tag)) as string[];
}

/** The first page of a repository's tags. */
export function firstTags(place: UpstreamRepository): URL {
  const url = urlOf(place, 'tags', 'list');
  url.searchParams.set('n', '1000');
  return url;
}

/**
 * Follows the pages of a list (`Link`, RFC 8288) from `first`, and joins their arrays in `field` to one document, with what
 * `read` takes of each part of them, and with the items of `further`. "Not found" and the `answers` of `first` mean that there is
 * no list. Throws `UpstreamUnavailable` for a list above the limits, or without a page that it names.
 */
export function collect(
  place: UpstreamRepository,
  first: Pick<UpstreamRequest, 'url' | 'answers'>,
  field: keyof typeof itemsLimit,
  read: (items: readonly unknown[]) => readonly unknown[],
  signal: AbortSignal,
  further?: () => Promise<readonly unknown[]>,
): Promise<Fetched> {
  const work = (grown: Grown) => collectPages(place, first, field, read, { signal, further, grown });
  return largeInTurn(place.upstream, field, work);
}

interface Collecting {
  signal: AbortSignal;
  further: (() => Promise<readonly unknown[]>) | undefined;
  grown: Grown;
}

async function collectPages(
  place: UpstreamRepository,
  first: Pick<UpstreamRequest, 'url' | 'answers'>,
  field: keyof typeof itemsLimit,
  read: (items: readonly unknown[]) => readonly unknown[],
  { signal, further, grown }: Collecting,
): Promise<Fetched> {
  const parts: Buffer[] = [];
  let items = 0;
  let bytes = 0;
  let url: URL | undefined = first.url;
  const add = (some: readonly unknown[]) => {
    const text = JSON.stringify(some).slice(1, -1);
    if (text !== '') parts.push(Buffer.from(`${parts.length === 0 ? '' : ','}${text}`));
    bytes += Buffer.byteLength(text) + 1;
    if (bytes > listLimit) throw unusable(place.upstream, `has a list of more than ${listLimit} bytes`);
  };
  const startedAt = performance.now();
  for (let pages = 0; url; pages += 1) {
    if (pages === pagesLimit) throw unusable(place.upstream, `has a list of more than ${pagesLimit} pages`);
    const time = Math.max(listTimeouts * place.upstream.config.timeout, pages * pageTime);
    if (performance.now() - startedAt > time) throw unusable(place.upstream, 'sends the pages of a list too slowly');
    const accept = `application/json, ${mediaTypes.index}`;
    const request = { ...first, url, headers: { accept }, subject: place.name, scope: pullScope(place), signal };
    const page = await fetchBytes(place.upstream, request, listLimit, grown);
    if (!page) {
      // The page before names this one, so "not found" is a failure of the upstream: the list exists.
      if (pages > 0) throw unusable(place.upstream, `has no page that its list of ${field} of ${place.name} names`);
      return { kind: 'absent' };
    }
    for await (const some of partsOf(place, page.bytes, field)) {
      items += some.length;
      if (items > itemsLimit[field]) {
        throw unusable(place.upstream, `has a list of more than ${itemsLimit[field]} items`);
      }
      add(read(some));
      await grown(bytes);
    }
    url = nextPage(page.headers.link, url);
  }
  if (further) add(await further());
  return inMemory(Buffer.concat([Buffer.from('['), ...parts, Buffer.from(']')]), 'application/json');
}

/** As `itemsIn`; throws `UpstreamUnavailable` if the page is no JSON. */
async function* partsOf({ upstream }: UpstreamRepository, bytes: Buffer, field: string): AsyncGenerator<unknown[]> {
  try {
    yield* itemsIn(bytes, field);
  } catch (error) {
    throw error instanceof SyntaxError ? unusable(upstream, notJson, error) : error;
  }
}

export function inMemory(bytes: Buffer, type: string): Extract<Fetched, { kind: 'fetched' }> {
  const body = Readable.from(piecesOf(bytes));
  return { kind: 'fetched', body, size: bytes.length, type, etag: null, lastModified: null };
}

/** With pauses, because each piece is hashed where it arrives. */
async function* piecesOf(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let start = 0; start < bytes.length; start += pieceSize) {
    await pause();
    yield bytes.subarray(start, start + pieceSize);
  }
}

/** The answer for content that is stored under another key already. */
export async function copyOf({ content, type, metadata, complete }: MirrorEntry): Promise<Fetched> {
  const { digest, size } = metadata ?? (await complete);
  return { ...inMemory(await readAll(content, size), type), digest };
}
