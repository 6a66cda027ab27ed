import { entryId, type EntryKey, type EntryMetadata } from '../mirror/store/entries.ts';
import type { MirrorEntry } from '../mirror/mirror.ts';
import { storedOnly, type MirrorReader } from '../mirror/stored-only.ts';
import type { Mirror } from '../mirror/mirror.ts';
import type { Digest } from '../runtime/digest.ts';
import { isDomainError } from '../runtime/errors.ts';
import type { BlobStore } from '../storage/blobs/blob-store.ts';
import type { Content } from '../storage/files/content.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import type { BundleBlob, BundleEntry } from './format.ts';
import type { OpenBundle } from './read.ts';
import { upstreamOf } from './upstream-names.ts';

interface OverlayParts {
  mirror: Mirror;
  blobs: BlobStore;
  upstreams: readonly Upstream[];
}

/** What is asked of the overlay and is in neither place. */
const nowhere = new UpstreamError('UpstreamUnavailable', 'It is neither in the bundle nor stored here.');

/** The mirror as it would be after the import of a bundle. It asks no upstream. */
export function mirrorWith({ mirror, blobs, upstreams }: OverlayParts, bundle: OpenBundle): MirrorReader {
  const stored = storedOnly(mirror);
  const blobOf = new Map<Digest, BundleBlob>(bundle.list.blobs.map((each) => [each.digest, each]));
  const entries = new Map<string, { key: EntryKey; entry: BundleEntry }>();
  const names = new Map<string, string[]>();
  for (const entry of bundle.list.entries) {
    const upstream = upstreamOf(entry, upstreams)?.id;
    if (upstream === undefined) continue;
    const { kind, name, reference } = entry;
    const key = { upstream, kind, name, reference };
    entries.set(entryId(key), { key, entry });
    const place = JSON.stringify([upstream, kind, name]);
    const references = names.get(place);
    if (references) references.push(reference);
    else names.set(place, [reference]);
  }
  const inBundle = ({ upstream, kind, name }: Omit<EntryKey, 'reference'>) =>
    names.get(JSON.stringify([upstream, kind, name])) ?? [];
  const withdrawnIn = (name: Omit<EntryKey, 'reference'>) =>
    inBundle(name).flatMap((reference) => {
      const { withdrawn } = entries.get(entryId({ ...name, reference }))!.entry;
      return withdrawn ? [{ reference, ...withdrawn }] : [];
    });

  const contentOf = async ({ digest, size }: EntryMetadata): Promise<Content | undefined> => {
    const found = await bundle.open(blobOf.get(digest)!);
    if (found) return found.content;
    return blobs.open(digest, size).catch((error: unknown) => {
      if (isDomainError(error, 'BlobUnknown') || isDomainError(error, 'ContentDamaged')) return undefined;
      throw error;
    });
  };
  const find = async (key: EntryKey): Promise<MirrorEntry | undefined> => {
    const found = entries.get(entryId(key));
    const metadata = found && metadataOf(found.entry);
    const content = metadata && (await contentOf(metadata));
    if (!metadata || !content) return stored.openStored({ key, lifetime: 'immutable' });
    const { type, size } = metadata;
    return { outcome: 'hit', type, size, content, metadata, complete: Promise.resolve(metadata) };
  };
  return {
    withdrawals: mirror.withdrawals.with(withdrawnIn),
    open: async ({ key }) => {
      const entry = await find(key);
      if (!entry) throw nowhere;
      return entry;
    },
    openStored: ({ key }) => find(key),
    stored: async (key) => {
      const found = entries.get(entryId(key));
      return found ? metadataOf(found.entry) : stored.stored(key);
    },
    references: async (key, limit, after) => {
      const own = inBundle(key).filter((reference) => after === undefined || reference > after);
      return merged(await stored.references(key, limit, after), own).slice(0, limit);
    },
    referencesOf: async (key, digest) => {
      const own = inBundle(key).filter(
        (reference) => !reference.includes(':') && entries.get(entryId({ ...key, reference }))!.entry.digest === digest,
      );
      return merged(await stored.referencesOf(key, digest), own);
    },
    among: async (key, references) => {
      const found = await stored.among(key, references);
      for (const reference of references) if (entries.has(entryId({ ...key, reference }))) found.add(reference);
      return found;
    },
    latest: async (key, limit) => merged(await stored.latest(key, limit), inBundle(key)).slice(0, limit),
    writeUses: () => Promise.resolve(),
    remove: () => Promise.resolve(false),
  };
}

function metadataOf(entry: BundleEntry): EntryMetadata {
  const { digest, size, type, etag, modified, attributes, validated_at: validatedAt } = entry;
  return { digest, size, type, etag, lastModified: modified, attributes, storedAt: validatedAt, validatedAt };
}

function merged(more: readonly string[], own: readonly string[]): string[] {
  return [...new Set([...more, ...own])].toSorted();
}
