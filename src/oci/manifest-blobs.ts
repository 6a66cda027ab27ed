import type { Digest } from '../digest.ts';

/** The size that `manifest` states for a blob; undefined if it does not refer to the blob. */
export function sizeIn(manifest: object, digest: Digest): number | undefined {
  for (const descriptor of descriptorsIn(manifest)) {
    if (descriptor.digest === digest && Number.isSafeInteger(descriptor.size)) return descriptor.size as number;
  }
  return undefined;
}

/** The digests of the blobs to which `manifest` refers. */
export function blobsIn(manifest: object): string[] {
  return descriptorsIn(manifest).flatMap(({ digest }) => (typeof digest === 'string' ? [digest] : []));
}

function descriptorsIn(manifest: object): { digest?: unknown; size?: unknown }[] {
  const { config, layers } = manifest as { config?: unknown; layers?: unknown };
  return [config, layers].flat().map((each) => each ?? {});
}
