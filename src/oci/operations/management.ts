import { firstOfEach } from '../../runtime/sorted.ts';
import { jsonItem } from '../../runtime/json-item.ts';
import { z } from 'zod';
import { listsOf } from '../../accounts/owner.ts';
import { readsHosted } from '../../accounts/principal.ts';
import type { Database } from '../../database/database.ts';
import type { Rank } from '../../runtime/ranked.ts';
import type { MirroredImages } from '../catalog/mirrored-images.ts';
import { tagsShown, type ImageList, type RepositorySummary } from '../catalog/repository.ts';
import { dailyDownloads } from '../../usage/daily.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { historyPage, imageHistoryQuery } from '../../api/account/history.ts';
import { readPage } from '../../api/framework/paging.ts';
import { sortedPage, sortedQuery, totalOf } from '../../api/framework/sorted.ts';
import { historySchema } from '../../api/framework/history-schema.ts';
import { container, containerList, originFields } from '../../api/framework/schemas.ts';

/** The most tags on a page of images. */
const tagsOnPage = 5000;

const listQuery = sortedQuery(['tags', 'size', 'pulls', 'used']).extend({
  tags: z
    .string(`expected one whole number from 0 to ${tagsShown}`)
    .regex(/^(?:0|[1-9]\d{0,2}|1000)$/, `expected a whole number from 0 to ${tagsShown}`)
    .transform(Number)
    .default(tagsShown)
    .meta({
      description: `Most tags of each image, by name, and at most ${tagsOnPage} divided by the limit; none in a list that is sorted or filtered. The list is much faster with 0. tag_count is the number of all, and /containers/{name}/tags lists them`,
      type: 'integer',
      minimum: 0,
      maximum: tagsShown,
      default: tagsShown,
    }),
});

/** `/containers`: image repositories and their tags, hosted by the account or mirrored from upstreams. */
export function containerOperations(
  { database, now }: { database: Database; now: () => number },
  lists: readonly ImageList[],
  mirrored: MirroredImages,
): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/containers',
      id: 'listContainers',
      summary: 'List all container images of the account and all mirrored images, by name or by a number',
      action: 'read',
      query: listQuery,
      status: 200,
      answer: containerList,
      run: async ({ principal, query }) => {
        const { accountId, names } = principal;
        const only = names?.of('container');
        const shown = lists
          .filter(
            ({ origin }) => (query.origin ?? origin) === origin && (origin === 'mirrored' || readsHosted(principal)),
          )
          .flatMap((list) => {
            const accounts = list.origin === 'hosted' ? listsOf(principal, 'container') : [{ accountId, only }];
            return accounts.map((each) => ({ ...each, list }));
          });
        const sources = shown.map(({ list, accountId: from, ...those }) => {
          const order = { sort: query.sort, text: query.q, ...those };
          return {
            ranked: (limit: number, after: Rank | undefined) => list.ranked(from, order, limit, after),
            total: () => list.total(from, order),
          };
        });
        const total = await totalOf(query, sources);
        const listed = async (entries: readonly RepositorySummary[]) => {
          const asked = query.daily === '1' ? entries.map((each) => each.name) : [];
          const dailyOf = await dailyDownloads(database, accountId, 'container', asked, now());
          return entries.map((each) => ({
            ...toContainer(each),
            ...(query.daily === '1' && { daily_pulls: dailyOf(each.name) }),
          }));
        };
        if (query.sort !== undefined || query.q !== '') {
          const { entries, next_cursor } = await sortedPage(query, 'containers', sources);
          return { items: await listed(entries), next_cursor, ...total };
        }
        const tags = Math.min(query.tags, Math.floor(tagsOnPage / query.limit));
        const { entries, next_cursor } = await readPage(query, {
          name: 'containers',
          key: z.tuple([z.string()]),
          keyOf: (each: RepositorySummary) => [each.name] as [string],
          read: async (limit, after) => {
            const found: RepositorySummary[] = [];
            for (const { list, accountId: from, only: some } of shown)
              found.push(...(await list.list(from, limit, after?.[0] ?? '', some, tags)));
            return firstOfEach(found, ({ name, upstream }) => `${name} ${upstream}`)
              .sort((a, b) => (a.name < b.name ? -1 : 1))
              .slice(0, limit);
          },
        });
        return { items: await listed(entries), next_cursor, ...total };
      },
    }),
    operation({
      method: 'get',
      path: '/containers/*name/history',
      id: 'getContainerHistory',
      summary:
        'Get when each manifest was first here and which digests each tag has had, the latest first. Deletion and eviction leave it',
      action: 'read',
      params: { name: 'Name of the image; its slashes may be percent-encoded' },
      subject: { kind: 'container', param: 'name' },
      query: imageHistoryQuery,
      status: 200,
      answer: historySchema,
      run: async ({ principal, params, query }) => {
        const owners = await mirrored.historyOwners(principal, params['name']!);
        return historyPage(database, principal, query, owners);
      },
    }),
  ];
}

function toContainer({ tags, upstream, ...summary }: RepositorySummary): z.input<typeof container> {
  return { ...jsonItem(summary), ...originFields(upstream), tags: tags.map(jsonItem) };
}
