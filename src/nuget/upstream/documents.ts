import { LRUCache } from 'lru-cache';
import type { Digest } from '../../runtime/digest.ts';
import { pause } from '../../runtime/event-loop.ts';
import type { MirrorEntry } from '../../mirror/mirror.ts';
import { readAll } from '../../storage/files/content.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';
import { read, type ReadingKind, type ReadingOptions, type Unread } from './reading/readers.ts';

/** A value that was made of a document, and how many items it has. */
export interface Made<T> {
  value: T;
  items: number;
}

/** How a document becomes a value. */
export interface DocumentReading<T, Kind extends ReadingKind = ReadingKind> {
  kind: Kind;
  options: () => Promise<ReadingOptions[Kind]> | ReadingOptions[Kind];
  /** Makes the value of the lines of the reader's text; throws if it has another form. Must not change with anything else. */
  make: (lines: readonly string[]) => Made<T> | Promise<Made<T>>;
}

/** The keys of a package's versions, in order. */
export const flatIndex: DocumentReading<readonly string[], 'flat'> = {
  kind: 'flat',
  options: () => ({}),
  make: (keys) => ({ value: keys, items: keys.length }),
};

/** Bytes of memory for all values, and of each item beside its texts, as measured. A value that takes more is read again each time. */
const keptBytes = 32 * 2 ** 20;
const bytesOfItem = 150;
/** Lines between two pauses. */
const step = 1000;

/** What was read from documents of upstreams, by the digest of their bytes, so that a document in use is read once. */
const kept = new LRUCache<string, { value: unknown; bytes: number }>({
  maxSize: keptBytes,
  sizeCalculation: ({ bytes }) => bytes,
});
const underWay = new Map<string, Promise<unknown>>();

/**
 * The value of the document of `upstream`, an ID, in an entry, complete and verified; closes the entry's content. It must not be
 * changed. Throws `UpstreamUnavailable` if the upstream sent anything else.
 */
export async function readEntry<T, Kind extends ReadingKind>(
  entry: MirrorEntry,
  limit: number,
  reading: DocumentReading<T, Kind>,
  upstream: string,
): Promise<T> {
  if (entry.metadata) {
    const key = await keyOf(entry.metadata.digest, reading).catch((error: unknown) => {
      entry.content.close();
      throw error;
    });
    const known = kept.get(key);
    if (known) {
      entry.content.close();
      return known.value as T;
    }
  }
  const { content, metadata } = entry;
  const bytes = () => readAll(content, limit);
  const unread = metadata ? { size: metadata.size, bytes } : await bytes();
  const { digest } = await entry.complete;
  const reads = readShared(digest, unread, reading, upstream).catch((error: unknown) => {
    if (error instanceof NoBytes) throw error.cause;
    const message = 'An upstream sent a document that is not of the expected form.';
    throw new UpstreamError('UpstreamUnavailable', message, { cause: error });
  });
  // Another entry with the same bytes may be the one that is read.
  return reads.finally(() => content.close());
}

/**
 * The value of a document of a source with this address. It is read only once, so that nothing of it is kept. Throws with the reason
 * if it has another form. The caller must not use `bytes` any more.
 */
export async function readOnce<T, Kind extends ReadingKind>(
  bytes: Buffer,
  { kind, options, make: makeValue }: DocumentReading<T, Kind>,
  source: string,
): Promise<T> {
  return (await makeValue(await read(kind, bytes, await options(), { of: 'source', id: source }))).value;
}

/** As `readOnce`, for a document of an upstream with this digest; its value is kept. */
export function readBytes<T, Kind extends ReadingKind>(
  ...document: [digest: Digest, unread: Unread, reading: DocumentReading<T, Kind>, upstream: string]
): Promise<T> {
  return readShared(...document).catch((error: unknown) => {
    throw error instanceof NoBytes ? error.cause : error;
  });
}

/** The storage has not sent the bytes of a document, which says nothing about the upstream. `cause` is the reason. */
class NoBytes extends Error {}

function noBytes(cause: unknown): never {
  throw new NoBytes('the bytes of a document could not be read', { cause });
}

/** As `readBytes`; throws `NoBytes`, also if another one reads the same document. */
async function readShared<T, Kind extends ReadingKind>(
  digest: Digest,
  unread: Unread,
  reading: DocumentReading<T, Kind>,
  upstream: string,
): Promise<T> {
  const key = await keyOf(digest, reading);
  const known = kept.get(key);
  if (known) return known.value as T;
  const found = underWay.get(key);
  if (found) return found as Promise<T>;
  const made = make(key, unread, reading, upstream).finally(() => underWay.delete(key));
  underWay.set(key, made);
  return made;
}

async function make<T, Kind extends ReadingKind>(
  key: string,
  unread: Unread,
  { kind, options, make: makeValue }: DocumentReading<T, Kind>,
  upstream: string,
): Promise<T> {
  const marked = Buffer.isBuffer(unread) ? unread : { size: unread.size, bytes: () => unread.bytes().catch(noBytes) };
  const lines = await read(kind, marked, await options(), { of: 'upstream', id: upstream });
  const { value, items } = await makeValue(lines);
  let bytesOfText = 0;
  for (let at = 0; at < lines.length; at += 1) {
    const { length } = lines[at]!;
    bytesOfText += Buffer.byteLength(lines[at]!) === length ? length : 2 * length;
    if (at % step === 0) await pause();
  }
  kept.set(key, { value, bytes: 500 + 2 * key.length + bytesOfText + bytesOfItem * items });
  return value;
}

async function keyOf<T, Kind extends ReadingKind>(
  digest: Digest,
  { kind, options }: DocumentReading<T, Kind>,
): Promise<string> {
  return `${digest} ${kind} ${JSON.stringify(await options())}`;
}
