import type { Digest } from '../../runtime/digest.ts';

/** What else is known of an image, from manifests that refer to it. */
export const attachedKinds = ['signature', 'sbom', 'attestation'] as const;
export type AttachedKind = (typeof attachedKinds)[number];

const byType: readonly (readonly [pattern: RegExp, kind: AttachedKind])[] = [
  [
    /^application\/vnd\.(?:dev\.sigstore\.bundle|dev\.cosign\.(?:simplesigning|artifact\.sig)|cncf\.notary\.signature)/,
    'signature',
  ],
  [/spdx|cyclonedx|\.sbom\b/, 'sbom'],
  [/in-toto|\.att\b|dsse/, 'attestation'],
];

/** By the end of the tag under which cosign stores it. */
const byEnd: Readonly<Record<string, AttachedKind>> = { sig: 'signature', sbom: 'sbom', att: 'attestation' };

/** The artifact type of bundles of Sigstore, which hold a signature or a signed statement. */
export const sigstoreBundle = 'application/vnd.dev.sigstore.bundle';

/** The annotation of such a bundle that says what its statement is about. */
export const predicateKey = 'dev.sigstore.bundle.predicateType';

/** What an artifact is, by its type, and by the type of the statement in a bundle; undefined for another one. */
export function attachedKind(type: string, predicate: unknown): AttachedKind | undefined {
  const found = byType.find(([pattern]) => pattern.test(type))?.[1];
  if (!type.startsWith(sigstoreBundle) || typeof predicate !== 'string') return found;
  if (predicate.startsWith('https://sigstore.dev/cosign/sign')) return 'signature';
  return /spdx|cyclonedx/.test(predicate) ? 'sbom' : 'attestation';
}

/** Tags under which cosign stores what it attaches to a digest, with what that is. */
export function cosignTags(digest: Digest): (readonly [tag: string, kind: AttachedKind])[] {
  return Object.entries(byEnd).map(([end, kind]) => [`${digest.replace(':', '-')}.${end}`, kind]);
}
