import type { Digest } from '../digest.ts';

/** The size that `manifest` states for a blob; undefined if it does not refer to the blob. */
export function sizeIn(manifest: object, digest: Digest): number | undefined {
  const { config, layers } = manifest as { config?: unknown; layers?: unknown };
  for (const each of [config, layers].flat()) {
    const descriptor = (each ?? {}) as { digest?: unknown; size?: unknown };
    if (descriptor.digest === digest && Number.isSafeInteger(descriptor.size)) return descriptor.size as number;
  }
  return undefined;
}
