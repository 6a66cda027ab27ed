import { isDigest, type Digest } from '../../runtime/digest.ts';
import { pause } from '../../runtime/event-loop.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { DescribedEntry, MirrorResource } from '../../mirror/fetch/resource.ts';
import type { EntryKey, EntryMetadata } from '../../mirror/store/entries.ts';
import type { Config } from '../../config/schema.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';
import { listLimit } from './upstream-lists.ts';
import type { ListedKinds } from '../../mirror/store/entry-kinds.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import { hasMoreValues } from '../../runtime/json-values.ts';
import { manifestTypeIn, manifestTypes, maxValues } from '../format/manifest.ts';
import { namesAtUpstream, resource, type UpstreamRepository } from './upstream-repository.ts';

/** The most bytes of a blob whose size no stored manifest states. */
const unknownSizeLimit = 16 * 2 ** 30;

/** What the mirror stores of a registry. */
export const imageEntries: ListedKinds = {
  kinds: { manifest: 'by digest', blob: 'immutable', tags: 'document', referrers: 'document' },
  dropEvent: ({ kind, name, reference }, upstreamName) =>
    kind === 'manifest'
      ? {
          type: isDigest(reference) ? 'manifest.deleted' : 'tag.deleted',
          kind: 'container',
          name: `${upstreamName}/${name}`,
        }
      : undefined,
  namesAtUpstream,
};

/** The manifest of a tag or digest at an upstream. A tag's manifest is stored under its digest, too. */
export function manifestEntry(place: UpstreamRepository, reference: string, limit: number) {
  const byDigest = isDigest(reference);
  return {
    ...resource(place, 'manifest', reference),
    ...(byDigest && { lifetime: 'immutable' as const, digest: reference }),
    limit,
    whole: true,
    verify: verifyManifest,
    history: (metadata) => {
      const { digest, size } = metadata;
      const content = { mediaType: manifestTypeOf(metadata), size };
      return [
        ...(byDigest ? [] : [{ kind: 'tag' as const, reference, digest, content }]),
        { kind: 'manifest' as const, reference: digest, digest },
      ];
    },
    aliases: ({ digest }) => (byDigest ? [] : [resource(place, 'manifest', digest).key]),
  } satisfies Partial<MirrorResource>;
}

/** A blob at an upstream. `limit` is in bytes; undefined for the largest one. */
export function blobEntry(place: UpstreamRepository, digest: Digest, limit: number | undefined) {
  return {
    ...resource(place, 'blob', digest),
    lifetime: 'immutable',
    digest,
    limit: Math.min(limit ?? unknownSizeLimit, unknownSizeLimit),
  } satisfies Partial<MirrorResource>;
}

/** Throws if the file is not a manifest. The attributes are its media type and the size of the whole image in bytes. */
async function verifyManifest(staged: StagedFile): Promise<Record<string, string>> {
  const bytes = await staged.bytes();
  if (hasMoreValues(bytes, maxValues)) throw new Error(`it has more than ${maxValues} values`);
  await pause();
  const manifest = parseDocument(bytes) as Record<string, unknown> | undefined;
  const mediaType = manifest && manifestTypeIn(manifest);
  if (!mediaType) throw new Error('it is not a manifest of a known type');
  const { config, layers, manifests } = manifest;
  const imageBytes = [config, layers, manifests].flat().reduce((sum: number, each) => sum + sizeOf(each), staged.size);
  return { imageBytes: String(imageBytes), mediaType };
}

function sizeOf(descriptor: unknown): number {
  const size = (descriptor as { size?: unknown } | null | undefined)?.size;
  return Number.isSafeInteger(size) ? (size as number) : 0;
}

/** The media type to serve an entry with: the upstream's if it is a manifest type, else the one found in the manifest. */
export function manifestTypeOf({ type, attributes }: Pick<EntryMetadata, 'type' | 'attributes'>): string {
  const known = [type, attributes['mediaType'] ?? ''].find((each) => manifestTypes.includes(each));
  return known ?? 'application/octet-stream';
}

/** The size of a manifest and of everything that it refers to, as stated in it; bytes. */
export function imageBytesOf({ size, attributes }: Pick<EntryMetadata, 'size' | 'attributes'>): number {
  return Number(attributes['imageBytes'] ?? size);
}

/** As `describePackageEntry`, of a registry. */
export function describeImageEntry(
  upstream: Upstream,
  { kind, name, reference }: Omit<EntryKey, 'upstream'>,
  limits: Config['limits'],
): DescribedEntry | undefined {
  if (!isRepositoryName(name)) return undefined;
  const place = { upstream, name };
  if (kind === 'manifest' && (isDigest(reference) || isTag(reference)))
    return manifestEntry(place, reference, limits.manifest);
  if (!isDigest(reference)) return undefined;
  if (kind === 'blob') return blobEntry(place, reference, limits.blob);
  return kind === 'referrers' ? { ...resource(place, kind, reference), limit: listLimit } : undefined;
}
