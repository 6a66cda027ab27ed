import type { Digest } from '../../../src/runtime/digest.ts';

/** A row of `mirror_entries` for a mirrored blob. */
export function mirrorEntry(digest: Digest) {
  return {
    id: digest.slice(7),
    upstream: 'u',
    kind: 'blob',
    name: 'n',
    reference: digest,
    digest,
    size_bytes: 1,
    content_type: '',
    attributes: '{}',
    stored_at: 0,
    validated_at: 0,
    used_at: 0,
  };
}
