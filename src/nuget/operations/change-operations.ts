import { z } from 'zod';
import { dependentList } from '../../api/content/content-schemas.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { pageQuery, readPage } from '../../api/framework/paging.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { parseRange, satisfies } from '../format/range.ts';
import { parseVersion, type Version } from '../format/version.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { setListed } from '../hosted/publish.ts';
import { marksOfVersion, type Findings } from './findings.ts';
import { listDependents, listVersions } from '../hosted/summary.ts';

const params = { id: 'The package ID, in any letter case', version: 'The version, normalised or not' };
const subject = { kind: 'package', param: 'id', keyOf: packageKey } as const;

const dependentsQuery = pageQuery.extend({
  without: z.string('expected versions').max(20_000).optional().meta({
    description:
      'Only those that need a version which is left no more when these versions, separated by commas, are deleted',
  }),
});

/** Versions of a package that a deletion is compared with, the newest. */
const maxVersions = 10_000;
const versionsAtATime = 500;

/** Whether a range has a version now, and has none without the versions in `without`. */
async function loss(
  feed: FeedContext,
  accountId: number,
  id: string,
  without: string,
): Promise<(range: string) => boolean> {
  const gone = new Set(without.split(',').map((each) => keyOfVersion(each.trim())));
  const all: { version: Version; isGone: boolean }[] = [];
  const read = (after: string | undefined) =>
    listVersions(feed.database, accountId, id, versionsAtATime, after).catch(noneHosted);
  for await (const page of pagesOf(undefined as string | undefined, versionsAtATime, read, ({ order }) => order)) {
    for (const { version } of page)
      all.push({ version: parseVersion(version)!, isGone: gone.has(keyOfVersion(version)) });
    if (all.length >= maxVersions) break;
  }
  return (text) => {
    const range = parseRange(text);
    const found = range ? all.filter(({ version }) => satisfies(range, version)) : [];
    return found.length > 0 && found.every(({ isGone }) => isGone);
  };
}

/** Copies that the mirror drops can be fetched again, so nobody loses them. */
function noneHosted(error: unknown): [] {
  if (isDomainError(error, 'NotFound')) return [];
  throw error;
}

/** `/packages/<id>`: unlist, relist, and what a deletion would break. */
export function packageChanges(feed: FeedContext, findings: Findings): Operation[] {
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
      query: dependentsQuery,
      status: 200,
      answer: dependentList,
      run: async ({ principal, owner, params: { id }, query }) => {
        // Anonymous readers of mirrored content only see no hosted packages.
        const isHidden = principal.kind === 'anonymous' && principal.reads !== 'all';
        const loses = query.without === undefined ? undefined : await loss(feed, owner, id!, query.without);
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
          isVisible: loses && (({ ranges }) => ranges.some(loses)),
        });
        const known = findings.known(principal.accountId);
        const items = entries.map(({ key: _key, ...each }) => ({
          ...each,
          ...marksOfVersion(known, each.id, each.version),
        }));
        return { items, next_cursor };
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
