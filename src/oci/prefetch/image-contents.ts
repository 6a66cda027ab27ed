import { isDigest, type Digest } from '../../runtime/digest.ts';
import { isForeignLayer, manifestTypes } from '../format/manifest.ts';
import { isPlatform, type Platform } from '../../prefetch/platform.ts';

// The references of manifests (image-spec "manifest", "image-index"). They come from upstreams and may be incomplete.

export interface Item {
  digest: Digest;
  /** 0 if unknown. */
  size: number;
}

/** A manifest in an index. */
interface Child extends Item {
  platform: Platform | undefined;
  /** The digest of the manifest that a BuildKit attestation describes; undefined for other manifests. */
  subject: string | undefined;
}

/** The manifests and blobs that a manifest or index needs. */
export function contentsOf(document: object): { manifests: Child[]; blobs: Item[] } {
  const { manifests, config, layers } = document as Record<string, unknown>;
  const found = { manifests: [] as Child[], blobs: [] as Item[] };
  for (const each of asList(manifests)) {
    const item = itemOf(each);
    if (!item) continue;
    const { mediaType, platform, annotations } = each as Record<string, unknown>;
    // The index of a build cache lists blobs.
    if (typeof mediaType === 'string' && !manifestTypes.includes(mediaType)) {
      found.blobs.push(item);
      continue;
    }
    const subject = (annotations as Record<string, unknown> | undefined)?.['vnd.docker.reference.digest'];
    found.manifests.push({
      ...item,
      platform: platformOf(platform),
      subject: typeof subject === 'string' ? subject : undefined,
    });
  }
  for (const each of [config, ...asList(layers)]) {
    const item = itemOf(each);
    const { mediaType, urls } = (each ?? {}) as Record<string, unknown>;
    const isElsewhere = (typeof mediaType === 'string' && isForeignLayer(mediaType)) || asList(urls).length > 0;
    if (item && !isElsewhere) found.blobs.push(item);
  }
  return found;
}

/** The manifests for one of `platforms` or without a platform, and their attestations; all if `platforms` is empty. */
export function selectPlatforms(manifests: readonly Child[], platforms: readonly Platform[]): Child[] {
  if (platforms.length === 0) return [...manifests];
  const chosen = manifests.filter(
    ({ platform, subject }) =>
      subject === undefined && (!platform || platforms.some((wanted) => isPlatform(platform, wanted))),
  );
  const digests = new Set<string>(chosen.map(({ digest }) => digest));
  return [...chosen, ...manifests.filter(({ subject }) => subject !== undefined && digests.has(subject))];
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

function itemOf(value: unknown): Item | undefined {
  const { digest, size } = (value ?? {}) as Record<string, unknown>;
  if (typeof digest !== 'string' || !isDigest(digest)) return undefined;
  return { digest, size: Number.isSafeInteger(size) && (size as number) > 0 ? (size as number) : 0 };
}

function platformOf(value: unknown): Platform | undefined {
  const { os, architecture, variant } = (value ?? {}) as Record<string, unknown>;
  if (typeof os !== 'string' || typeof architecture !== 'string') return undefined;
  return { os, architecture, variant: typeof variant === 'string' && variant !== '' ? variant : undefined };
}
