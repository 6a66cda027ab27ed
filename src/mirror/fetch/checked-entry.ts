import { algorithmOf, type Digest } from '../../runtime/digest.ts';
import type { SeenReference } from '../../history/history.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import { entryId, type DropMark, type Entries, type EntryKey, type EntryMetadata } from '../store/entries.ts';
import type { EntryDescription } from './resource.ts';

/** What the sender of content says about it. */
export interface StatedContent {
  type: string;
  etag: string | null;
  lastModified: string | null;
  /** The digest of the content. */
  digest?: Digest | undefined;
  /** The number of bytes. */
  size: number;
}

/** The bytes do not have the digest that their name or their sender promises. */
export class WrongDigest extends Error {
  readonly expected: Digest;
  readonly received: Digest;

  constructor(expected: Digest, received: Digest) {
    super(`it is ${received} instead of ${expected}`);
    this.expected = expected;
    this.received = received;
  }
}

/** Content that was checked, and how it is stored. */
export interface CheckedEntry {
  staged: StagedFile;
  metadata: EntryMetadata;
  keys: EntryKey[];
  /** For the history. */
  seen: SeenReference[];
}

/** Checks complete bytes. Throws `WrongDigest`, or the error of the description's `verify`. `now` is milliseconds since 1970 UTC. */
export async function checkEntry(
  entry: EntryDescription,
  staged: StagedFile,
  stated: StatedContent,
  now: number,
): Promise<CheckedEntry> {
  const expected = entry.digest ?? stated.digest;
  const digest = await staged.digest(expected ? algorithmOf(expected) : 'sha256');
  if (expected && digest !== expected) throw new WrongDigest(expected, digest);
  const metadata: EntryMetadata = {
    digest,
    size: stated.size,
    type: stated.type.slice(0, 255),
    etag: short(stated.etag, 255),
    lastModified: short(stated.lastModified, 64),
    attributes: (await entry.verify?.(staged)) ?? {},
    storedAt: now,
    validatedAt: now,
  };
  const keys = [entry.key, ...(entry.aliases?.(metadata) ?? [])];
  return { staged, metadata, keys, seen: entry.history?.(metadata) ?? [] };
}

/** Stores checked content under its keys. Resolves to what `rememberEntry` needs. */
export async function storeEntry(
  { blobs, entries }: { blobs: BlobStore; entries: Entries },
  { staged, metadata, keys, seen }: CheckedEntry,
): Promise<DropMark> {
  const { digest } = metadata;
  const mark = await entries.mark();
  await blobs.commit([{ staged, digest }], (tx) => entries.write(tx, keys, metadata, seen));
  return mark;
}

/** Writes stored metadata to the cache: under each key, because the cache may have older metadata for one of them. */
export async function rememberEntry(entries: Entries, { keys, metadata }: CheckedEntry, mark: DropMark): Promise<void> {
  for (const key of keys) await entries.remember(entryId(key), metadata, mark);
}

function short(text: string | null, length: number): string | null {
  return text === null || text.length > length ? null : text;
}
