import type { Router } from 'express';
import { DomainError } from '../../errors.ts';
import { contextOf } from '../../http/request-context.ts';
import { sendContent, sendJson } from '../../http/send.ts';
import type { FileKind } from '../hosted/files.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import type { PackageSource } from '../package-source.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import { idOf, noFile, type Answering, type Call, type FeedParts } from './call.ts';
import { cachingDocuments, changing, immutable, type SendPackageDocument } from './documents.ts';
import { addRegistrations } from './registration-routes.ts';
import { serviceIndex } from './service-index.ts';
import { vulnerabilityIndex, vulnerabilityPage } from './vulnerabilities.ts';

/** The service index, the flat container, registrations and vulnerability data. */
export function addReading(router: Router, answering: Answering, { source, views }: FeedParts): void {
  const sendPackageDocument = cachingDocuments(source);
  addServiceIndex(router, answering);
  addFlatContainer(router, answering, source, sendPackageDocument);
  addRegistrations(router, answering, source, sendPackageDocument);
  addVulnerabilities(router, answering, source, views);
}

// https://learn.microsoft.com/nuget/api/service-index
function addServiceIndex(router: Router, answering: Answering): void {
  router.get(
    '/index.json',
    answering(
      'read',
      ({ request, response, addresses }) =>
        sendJson(request, response, 200, serviceIndex(addresses), { 'Cache-Control': 'private, no-cache' }),
      'version-check',
    ),
  );
}

// https://learn.microsoft.com/nuget/api/package-base-address-resource
function addFlatContainer(
  router: Router,
  answering: Answering,
  source: PackageSource,
  sendPackageDocument: SendPackageDocument,
): void {
  const sendVersions = (call: Call) =>
    sendPackageDocument(call, 'package', async (id, claimed) => {
      const found = await source.versionKeys(call.accountId, id, claimed);
      return found && { served: found.served, value: { versions: found.value } };
    });
  router.get('/package/:id/index.json', answering('read', sendVersions, 'version-check'));
  router.get(
    '/package/:id/:version/:file',
    answering('read', (call) => sendFile(source, call)),
  );
}

async function sendFile(source: PackageSource, { request, response, accountId, path }: Call): Promise<void> {
  const kind = kindOf(path);
  const file = kind && (await source.openFile(accountId, idOf(path), path['version']!, kind));
  if (!file) throw noFile(path);
  if (kind === 'nupkg' && request.method === 'GET') {
    const context = contextOf(response);
    context.act = 'download';
    context.version = keyOfVersion(path['version']!)!;
  }
  await sendContent(request, response, file.content, {
    headers: { 'Content-Type': file.type, ...immutable(file.served) },
    ...(file.digest && { etag: `"${file.digest}"` }),
    ranges: true,
  });
}

// https://learn.microsoft.com/nuget/api/vulnerability-info
function addVulnerabilities(router: Router, answering: Answering, source: PackageSource, views: FeedViews): void {
  router.get(
    '/vulnerabilities/index.json',
    answering('read', async ({ request, response, accountId, addresses }) => {
      const { vulnerabilities } = await views.of(accountId);
      const index = vulnerabilityIndex(addresses, await vulnerabilities.pages());
      sendJson(request, response, 200, index, changing('hosted'));
    }),
  );
  router.get(
    '/vulnerabilities/base.json',
    answering('read', ({ request, response }) => {
      sendJson(request, response, 200, vulnerabilityPage(), changing('hosted'));
    }),
  );
  router.get(
    '/vulnerabilities/:upstream/:name.json',
    answering('read', async ({ request, response, principal, accountId, path }) => {
      const { vulnerabilities } = await views.of(accountId);
      const page = await vulnerabilities.page(path['upstream']!, path['name']!);
      if (!page) throw new DomainError('NotFound', 'This page of vulnerability data does not exist.');
      // A hosted package is another one than the upstream's package of the same id.
      const closed = await source.closedAmong(accountId, Object.keys(page.value), page.upstream, { admitted: true });
      const only = principal.names?.package;
      const open = Object.entries(page.value).filter(([id]) => {
        const key = packageKey(id);
        return !closed.has(key) && (only?.includes(key) ?? true);
      });
      sendJson(request, response, 200, Object.fromEntries(open), changing(page.outcome));
    }),
  );
}

/** `{id}.{version}.nupkg`, `{id}.nuspec`, `readme` or `icon`; the names repeat the folders, in any spelling. */
function kindOf({ id = '', version = '', file = '' }: Record<string, string>): FileKind | undefined {
  const name = file.toLowerCase();
  const key = packageKey(id);
  if (name === 'readme' || name === 'icon') return name;
  if (name === `${key}.nuspec`) return 'nuspec';
  const number = name.startsWith(`${key}.`) && name.endsWith('.nupkg') ? name.slice(key.length + 1, -6) : undefined;
  return number !== undefined && keyOfVersion(number) === keyOfVersion(version) ? 'nupkg' : undefined;
}
