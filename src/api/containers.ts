import { z } from 'zod';
import type { Images, RepositorySummary } from '../oci/images.ts';
import { operation, type Operation } from './operation.ts';
import { pageQuery, readPage } from './paging.ts';
import { container, listOf, timeOf, timeOrNull } from './schemas.ts';

/** `/containers`: the account's image repositories and their tags. */
export function containerOperations(images: Images): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/containers',
      id: 'listContainers',
      summary: 'List all container images in the account, by name',
      scope: 'read',
      anonymous: true,
      query: pageQuery,
      status: 200,
      answer: listOf(container),
      run: async ({ principal, query }) => {
        const { entries, next_cursor } = await readPage(query, {
          list: 'containers',
          key: z.tuple([z.string()]),
          keyOf: (each: RepositorySummary) => [each.name] as [string],
          read: (limit, after) => images.listRepositories(principal.accountId, limit, after?.[0]),
        });
        return { items: entries.map(shown), next_cursor };
      },
    }),
    operation({
      method: 'delete',
      path: '/containers/*name/:tag',
      id: 'deleteTag',
      summary: 'Delete one tag of a container image; its manifest stays and can be pulled by digest',
      scope: 'delete',
      params: { name: 'Name of the image; its slashes may be percent-encoded', tag: 'The tag' },
      status: 204,
      run: async ({ principal, params }) => {
        await images.deleteTag(principal.accountId, params['name']!, params['tag']!);
      },
    }),
  ];
}

function shown(each: RepositorySummary): z.input<typeof container> {
  return {
    name: each.name,
    origin: 'hosted',
    upstream: null,
    tags: each.tags.map((tag) => ({
      name: tag.name,
      digest: tag.digest,
      media_type: tag.mediaType,
      size_bytes: tag.sizeBytes,
      updated_at: timeOf(tag.updatedAt),
    })),
    tag_count: each.tagCount,
    size_bytes: each.sizeBytes,
    pull_count: each.pullCount,
    last_pulled_at: timeOrNull(each.lastPulledAt),
  };
}
