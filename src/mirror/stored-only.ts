import { UpstreamError } from '../upstream/upstream-error.ts';
import type { Mirror } from './mirror.ts';

/** What readers of documents, manifests and files need of the mirror. */
export type MirrorReader = Pick<
  Mirror,
  | 'open'
  | 'openStored'
  | 'stored'
  | 'references'
  | 'referencesOf'
  | 'among'
  | 'latest'
  | 'writeUses'
  | 'remove'
  | 'withdrawals'
>;

/** Used to read only stored documents: what they say is not worth a request to the upstream. */
export const notAsked = new UpstreamError('UpstreamUnavailable', 'No upstream was asked.');

/** The mirror without its upstreams: it opens stored entries of any age, and throws `notAsked` for others. They count as no requests. */
export function storedOnly(mirror: Mirror): MirrorReader {
  return {
    withdrawals: mirror.withdrawals,
    open: async ({ key }) => {
      const entry = await mirror.openStored({ key, lifetime: 'immutable' });
      if (!entry) throw notAsked;
      return entry;
    },
    openStored: ({ key }, how) => mirror.openStored({ key, lifetime: 'immutable' }, how),
    stored: (key) => mirror.stored(key),
    references: (...asked) => mirror.references(...asked),
    referencesOf: (...asked) => mirror.referencesOf(...asked),
    among: (...asked) => mirror.among(...asked),
    latest: (...asked) => mirror.latest(...asked),
    // It has no uses of clients.
    writeUses: () => Promise.resolve(),
    remove: (...asked) => mirror.remove(...asked),
  };
}
