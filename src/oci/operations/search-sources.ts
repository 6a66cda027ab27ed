import { listsOf } from '../../accounts/owner.ts';
import { readsHosted } from '../../accounts/principal.ts';
import type { SearchSource } from '../../api/content/search.ts';
import { byBytes, firstOfEach } from '../../runtime/sorted.ts';
import type { ImageList } from '../catalog/repository.ts';

/** What a search in `/v1` finds of images, by name. */
export function imageSearches(lists: readonly ImageList[]): SearchSource[] {
  return lists.map((list) => ({
    kind: 'container',
    origin: list.origin,
    find: async (principal, text, limit, after) => {
      if (list.origin === 'hosted' && !readsHosted(principal)) return [];
      const [own, ...others] = listsOf(principal, 'container');
      const accounts = list.origin === 'hosted' ? [own, ...others] : [own];
      const lists = await Promise.all(
        accounts.map(({ accountId, only }) => list.find(accountId, text, limit, after, only)),
      );
      const found = firstOfEach(lists.flat(), ({ position }) => position)
        .sort((one, other) => byBytes(one.position, other.position))
        .slice(0, limit);
      return found.map(({ pulls, ...each }) => ({ ...each, version: null, description: null, download_count: pulls }));
    },
  }));
}
