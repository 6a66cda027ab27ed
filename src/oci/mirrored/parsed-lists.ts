import { LRUCache } from 'lru-cache';
import type { Fetched } from '../../mirror/fetch/resource.ts';
import type { MirrorEntry, ServedOutcome } from '../../mirror/mirror.ts';
import type { EntryMetadata } from '../../mirror/store/entries.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import { readAll } from '../../storage/files/content.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';
import { inOrder } from '../format/in-order.ts';
import { itemsIn } from '../../runtime/json-items.ts';
import { overheadOf, type Descriptor } from '../format/manifest.ts';
import { listLimit, readDescriptors, readTags } from './upstream-lists.ts';
import { resource, type UpstreamRepository } from './upstream-repository.ts';

/** The items of an upstream's list, and how the list was served. */
export interface Listed<T> {
  served: ServedOutcome;
  items: readonly T[];
}

/** What lists of one kind have. */
interface ListKind<T> {
  name: string;
  /** The valid ones of some items. */
  read: (items: readonly unknown[]) => T[];
  keyOf: (item: T) => string;
  /** Bytes of memory for an item, without its text. */
  overheadOf: (item: T) => number;
}

/** Tags are ASCII, so the order of UTF-16 is that of bytes. */
export const tagLists: ListKind<string> = {
  name: 'tags',
  read: readTags,
  keyOf: (tag) => tag,
  overheadOf: () => 40,
};

export const referrerLists: ListKind<Descriptor> = {
  name: 'referrers',
  read: readDescriptors,
  keyOf: ({ digest }) => digest,
  overheadOf,
};

/** Bytes of memory for all kept lists. The largest list without annotations has about 24 MiB. */
const keptBytes = 40 * 2 ** 20;

/** Lists by their kind and the digest of their document, so that a list in frequent use is parsed once. */
const kept = new LRUCache<string, readonly unknown[]>({ maxSize: keptBytes });
/** Lists of more bytes are parsed one after the other: those of one upstream. */
const fewBytes = 2 ** 20;
const turns = new Semaphore({ max: 1 });
/** The lists that are being parsed. */
const parsing = new Map<string, Promise<readonly unknown[]>>();

/** A list of an upstream, through the mirror; undefined if the upstream has none. Throws as `Mirror.open`, and as `readParsedList`. */
export async function openList<T>(
  mirror: MirrorReader,
  place: UpstreamRepository,
  kind: ListKind<T>,
  reference: string,
  fetch: (signal: AbortSignal, known: EntryMetadata | undefined) => Promise<Fetched>,
): Promise<Listed<T> | undefined> {
  const entry = await mirror.open({
    ...resource(place, kind.name, reference),
    limit: listLimit,
    keeps: kind.name === referrerLists.name,
    whole: true,
    fetch: (known, signal) => fetch(signal, known),
  });
  return entry && { served: entry.outcome, items: await readParsedList(entry, kind, place.upstream.id) };
}

/**
 * The list in a complete and verified entry, each item once, in the order of its keys; closes the entry's content. Others get
 * the same array: it must not be changed. Throws `UpstreamUnavailable` if the entry has no list.
 */
export async function readParsedList<T>(
  entry: Pick<MirrorEntry, 'metadata' | 'content' | 'complete'>,
  kind: ListKind<T>,
  upstream: string,
): Promise<readonly T[]> {
  let bytes: Buffer | undefined;
  if (!entry.metadata) bytes = await readAll(entry.content, listLimit);
  const { digest } = entry.metadata ?? (await entry.complete);
  const key = `${kind.name} ${digest}`;
  let list = kept.get(key) ?? parsing.get(key);
  if (list) {
    entry.content.close();
  } else {
    const read = async () => parse(key, kind, bytes ?? (await readAll(entry.content, listLimit)));
    const size = bytes?.length ?? entry.metadata!.size;
    list = (size > fewBytes ? turns.run(read, upstream) : read()).finally(() => parsing.delete(key));
    parsing.set(key, list);
  }
  return (await list) as readonly T[];
}

async function parse<T>(key: string, kind: ListKind<T>, bytes: Buffer): Promise<readonly T[]> {
  const items: T[] = [];
  let size = bytes.length + 1;
  try {
    for await (const some of itemsIn(bytes, undefined)) {
      for (const item of kind.read(some)) {
        items.push(item);
        size += kind.overheadOf(item);
      }
    }
  } catch (error) {
    throw new UpstreamError('UpstreamUnavailable', 'An upstream sent a document that is not a list.', { cause: error });
  }
  const list = await inOrder(items, kind.keyOf);
  kept.set(key, list, { size });
  return list;
}
