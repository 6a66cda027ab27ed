import { cacheStatus } from '../../http/cache-status.ts';
import type { Router } from 'express';
import { contextOf } from '../../http/request-context.ts';
import { sendContent } from '../../http/send.ts';
import { digestOf } from '../../runtime/digest.ts';
import { contentOf } from '../../storage/files/content.ts';
import type { FileKind } from '../hosted/files.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { idOf, noFile, type Answering, type FeedCall, type FeedParts } from './call.ts';
import { cachingDocuments, changing, immutable, type SendPackageDocument } from './documents.ts';
import { addRegistrations } from './registration-routes.ts';
import { serviceIndex } from './service-index.ts';
import { addVulnerabilities } from './vulnerability-routes.ts';

/** The service index, the flat container, registrations and vulnerability data. */
export function addReading(router: Router, answering: Answering, parts: FeedParts): void {
  const sendPackageDocument = cachingDocuments();
  addServiceIndex(router, answering);
  addFlatContainer(router, answering, sendPackageDocument);
  addRegistrations(router, answering, sendPackageDocument);
  addVulnerabilities(router, answering, parts);
}

// https://learn.microsoft.com/nuget/api/service-index
function addServiceIndex(router: Router, answering: Answering): void {
  router.get('/index.json', answering('read', sendServiceIndex, 'version-check'));
}

async function sendServiceIndex({ request, response, addresses, isPast }: FeedCall): Promise<void> {
  const bytes = Buffer.from(JSON.stringify(serviceIndex(addresses, isPast)));
  await sendContent(request, response, contentOf(bytes), {
    headers: { ...cacheStatus('hosted'), 'Content-Type': 'application/json', 'Cache-Control': 'private, no-cache' },
    ...(isPast && { etag: `"${digestOf(bytes)}"` }),
  });
}

// https://learn.microsoft.com/nuget/api/package-base-address-resource
function addFlatContainer(router: Router, answering: Answering, sendPackageDocument: SendPackageDocument): void {
  const sendVersions = (call: FeedCall) =>
    sendPackageDocument(call, 'package', async (id, claimed) => {
      const found = await call.source.versionKeys(call.accountId, id, claimed);
      return found && { served: found.served, value: { versions: found.value } };
    });
  router.get('/package/:id/index.json', answering('read', sendVersions, 'version-check'));
  router.get('/package/:id/:version/:file', answering('read', sendFile));
}

async function sendFile({ request, response, accountId, source, isPast, path }: FeedCall): Promise<void> {
  const kind = kindOf(path);
  const file = kind && (await source.openFile(accountId, idOf(path), path['version']!, kind));
  if (!file) throw noFile(path);
  if (kind === 'nupkg' && request.method === 'GET') {
    const context = contextOf(response);
    context.act = 'download';
    context.version = keyOfVersion(path['version']!)!;
  }
  await sendContent(request, response, file.content, {
    headers: { 'Content-Type': file.type, ...(isPast ? changing(file.served) : immutable(file.served)) },
    ...(file.digest && { etag: `"${file.digest}"` }),
    ranges: true,
    redirect: kind === 'nupkg',
  });
}

/** `{id}.{version}.nupkg`, `{id}.nuspec`, `readme` or `icon`; the names repeat the folders, in any spelling. */
function kindOf({ id, version, file }: Record<string, string>): FileKind | undefined {
  const name = file!.toLowerCase();
  const key = packageKey(id!);
  if (name === 'readme' || name === 'icon') return name;
  if (name === `${key}.nuspec`) return 'nuspec';
  const number = name.startsWith(`${key}.`) && name.endsWith('.nupkg') ? name.slice(key.length + 1, -6) : undefined;
  return number !== undefined && keyOfVersion(number) === keyOfVersion(version!) ? 'nupkg' : undefined;
}
