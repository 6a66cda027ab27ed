import { isDigest, type Digest } from '../../digest.ts';
import { isForeignLayer, isIndex, mediaTypes } from '../manifest.ts';
import { isPlatform, type Platform } from '../../prefetch/platform.ts';

// What manifests refer to (image-spec "manifest", "image-index"), as far as they say: an upstream's are taken as they come.

export interface Item {
  digest: Digest;
  /** 0 where it is not said. */
  size: number;
}

/** A manifest that an index names. */
export interface Child extends Item {
  platform: Platform | undefined;
  /** For what BuildKit attests: the manifest it is about. */
  about: string | undefined;
}

const manifestTypes: readonly string[] = Object.values(mediaTypes);

/** The manifests and blobs that a manifest or index needs. */
export function contentsOf(document: object): { manifests: Child[]; blobs: Item[] } {
  const { manifests, config, layers, fsLayers } = document as Record<string, unknown>;
  const found = { manifests: [] as Child[], blobs: [] as Item[] };
  for (const each of asList(manifests)) {
    const item = itemOf(each);
    if (!item) continue;
    const { mediaType, platform, annotations } = each as Record<string, unknown>;
    // A build cache's index has blobs for children.
    if (typeof mediaType === 'string' && !manifestTypes.includes(mediaType) && !isIndex(mediaType)) {
      found.blobs.push(item);
      continue;
    }
    const about = (annotations as Record<string, unknown> | undefined)?.['vnd.docker.reference.digest'];
    found.manifests.push({
      ...item,
      platform: platformOf(platform),
      about: typeof about === 'string' ? about : undefined,
    });
  }
  for (const each of [config, ...asList(layers)]) {
    const item = itemOf(each);
    const { mediaType, urls } = (each ?? {}) as Record<string, unknown>;
    const isElsewhere = (typeof mediaType === 'string' && isForeignLayer(mediaType)) || asList(urls).length > 0;
    if (item && !isElsewhere) found.blobs.push(item);
  }
  // Docker's first schema.
  for (const each of asList(fsLayers)) {
    const item = itemOf({ digest: (each as Record<string, unknown> | null)?.['blobSum'] });
    if (item) found.blobs.push(item);
  }
  return found;
}

/** Those made for one of `platforms`, or for none in particular, with what attests to them; all when none is named. */
export function select(manifests: readonly Child[], platforms: readonly Platform[]): Child[] {
  if (platforms.length === 0) return [...manifests];
  const chosen = manifests.filter(
    ({ platform, about }) =>
      about === undefined && (!platform || platforms.some((wanted) => isPlatform(platform, wanted))),
  );
  const digests = new Set<string>(chosen.map(({ digest }) => digest));
  return [...chosen, ...manifests.filter(({ about }) => about !== undefined && digests.has(about))];
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
