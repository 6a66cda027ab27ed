import type { ListedKinds } from '../../mirror/store/entry-kinds.ts';

/** What the mirror stores of a package feed. */
export const packageEntries: ListedKinds = {
  kinds: {
    nupkg: 'immutable',
    nuspec: 'immutable',
    readme: 'immutable',
    icon: 'immutable',
    symbols: 'immutable',
    flat: 'document',
    registration: 'document',
    'registration-semver2': 'document',
    'service-index': 'document',
    'vulnerability-index': 'document',
    'vulnerability-page': 'document',
  },
  dropEvent: ({ kind, name }) => (kind === 'nupkg' ? { type: 'package.deleted', kind: 'package', name } : undefined),
};
