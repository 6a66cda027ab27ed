import { z } from 'zod';
import { dependentList } from '../../api/content/content-schemas.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { pageQuery, readPage } from '../../api/framework/paging.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { packageKey } from '../hosted/packages.ts';
import { setListed } from '../hosted/publish.ts';
import { listDependents } from '../hosted/summary.ts';

const params = { id: 'The package ID, in any letter case', version: 'The version, normalised or not' };
const subject = { kind: 'package', param: 'id', keyOf: packageKey } as const;

/** `/packages/<id>`: unlist, relist, and what a deletion would break. */
export function packageChanges(feed: FeedContext): Operation[] {
  const listing = (id: string, verb: string, action: 'delete' | 'write', listed: boolean, summary: string): Operation =>
    operation({
      method: 'post',
      path: `/packages/:id/:version/${verb}`,
      id,
      summary,
      action,
      params,
      subject,
      status: 204,
      run: async ({ owner, params: { id: packageId, version } }) => {
        await setListed(feed, owner, packageId!, version!, listed);
      },
    });
  return [
    operation({
      method: 'get',
      path: '/packages/:id/dependents',
      id: 'listDependents',
      summary: 'List the hosted packages of the account whose newest listed version depends on a package',
      action: 'read',
      params: { id: params.id },
      subject,
      query: pageQuery,
      status: 200,
      answer: dependentList,
      run: async ({ principal, params: { id }, query }) => {
        // Anonymous readers of mirrored content only see no hosted packages.
        const isHidden = principal.kind === 'anonymous' && principal.reads !== 'all';
        const { entries, next_cursor } = await readPage(query, {
          name: 'dependents',
          key: z.tuple([z.string()]),
          keyOf: ({ key }: { key: string; id: string; version: string; ranges: string[] }) => [key] as [string],
          read: async (limit, after) =>
            isHidden
              ? []
              : listDependents(
                  feed.database,
                  principal.accountId,
                  id!,
                  limit,
                  after?.[0],
                  principal.names?.of('package'),
                ),
        });
        return { items: entries.map(({ key: _key, ...each }) => each), next_cursor };
      },
    }),
    listing(
      'unlistPackageVersion',
      'unlist',
      'delete',
      false,
      'Hide a hosted version from searches. Clients can still restore it',
    ),
    listing('relistPackageVersion', 'relist', 'write', true, 'Show an unlisted version in searches again'),
  ];
}
