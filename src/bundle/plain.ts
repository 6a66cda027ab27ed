import { readdir, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { openPlainSource, type PlainEntry, type PlainFile, type PlainSource } from '../prefetch/plain.ts';
import type { Digest } from '../runtime/digest.ts';
import { digestOfContent } from '../storage/files/content.ts';
import { openTar } from '../storage/files/tar.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { bundleInvalid, listName, segmentName, type BundleBlob, type BundleEntry } from './format.ts';
import { bundleOf, type OpenBundle } from './read.ts';
import { bundledName } from './upstream-names.ts';

// Content of other tools: OCI image layouts, archives of `docker save`, folders of packages. It is read as a bundle without a
// signature.

/** Whether none of the paths is a bundle, or a part of one. */
export async function isPlain(paths: readonly string[]): Promise<boolean> {
  for (const path of paths) {
    const found = await stat(path).catch(() => undefined);
    if (!found) return false;
    if (found.isDirectory()) {
      if ((await readdir(path)).some((name) => /^\d{4}\.tar$/.test(name))) return false;
    } else if (path.endsWith('.tar')) {
      if (basename(path) === segmentName(1)) return false;
      await using tar = await openTar(path);
      if (tar.members.has(listName)) return false;
    }
  }
  return true;
}

/** Opens plain content as a bundle without a signature. `entriesIn` finds the entries that a source has. Throws `Invalid`. */
export async function openPlain(
  paths: readonly string[],
  upstreams: readonly Upstream[],
  entriesIn: (source: PlainSource) => AsyncIterable<PlainEntry>,
  { source, now }: { source: string; now: number },
): Promise<OpenBundle> {
  await using stack = new AsyncDisposableStack();
  const entries = new Map<string, BundleEntry>();
  const files = new Map<Digest, PlainFile & { path: string }>();
  for (const path of paths) {
    const opened = await openPlainSource(path, stack);
    let found = 0;
    for await (const { key, type, digest: stated, file } of entriesIn(opened)) {
      found += 1;
      const digest = stated ?? (await digestOfContent(await file.open()));
      const upstream = upstreams.find(({ id }) => id === key.upstream)!;
      const { kind, name, reference } = key;
      const place = JSON.stringify(key);
      if ((entries.get(place)?.digest ?? digest) !== digest)
        throw bundleInvalid(
          `${path}: ${`${name} ${reference}`.trim()} is there twice, with different content. Leave one out, or import them one after the other`,
        );
      files.set(digest, { ...file, path });
      entries.set(place, {
        protocol: upstream.config.kind,
        upstream: bundledName(upstream, upstreams),
        kind,
        name,
        reference,
        digest,
        size: file.size,
        type,
        etag: null,
        modified: null,
        attributes: {},
        validated_at: now,
        seen: [],
      });
    }
    if (found === 0)
      throw bundleInvalid(
        `${path}: this is no bundle, no OCI image layout, no archive of "docker save" and no folder of packages`,
      );
  }
  const blobs: BundleBlob[] = [...files].map(([digest, { size }]) => ({ digest, size, segment: 1 }));
  return bundleOf(
    { source, now, blobs, entries: [...entries.values()] },
    async (digest) => {
      const file = files.get(digest)!;
      return { content: await file.open(), place: file.path };
    },
    stack.move(),
  );
}
