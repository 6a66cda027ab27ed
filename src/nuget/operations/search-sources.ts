import { readsHosted, type Principal } from '../../accounts/principal.ts';
import type { FoundHit, SearchSource } from '../../api/content/search.ts';
import { nameQuery } from '../../mirror/store/words.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { parseQuery } from '../search/search-query.ts';
import { Search } from '../search/search.ts';
import type { MirroredPackages } from '../upstream/mirrored-packages.ts';

/** Most hosted hits of one search. */
const maxHits = 3000;

/** What a search in `/v1` finds of packages: hosted ones by relevance, mirrored ones by name. */
export function packageSearches({ database }: FeedContext, mirrored: MirroredPackages): SearchSource[] {
  const search = new Search(database);
  return [
    {
      kind: 'package',
      origin: 'hosted',
      find: (principal, text, limit, after) => findHosted(search, principal, text, limit, after),
    },
    {
      kind: 'package',
      origin: 'mirrored',
      find: async ({ accountId, names }, text, limit, after) => {
        const query = nameQuery(text);
        const found = query ? await mirrored.find(accountId, query, limit, after, names?.of('package')) : [];
        return found.map(({ position, summary }) => ({
          position,
          name: summary.id,
          upstream: summary.upstream,
          version: summary.latestVersion,
          description: null,
          download_count: summary.downloadCount,
        }));
      },
    },
  ];
}

/** A position is the number of hits before it. */
async function findHosted(
  search: Search,
  principal: Principal,
  text: string,
  limit: number,
  after: string,
): Promise<FoundHit[]> {
  if (!readsHosted(principal)) return [];
  const skip = Math.min(Number.parseInt(after, 10) || 0, maxHits);
  const take = Math.min(limit, maxHits - skip);
  if (take <= 0) return [];
  const only = principal.names?.of('package');
  const options = { prerelease: true, semVer2: true, skip, take, only };
  const { data } = await search.find(principal.accountId, parseQuery(text), options);
  return data.map(({ version, metadata, totalDownloads }, index) => ({
    position: String(skip + index + 1),
    name: metadata.id,
    upstream: null,
    version,
    description: metadata.description ?? null,
    download_count: totalDownloads,
  }));
}
