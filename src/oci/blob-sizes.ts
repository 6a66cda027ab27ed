import { LRUCache } from 'lru-cache';
import type { Digest } from '../digest.ts';

/** Repositories whose manifests are remembered, and how many of each. */
const repositories = 2000;
const manifests = 16;

/**
 * Which manifests of mirrored repositories were opened last: they tell how large the blobs are that clients ask for next.
 * In memory only; without it a blob of unannounced size has a larger limit.
 */
export class RecentManifests {
  readonly #recent = new LRUCache<string, Digest[]>({ max: repositories });

  note(repository: string, digest: Digest): void {
    const known = this.#recent.get(repository);
    if (known?.[0] === digest) return;
    const others = (known ?? []).filter((each) => each !== digest);
    this.#recent.set(repository, [digest, ...others].slice(0, manifests));
  }

  /** The latest first. */
  of(repository: string): readonly Digest[] {
    return this.#recent.get(repository) ?? [];
  }
}

/** The size that `manifest` gives for a blob, if it refers to it. */
export function sizeIn(manifest: object, digest: Digest): number | undefined {
  const { config, layers } = manifest as { config?: unknown; layers?: unknown };
  for (const each of [config, layers].flat()) {
    const descriptor = (each ?? {}) as { digest?: unknown; size?: unknown };
    if (descriptor.digest === digest && Number.isSafeInteger(descriptor.size)) return descriptor.size as number;
  }
  return undefined;
}
