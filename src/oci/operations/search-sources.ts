import { readsHosted } from '../../accounts/principal.ts';
import type { SearchSource } from '../../api/content/search.ts';
import { nameQuery } from '../../mirror/store/words.ts';
import type { Images } from '../catalog/images.ts';
import type { MirroredImages } from '../catalog/mirrored-images.ts';

/** What a search in `/v1` finds of images, by name. */
export function imageSearches(images: Images, mirrored: MirroredImages): SearchSource[] {
  return [
    {
      kind: 'container',
      origin: 'hosted',
      find: async (principal, text, limit, after) => {
        const query = nameQuery(text);
        if (!query || !readsHosted(principal)) return [];
        const { accountId, names } = principal;
        const found = await images.repositories.find(accountId, query, limit, after, names?.of('container'));
        return found.map(({ position, name, pulls }) => ({ ...hit(name, pulls), position, upstream: null }));
      },
    },
    {
      kind: 'container',
      origin: 'mirrored',
      find: async ({ accountId, names }, text, limit, after) => {
        const found = await mirrored.find(accountId, text, limit, after, names?.of('container'));
        return found.map(({ position, name, pulls, upstream }) => ({ ...hit(name, pulls), position, upstream }));
      },
    },
  ];
}

function hit(name: string, pulls: number) {
  return { name, version: null, description: null, download_count: pulls };
}
