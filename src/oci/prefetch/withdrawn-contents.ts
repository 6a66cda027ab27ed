import { pagesOf } from '../../runtime/pages.ts';
import type { Digest } from '../../runtime/digest.ts';
import { pause } from '../../runtime/event-loop.ts';
import type { EntryKey } from '../../mirror/store/entries.ts';
import type { Mirror } from '../../mirror/mirror.ts';
import { parseDocument } from '../../mirror/document.ts';
import { readAll } from '../../storage/files/content.ts';
import { hasMoreValues } from '../../runtime/json-values.ts';
import { maxValues } from '../format/manifest.ts';
import { readParsedList, referrerLists } from '../mirrored/parsed-lists.ts';
import { contentsOf } from './image-contents.ts';

/** Tags that one statement reads. */
const tagsAtATime = 200;
/** The most manifests of one tag: those of an index, and what refers to them. */
const maxManifests = 1000;

/**
 * Passes the keys of the stored entries that each withdrawn tag needs to `use`: its manifests, their blobs, and what refers
 * to them, such as signatures.
 */
export async function contentsOfWithdrawn(
  mirror: Mirror,
  signal: AbortSignal,
  use: (keys: readonly EntryKey[]) => Promise<void>,
): Promise<void> {
  const read = (after: string) => mirror.withdrawals.page('manifest', after, tagsAtATime);
  for await (const tags of pagesOf('', tagsAtATime, read, ({ id }) => id)) {
    for (const { upstream, name, ...tag } of tags) {
      signal.throwIfAborted();
      const key = { upstream, name, kind: tag.kind, reference: tag.reference };
      const stored = await mirror.stored(key);
      if (stored) await use(await contentsFrom(mirror, key, stored.digest));
    }
  }
}

async function contentsFrom(mirror: Mirror, tag: EntryKey, root: Digest): Promise<EntryKey[]> {
  const keyOf = (kind: string, reference: string): EntryKey => ({ ...tag, kind, reference });
  const open = (key: EntryKey) => mirror.openStored({ key, lifetime: 'immutable' });
  const manifests = new Set<Digest>([root]);
  const keys: EntryKey[] = [];
  for (const digest of manifests) {
    const [manifest, referrers] = [keyOf('manifest', digest), keyOf('referrers', digest)];
    // An eviction may have dropped the digest before, and not the tag.
    const entry = (await open(manifest)) ?? (digest === root ? await open(tag) : undefined);
    if (!entry) continue;
    keys.push(manifest, referrers);
    const bytes = await readAll(entry.content, entry.metadata!.size);
    await pause();
    const document = hasMoreValues(bytes, maxValues) ? undefined : parseDocument(bytes);
    const contents = contentsOf(document ?? {});
    for (const blob of contents.blobs) keys.push(keyOf('blob', blob.digest));
    const list = await open(referrers);
    const refering = list ? await readParsedList(list, referrerLists, tag.upstream) : [];
    for (const each of [...contents.manifests, ...refering])
      if (manifests.size < maxManifests) manifests.add(each.digest);
    await pause();
  }
  return keys;
}
