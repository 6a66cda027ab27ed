import { readsHosted } from '../../accounts/principal.ts';
import type { SearchSource } from '../../api/content/search.ts';
import type { ImageList } from '../catalog/repository.ts';

/** What a search in `/v1` finds of images, by name. */
export function imageSearches(lists: readonly ImageList[]): SearchSource[] {
  return lists.map((list) => ({
    kind: 'container',
    origin: list.origin,
    find: async (principal, text, limit, after) => {
      if (list.origin === 'hosted' && !readsHosted(principal)) return [];
      const found = await list.find(principal.accountId, text, limit, after, principal.names?.of('container'));
      return found.map(({ pulls, ...each }) => ({ ...each, version: null, description: null, download_count: pulls }));
    },
  }));
}
