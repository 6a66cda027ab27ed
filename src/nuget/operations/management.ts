import { jsonItem } from '../../runtime/json-item.ts';
import { isShared, readerOf } from '../source/reader.ts';
import { z } from 'zod';
import { allow } from '../../accounts/allow.ts';
import { listsOf } from '../../accounts/owner.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import { firstRanked, type Rank } from '../../runtime/ranked.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { parseRange, satisfies } from '../format/range.ts';
import { parseVersion } from '../format/version.ts';
import { deleteVersion } from '../hosted/deletion.ts';
import {
  getPackage,
  listPackages,
  listVersions,
  packageOrders,
  rankedPackages,
  rankedVersions,
  totalOfPackages,
  versionOrders,
  type PackageSummary,
  type VersionSummary,
} from '../hosted/summary.ts';
import { packageKey } from '../hosted/packages.ts';
import { byBytes, firstOfEach } from '../../runtime/sorted.ts';
import { dailyDownloads } from '../../usage/daily.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { historyPage } from '../../api/account/history.ts';
import { pageQuery, readPage } from '../../api/framework/paging.ts';
import { dailyQuery, sortedPage, sortedQuery, totalOf, type SortedSource } from '../../api/framework/sorted.ts';
import { packageVersionDetails, packageVersionList } from '../../api/content/content-schemas.ts';
import { historySchema } from '../../api/framework/history-schema.ts';
import {
  originFields,
  packageList,
  packageDetails,
  packageSummary,
  packageVersion,
} from '../../api/framework/schemas.ts';
import { marksOfPackage, marksOfVersion, type FindingsOfAccount } from './findings.ts';
import { versionDetails, type DetailsParts } from './version-details.ts';

const packagesQuery = sortedQuery(['versions', 'size', 'downloads', 'updated', 'used']);
const versionsQuery = pageQuery.extend({
  sort: z
    .enum(['size', 'downloads', 'oldest'], 'expected size, downloads, oldest, or no order')
    .optional()
    .meta({ description: 'The largest or the oldest version first; without it, the newest one' }),
  q: z
    .string('expected one text')
    .max(100)
    .default('')
    .meta({ description: 'Only versions that begin with this text' }),
  range: z
    .string('expected one range')
    .max(255)
    .optional()
    .refine((text) => text === undefined || parseRange(text), 'expected a range such as [1.0.0, 2.0.0)')
    .meta({ description: 'Only versions in this range, such as `[1.0.0, 2.0.0)`' }),
});
/** How long a list waits for what is known of vulnerabilities; milliseconds. */
const markPatience = 300;
const id = 'The package ID, in any letter case';

type OrderedVersion = VersionSummary & { order: string };

/** `/packages`: the account's packages and their versions, and what was mirrored from upstreams. */
export function packageOperations(parts: DetailsParts): Operation[] {
  const { feed, mirrored, findings } = parts;
  return [
    operation({
      method: 'get',
      path: '/packages',
      id: 'listPackages',
      summary: 'List all packages of the account and all mirrored packages, by ID or by a number',
      action: 'read',
      query: packagesQuery,
      status: 200,
      answer: packageList,
      run: async ({ principal, query }) => {
        const { accountId } = principal;
        const known = await findings.within(markPatience, accountId);
        const sources = sourcesOf(parts, principal, query);
        const total = await totalOf(query, sources);
        const listed = async (entries: readonly PackageSummary[]) => {
          const names = query.daily === '1' ? entries.map(({ key }) => key) : [];
          const dailyOf = await dailyDownloads(feed.database, accountId, 'package', names, feed.now());
          return entries.map((each) => ({
            ...toPackage(each, known),
            ...(query.daily === '1' && { daily_downloads: dailyOf(each.key) }),
          }));
        };
        if (query.sort !== undefined || query.q !== '') {
          const { entries, next_cursor } = await sortedPage(query, 'packages', sources);
          return { items: await listed(entries), next_cursor, ...total };
        }
        const { entries, next_cursor } = await readPage(query, {
          name: 'packages',
          key: z.tuple([z.string()]),
          keyOf: (each: PackageSummary) => [each.key] as [string],
          read: async (limit, after) => {
            const accounts = query.origin !== 'mirrored' && readsHosted(principal) ? listsOf(principal, 'package') : [];
            const [mirroredPage, ...hosted]: PackageSummary[][] = await Promise.all([
              query.origin === 'hosted'
                ? []
                : mirrored.list(accountId, limit, after?.[0], principal.names?.of('package')),
              ...accounts.map((each) => listPackages(feed.database, each.accountId, limit, after?.[0], each.only)),
            ]);
            return [...firstOfEach(hosted.flat(), ({ key }) => key), ...mirroredPage!]
              .sort((a, b) => byBytes(a.key, b.key))
              .slice(0, limit);
          },
        });
        return { items: await listed(entries), next_cursor, ...total };
      },
    }),
    operation({
      method: 'get',
      path: '/packages/:id',
      id: 'getPackage',
      summary: 'Get one package with its versions, newest first',
      action: 'read',
      params: { id },
      subject: { kind: 'package', param: 'id', keyOf: packageKey },
      query: dailyQuery,
      status: 200,
      answer: packageDetails,
      run: async ({ principal, owner, params, query }) => {
        const id = params['id']!;
        const reader = await readerOf(mirrored, principal, id);
        const found = (await mirrored.get(owner, id)) ?? (await getPackage(feed.database, reader, id));
        const known = await findings.within(markPatience, owner);
        const names = query.daily === '1' ? [found.key] : [];
        const dailyOf = await dailyDownloads(feed.database, principal.accountId, 'package', names, feed.now());
        return {
          ...toPackage(found, known),
          ...(query.daily === '1' && { daily_downloads: dailyOf(found.key) }),
          versions: found.versions.map((each) => toVersion(found.id, each, known)),
        };
      },
    }),
    operation({
      method: 'get',
      path: '/packages/:id/history',
      id: 'getPackageHistory',
      summary: 'Get when each mirrored version was first here, the latest first. Deletion and eviction leave it',
      action: 'read',
      params: { id },
      subject: { kind: 'package', param: 'id', keyOf: packageKey },
      query: pageQuery,
      status: 200,
      answer: historySchema,
      run: async ({ principal, owner, params, query }) => {
        const owners = isShared(principal, owner) ? [] : await mirrored.historyOwners(owner, params['id']!);
        return historyPage(feed.database, principal, query, owners);
      },
    }),
    operation({
      method: 'get',
      path: '/packages/:id/versions',
      id: 'listPackageVersions',
      summary:
        'List all versions of a package, the newest or the largest first; of a mirrored package those that are stored here',
      action: 'read',
      params: { id },
      subject: { kind: 'package', param: 'id', keyOf: packageKey },
      query: versionsQuery,
      status: 200,
      answer: packageVersionList,
      run: async ({ principal, owner, params, query }) => {
        const id = params['id']!;
        const reader = await readerOf(mirrored, principal, id);
        const stored = await mirrored.versions(owner, id);
        const wanted = query.q.toLowerCase();
        const range = query.range === undefined ? undefined : parseRange(query.range);
        const isVisible =
          wanted === '' && !range
            ? undefined
            : ({ version }: OrderedVersion) =>
                version.toLowerCase().startsWith(wanted) && (!range || satisfies(range, parseVersion(version)!));
        const sort = query.sort === 'oldest' ? undefined : query.sort;
        const isRising = query.sort === 'oldest';
        const inOrder = async (limit: number, after: Rank | undefined) =>
          stored
            ? firstRanked(stored, {
                rankOf: (each): Rank => [each[versionOrders[sort!].field], each.order],
                isShown: () => true,
                after,
                limit,
              })
            : rankedVersions(feed.database, reader, id, sort!, limit, after);
        const { entries, next_cursor } =
          sort !== undefined
            ? await sortedPage(query, 'versions', [{ ranked: inOrder }], isVisible)
            : await readPage<OrderedVersion, [string]>(query, {
                name: isRising ? 'versions, the oldest first' : 'versions',
                key: z.tuple([z.string()]),
                keyOf: ({ order }) => [order],
                read: async (limit, after) =>
                  (isRising ? stored?.toReversed() : stored)
                    ?.filter(({ order }) => after === undefined || (isRising ? order > after[0] : order < after[0]))
                    .slice(0, limit) ?? listVersions(feed.database, reader, id, limit, after?.[0], isRising),
                isVisible,
              });
        const known = await findings.within(markPatience, owner);
        return { items: entries.map((each) => toVersion(id, each, known)), next_cursor };
      },
    }),
    operation({
      method: 'get',
      path: '/packages/:id/:version',
      id: 'getPackageVersion',
      summary: 'Get one version with its metadata and README. A mirrored version must be stored here',
      action: 'read',
      params: { id, version: 'The version, normalised or not' },
      subject: { kind: 'package', param: 'id', keyOf: packageKey },
      status: 200,
      answer: packageVersionDetails,
      run: async ({ principal, owner, params }) => {
        const id = params['id']!;
        const reader = await readerOf(mirrored, principal, id);
        return versionDetails(parts, { principal, owner, reader }, id, params['version']!);
      },
    }),
    operation({
      method: 'delete',
      path: '/packages/:id/:version',
      id: 'deletePackageVersion',
      summary:
        'Delete one version of a package. It can be restored for the time of the setting deletedFor. A mirrored version needs the scope operate too, and is downloaded again at the next request',
      action: 'delete',
      subject: { kind: 'package', param: 'id', keyOf: packageKey },
      params: { id, version: 'The version, in normalised or not' },
      status: 204,
      run: async ({ principal, owner, params }) => {
        const asked = [owner, params['id']!, params['version']!] as const;
        try {
          await deleteVersion(feed, ...asked);
        } catch (error) {
          if (!isDomainError(error, 'NotFound')) throw error;
          if (!(await mirrored.deleteVersion(...asked, () => allow(principal, 'operate')))) throw error;
        }
      },
    }),
  ];
}

/** The hosted and the mirrored packages that a request for a list may see. */
function sourcesOf(
  { feed: { database }, mirrored }: DetailsParts,
  principal: Principal,
  { origin, q: text, sort }: z.output<typeof packagesQuery>,
): SortedSource<PackageSummary>[] {
  const { accountId } = principal;
  const only = principal.names?.of('package');
  const order = { by: sort && packageOrders[sort].counted, text, only };
  const sources: SortedSource<PackageSummary>[] = [];
  if (origin !== 'mirrored' && readsHosted(principal)) {
    for (const { accountId: from, ...those } of listsOf(principal, 'package')) {
      sources.push({
        ranked: (limit, after) => rankedPackages(database, from, { sort, text, ...those }, limit, after),
        total: () => totalOfPackages(database, from, { text, ...those }),
      });
    }
  }
  if (origin !== 'hosted') {
    sources.push({
      ranked: (limit, after) => mirrored.ranked(accountId, order, limit, after),
      total: () => mirrored.total(accountId, text, only),
    });
  }
  return sources;
}

function toPackage(
  summary: PackageSummary & { versions?: unknown },
  known: FindingsOfAccount,
): z.input<typeof packageSummary> {
  const { key: _key, versions: _versions, packageTypes, upstream, ...row } = summary;
  const marks = marksOfPackage(known, row.id);
  return { ...jsonItem(row), package_type: packageTypes[0] ?? 'Dependency', ...originFields(upstream), ...marks };
}

function toVersion(
  id: string,
  { order: _order, ...version }: VersionSummary & { order?: string },
  known: FindingsOfAccount,
): z.input<typeof packageVersion> {
  return { ...jsonItem(version), ...marksOfVersion(known, id, version.version) };
}
