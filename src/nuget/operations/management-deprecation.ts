import { z } from 'zod';
import { allow, credentialMissing } from '../../accounts/allow.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import {
  advisory,
  advisoryList,
  advisoryRequest,
  deprecationRequest,
  deprecationsRequest,
  versionDeprecationList,
  type deprecation,
} from '../../api/content/notice-schemas.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { pageQuery, readPage } from '../../api/framework/paging.ts';
import { timeOf } from '../../api/framework/schemas.ts';
import { parseDeprecation, type HostedDeprecation } from '../format/deprecation.ts';
import { createAdvisory, deleteAdvisory, listAdvisories, type Advisory } from '../hosted/advisories.ts';
import { changeDeprecation, listDeprecations, type VersionDeprecation } from '../hosted/deprecations.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { packageKey } from '../hosted/packages.ts';

const subject = { kind: 'package', param: 'id', keyOf: packageKey } as const;
const params = { id: 'The package ID, in any letter case' };
const versionParams = { ...params, version: 'The version, in normalised form or not' };

/**
 * Deprecation and advisories of hosted packages. They must be before the operations on `/packages/:id/:version`, which
 * would take `deprecations` as a version.
 */
export function noticeOperations(feed: FeedContext): Operation[] {
  return [...versionOperations(feed), ...packageOperations(feed), ...advisoryOperations(feed)];
}

/** `/packages/:id/:version/deprecation` */
function versionOperations(feed: FeedContext): Operation[] {
  const path = '/packages/:id/:version/deprecation';
  const named = { path, action: 'write', subject, params: versionParams, status: 204 } as const;
  return [
    operation({
      ...named,
      method: 'put',
      id: 'deprecatePackageVersion',
      summary: 'Deprecate one hosted version of a package, or change its deprecation',
      body: deprecationRequest,
      run: async ({ owner, params: { id, version }, body }) => {
        const change = { deprecation: parseDeprecation(id!, body) };
        await changeDeprecation(feed, owner, id!, [version!], change);
      },
    }),
    operation({
      ...named,
      method: 'delete',
      id: 'undeprecatePackageVersion',
      summary: 'End the deprecation of one hosted version',
      run: async ({ owner, params: { id, version } }) => {
        await changeDeprecation(feed, owner, id!, [version!], { deprecation: undefined });
      },
    }),
  ];
}

const versionsQuery = z.object({
  versions: z
    .string('expected one value')
    .min(1)
    .transform((text) => (text === 'all' ? text : text.split(',').map((each) => each.trim())))
    .meta({ type: 'string', description: 'Versions, separated by commas, or `all`' }),
});

/** `/packages/:id/deprecations` */
function packageOperations(feed: FeedContext): Operation[] {
  const named = { path: '/packages/:id/deprecations', subject, params } as const;
  return [
    operation({
      ...named,
      method: 'get',
      id: 'listDeprecations',
      summary: 'List the hosted versions of a package with their deprecation, the newest first',
      action: 'read',
      query: pageQuery,
      status: 200,
      answer: versionDeprecationList,
      run: async ({ principal, owner, params: { id }, query }) => {
        requireHosted(principal);
        const { entries, next_cursor } = await readPage<VersionDeprecation, [string]>(query, {
          name: 'deprecations',
          key: z.tuple([z.string()]),
          keyOf: ({ key }) => [key],
          read: (limit, after) => listDeprecations(feed.database, owner, id!, limit, after?.[0]),
        });
        const items = entries.map((each) => ({
          version: each.version,
          listed: each.listed,
          deprecation: each.deprecation ? toDeprecation(each.deprecation) : null,
        }));
        return { items, next_cursor };
      },
    }),
    operation({
      ...named,
      method: 'put',
      id: 'deprecatePackageVersions',
      summary: 'Deprecate several hosted versions of a package, or all of them',
      action: 'write',
      body: deprecationsRequest,
      status: 204,
      run: async ({ owner, params: { id }, body: { versions, ...rest } }) => {
        const change = { deprecation: parseDeprecation(id!, rest) };
        await changeDeprecation(feed, owner, id!, versions, change);
      },
    }),
    operation({
      ...named,
      method: 'delete',
      id: 'undeprecatePackageVersions',
      summary: 'End the deprecation of several hosted versions of a package, or of all',
      action: 'write',
      query: versionsQuery,
      status: 204,
      run: async ({ owner, params: { id }, query: { versions } }) => {
        const chosen = typeof versions === 'string' ? 'all' : versions;
        await changeDeprecation(feed, owner, id!, chosen, { deprecation: undefined });
      },
    }),
  ];
}

const advisoryQuery = pageQuery.extend({
  package: z.string('expected one ID').min(1).max(100).optional().meta({ description: 'Only of this package' }),
});

/** `/advisories` */
function advisoryOperations(feed: FeedContext): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/advisories',
      id: 'listAdvisories',
      summary: 'List the advisories of the account on its hosted packages, the earliest first',
      action: 'read',
      query: advisoryQuery,
      status: 200,
      answer: advisoryList,
      run: async ({ principal, query }) => {
        requireHosted(principal);
        const filter = { packageId: query.package, only: principal.names?.of('package') };
        const { entries, next_cursor } = await readPage<Advisory, [number, string]>(query, {
          name: 'advisories',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each) => [each.createdAt, each.id],
          read: (limit, after) => listAdvisories(feed.database, principal.accountId, limit, after, filter),
        });
        return { items: entries.map(toAdvisory), next_cursor };
      },
    }),
    operation({
      method: 'post',
      path: '/advisories',
      id: 'createAdvisory',
      summary: 'Report a vulnerability of a hosted package. Clients warn of it when they restore the affected versions',
      action: 'write',
      body: advisoryRequest,
      status: 201,
      answer: advisory,
      run: async ({ principal, body: { package: packageId, ...rest } }) => {
        allow(principal, 'write', 'package', packageKey(packageId));
        return toAdvisory(await createAdvisory(feed, principal.accountId, { packageId, ...rest }));
      },
    }),
    operation({
      method: 'delete',
      path: '/advisories/:id',
      id: 'deleteAdvisory',
      summary: 'Delete an advisory. Clients no longer warn of it',
      action: 'write',
      params: { id: 'The ID of the advisory' },
      status: 204,
      run: ({ principal, params: { id } }) =>
        deleteAdvisory(feed, principal.accountId, id!, principal.names?.of('package')),
    }),
  ];
}

/** Throws `Unauthorized` for a reader that may read only mirrored content. */
function requireHosted(principal: Principal): void {
  if (!readsHosted(principal)) throw credentialMissing();
}

function toDeprecation({ reasons, message, alternatePackage }: HostedDeprecation): z.input<typeof deprecation> {
  return { reasons: [...reasons], message: message ?? null, alternative: alternatePackage ?? null };
}

function toAdvisory({ id, packageId, versions, severity, url, createdAt }: Advisory): z.input<typeof advisory> {
  return { id, package: packageId, versions, severity, url, created_at: timeOf(createdAt) };
}
