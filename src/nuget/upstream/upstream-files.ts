import { hexOf, type Digest } from '../../runtime/digest.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import { resourceOf, type MirrorResource } from '../../mirror/fetch/resource.ts';
import type { EntryMetadata } from '../../mirror/store/entries.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { metadataOf } from '../format/metadata.ts';
import { filesDigest, readIdentity } from '../format/nupkg.ts';
import { readNuspec } from '../format/nuspec-reading.ts';
import { packageKey } from '../hosted/packages.ts';
import { normalize, parseVersion, versionKey, type Version } from '../format/version.ts';

// Checks that an upstream's file is the requested one: a stored file is never requested again.

/** A file that the flat container has next to a nupkg. */
export type SidecarKind = 'nuspec' | 'readme' | 'icon';

/** Most bytes of a nuspec, a readme or an icon. */
const sidecarLimit = 2 ** 20;

/** What the registration of an upstream says about a version. Times are in milliseconds since 1970 UTC. */
export interface StatedVersion {
  /** Of its nupkg, in Base64. */
  sha512?: string | undefined;
  publishedAt?: number | undefined;
  /** Without `publishedAt`: a time at which it had been published. */
  publishedBy?: number | undefined;
}

/** The subject of every request for a package, for all its documents and files. */
export function packageSubject(key: string): string {
  return `package ${key}`;
}

/** The nupkg of a version at an upstream. `statedOf` resolves to what is known of it. */
export function nupkgEntry(
  upstream: Upstream,
  key: string,
  version: string,
  limit: number,
  statedOf: () => Promise<StatedVersion>,
) {
  let files: Digest | undefined;
  return {
    ...resourceOf(upstream, 'nupkg', key, version),
    lifetime: 'immutable',
    limit,
    algorithms: ['sha512'],
    history: ({ digest }) => {
      const seen = { kind: 'version', reference: version, digest } as const;
      return [files ? { ...seen, files: { digest: files, subject: 'package', from: upstream.name } } : seen];
    },
    verify: async (staged) => {
      const whole = () => staged.digest('sha256');
      const [stated, digest] = await Promise.all([statedOf(), filesDigest(() => staged.open(), whole)]);
      files = digest;
      return verifyNupkg(staged, key, version, stated);
    },
  } satisfies Partial<MirrorResource>;
}

/** A sidecar file of a version at an upstream. */
export function sidecarEntry(upstream: Upstream, key: string, version: string, kind: SidecarKind) {
  return {
    ...resourceOf(upstream, kind, key, version),
    lifetime: 'immutable',
    limit: sidecarLimit,
    whole: true,
    verify: (staged) => verifySidecar(staged, kind, key, version),
  } satisfies Partial<MirrorResource>;
}

/**
 * Verifies a mirrored nupkg; resolves to the attributes stored with it. Throws if it is not a package, if it has
 * another id or version, or if its SHA-512 is not the one that is stated.
 */
async function verifyNupkg(
  staged: StagedFile,
  key: string,
  version: string,
  { sha512: expected, publishedAt, publishedBy }: StatedVersion,
): Promise<Record<string, string>> {
  const nupkg = await readIdentity(() => staged.open());
  refuseOther(nupkg.nuspec.id, nupkg.version, key, version);
  const sha512 = Buffer.from(hexOf(await staged.digest('sha512')), 'hex').toString('base64');
  if (expected !== undefined && sha512 !== expected) {
    throw new Error(`its SHA-512 is ${sha512}, and the registration says ${expected}`);
  }
  const { id, packageTypes } = metadataOf(nupkg.nuspec);
  return {
    id,
    version: normalize(nupkg.version),
    type: packageTypes[0]?.name ?? 'Dependency',
    sha512,
    ...(publishedAt !== undefined && { publishedAt: String(publishedAt) }),
    ...(publishedBy !== undefined && { publishedBy: String(publishedBy) }),
  };
}

/**
 * When a version with this stored nupkg was published, as its upstream said when it was fetched; milliseconds since 1970 UTC.
 * Undefined if the upstream said nothing.
 */
export function publishedOf({
  attributes,
  lastModified,
}: Pick<EntryMetadata, 'attributes' | 'lastModified'>): number | undefined {
  const { publishedAt, publishedBy = Infinity } = attributes;
  if (publishedAt !== undefined) return Number(publishedAt);
  const latest = Math.min(Number(publishedBy), Date.parse(lastModified ?? '') || Infinity);
  return latest === Infinity ? undefined : latest;
}

/** Verifies a sidecar file; resolves to the attributes stored with it. Throws if it is clearly not of this kind. */
async function verifySidecar(
  staged: StagedFile,
  kind: SidecarKind,
  key: string,
  version: string,
): Promise<Record<string, string>> {
  const bytes = await staged.bytes();
  if (kind === 'nuspec') {
    const nuspec = await readNuspec(bytes, { isPublished: true });
    refuseOther(nuspec.id, parseVersion(nuspec.version)!, key, version);
    return {};
  }
  if (/^\s*<(?:!doctype\s+)?html/i.test(bytes.subarray(0, 200).toString('latin1'))) throw new Error('it is a web page');
  if (kind === 'readme') return {};
  const type = imageTypeOf(bytes);
  if (type === undefined) throw new Error('it is not an image');
  return { type };
}

function refuseOther(id: string, version: Version, key: string, expectedVersion: string): void {
  if (packageKey(id) !== key || versionKey(version) !== expectedVersion)
    throw new Error(`it is ${id} ${normalize(version)}`);
}

/** Media types of icons in public feeds. SVG is refused: it can contain scripts. */
function imageTypeOf(bytes: Buffer): string | undefined {
  const head = bytes.subarray(0, 12).toString('latin1');
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (head.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (/^GIF8[79]a/.test(head)) return 'image/gif';
  if (/^RIFF....WEBP/s.test(head)) return 'image/webp';
  return undefined;
}
