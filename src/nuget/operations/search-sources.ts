import { listsOf } from '../../accounts/owner.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import type { FoundHit, SearchSource } from '../../api/content/search.ts';
import { nameQuery } from '../../mirror/store/words.ts';
import type { Database } from '../../database/database.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { packageKey } from '../hosted/packages.ts';
import { newestVersions } from '../hosted/summary.ts';
import { parseQuery } from '../search/search-query.ts';
import { Search } from '../search/search.ts';
import type { MirroredPackages } from '../upstream/mirrored-packages.ts';
import { marksOfPackage, type Findings } from './findings.ts';

/** Most hosted hits of one search. */
const maxHits = 3000;

/** What a search in `/v1` finds of packages: hosted ones by relevance, mirrored ones by name. It asks no upstream, so its marks are those that are known already. */
export function packageSearches(
  { database }: FeedContext,
  mirrored: MirroredPackages,
  findings: Findings,
): SearchSource[] {
  const search = new Search(database);
  return [
    {
      kind: 'package',
      origin: 'hosted',
      find: (principal, text, limit, after) =>
        findHosted({ database, search, findings }, principal, text, limit, after),
    },
    {
      kind: 'package',
      origin: 'mirrored',
      find: async ({ accountId, names }, text, limit, after) => {
        const query = nameQuery(text);
        const found = query ? await mirrored.find(accountId, query, limit, after, names?.of('package')) : [];
        const known = findings.known(accountId);
        return found.map(({ position, summary }) => ({
          position,
          name: summary.id,
          upstream: summary.upstream,
          version: summary.latestVersion,
          description: null,
          download_count: summary.downloadCount,
          ...marksOfPackage(known, summary.id),
        }));
      },
    },
  ];
}

interface HostedParts {
  database: Database;
  search: Search;
  findings: Findings;
}

/** A position is the number of hits before it. */
async function findHosted(
  { database, search, findings }: HostedParts,
  principal: Principal,
  text: string,
  limit: number,
  after: string,
): Promise<FoundHit[]> {
  if (!readsHosted(principal)) return [];
  const skip = Math.min(Number.parseInt(after, 10) || 0, maxHits);
  const take = Math.min(limit, maxHits - skip);
  if (take <= 0) return [];
  const accounts = listsOf(principal, 'package');
  const { data } = await search.find(accounts, parseQuery(text), { prerelease: true, semVer2: true, skip, take });
  const keys = data.map(({ metadata }) => packageKey(metadata.id));
  const newest = new Map<string, string | null>();
  for (const { accountId, only } of accounts.toReversed()) {
    const some = keys.filter((key) => only?.includes(key) ?? true);
    for (const [key, version] of await newestVersions(database, accountId, some)) newest.set(key, version);
  }
  const known = findings.known(principal.accountId);
  return data.map(({ version, metadata: { id, description }, totalDownloads }, index) => ({
    position: String(skip + index + 1),
    name: id,
    upstream: null,
    version: newest.get(keys[index]!) ?? version,
    description: description ?? null,
    download_count: totalDownloads,
    ...marksOfPackage(known, id),
  }));
}
