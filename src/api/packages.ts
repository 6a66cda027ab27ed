import { z } from 'zod';
import type { Feed } from '../nuget/feed.ts';
import type { PackageSummary } from '../nuget/summary.ts';
import { operation, type Operation } from './operation.ts';
import { pageQuery, readPage } from './paging.ts';
import { listOf, packageDetails, packageSummary, timeOf, timeOrNull } from './schemas.ts';

const id = 'The package id, in any letter case';

/** `/packages`: the account's packages and their versions. */
export function packageOperations(feed: Feed): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/packages',
      id: 'listPackages',
      summary: 'List all packages in the account, by id',
      scope: 'read',
      anonymous: true,
      query: pageQuery,
      status: 200,
      answer: listOf(packageSummary),
      run: async ({ principal, query }) => {
        const { entries, next_cursor } = await readPage(query, {
          list: 'packages',
          key: z.tuple([z.string()]),
          keyOf: (each: PackageSummary) => [each.key] as [string],
          read: (limit, after) => feed.listPackages(principal.accountId, limit, after?.[0]),
        });
        return { items: entries.map(shown), next_cursor };
      },
    }),
    operation({
      method: 'get',
      path: '/packages/:id',
      id: 'getPackage',
      summary: 'Get details of one package, its versions newest first',
      scope: 'read',
      anonymous: true,
      params: { id },
      status: 200,
      answer: packageDetails,
      run: async ({ principal, params }) => {
        const found = await feed.getPackage(principal.accountId, params['id']!);
        return {
          ...shown(found),
          versions: found.versions.map((each) => ({
            version: each.version,
            listed: each.listed,
            published_at: timeOf(each.publishedAt),
            cached_at: null,
            size_bytes: each.sizeBytes,
            sha512: each.sha512,
            download_count: each.downloadCount,
          })),
        };
      },
    }),
    operation({
      method: 'delete',
      path: '/packages/:id/:version',
      id: 'deletePackageVersion',
      summary: 'Delete one version of a package',
      scope: 'delete',
      params: { id, version: 'The version, in any spelling that is equal' },
      status: 204,
      run: async ({ principal, params }) => {
        await feed.deleteVersion(principal.accountId, params['id']!, params['version']!);
      },
    }),
  ];
}

function shown(each: PackageSummary): z.input<typeof packageSummary> {
  return {
    id: each.id,
    package_type: each.packageTypes[0] ?? 'Dependency',
    origin: 'hosted',
    upstream: null,
    latest_version: each.latestVersion,
    version_count: each.versionCount,
    size_bytes: each.sizeBytes,
    download_count: each.downloadCount,
    created_at: timeOf(each.createdAt),
    updated_at: timeOf(each.updatedAt),
    last_downloaded_at: timeOrNull(each.lastDownloadedAt),
  };
}
