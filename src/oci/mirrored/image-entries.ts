import { isDigest } from '../../runtime/digest.ts';
import type { ListedKinds } from '../../mirror/store/entry-kinds.ts';

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
};
