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

/** What a type of artifacts is; undefined for another one. */
export function attachedKind(type: string): AttachedKind | undefined {
  return byType.find(([pattern]) => pattern.test(type))?.[1];
}

/** Tags under which cosign stores what it attaches to a digest, with what that is. */
export function cosignTags(digest: Digest): (readonly [tag: string, kind: AttachedKind])[] {
  return Object.entries(byEnd).map(([end, kind]) => [`${digest.replace(':', '-')}.${end}`, kind]);
}

/** The beginnings of tags that clients make for what is attached to a digest; see `fallbackTag`, too. */
export const attachedTags = ['sha256-', 'sha512-'] as const;
