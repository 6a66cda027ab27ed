import { exchangeOf } from '../http/exchange.ts';
import { parseDigest } from '../digest.ts';
import { isDomainError } from '../errors.ts';
import { readBody } from '../http/body.ts';
import { sendContent, sendJson } from '../http/send.ts';
import { hosted, nextLink, pageSize, sendEmpty, type Call } from './call.ts';
import { isIndex, mediaTypes } from './manifest.ts';
import { parseReference, parseRepositoryName, parseTag, type Reference } from './reference.ts';
import { parseReferrersCursor } from './referrers.ts';

// Pull, content discovery and content management (distribution-spec); end-… are its endpoints.

const mostTags = 10_000;
const mostRepositories = 1000;
const mostReferrers = 1000;

/** end-1: the probe by which clients find out how to authenticate. */
export async function probe({ request, response }: Call): Promise<void> {
  sendJson(request, response, 200, {});
}

/** end-2 */
export async function getBlob({ request, response, principal, name, item, images, limits }: Call): Promise<void> {
  const digest = parseDigest(item);
  const content = await images.blobs.open(principal.accountId, name, digest);
  await sendContent(request, response, content, {
    headers: { ...hosted, 'Content-Type': 'application/octet-stream', 'Docker-Content-Digest': digest },
    etag: `"${digest}"`,
    ranges: true,
    idle: limits.uploadIdle,
  });
}

/** end-3: the bytes and the type that were pushed, whatever `Accept` says. */
export async function getManifest({ request, response, principal, name, item, images }: Call): Promise<void> {
  const manifest = await images.manifests.open(principal.accountId, name, readableReference(item));
  const { digest, mediaType, content, repositoryId } = manifest;
  await sendContent(request, response, content, {
    headers: { ...hosted, 'Content-Type': mediaType, 'Docker-Content-Digest': digest },
    etag: `"${digest}"`,
  });
  if (request.method === 'GET' && response.statusCode === 200 && !isIndex(mediaType)) images.countPull(repositoryId);
}

/** end-7a, end-7b */
export async function putManifest(call: Call): Promise<void> {
  const { request, response, principal, name, item, query, images, limits } = call;
  const reference = parseReference(item);
  const tags = [...new Set([...(reference.tag === undefined ? [] : [reference.tag]), ...query.getAll('tag')])];
  for (const tag of tags) parseTag(tag);
  const bytes = await readBody(request, { limit: limits.manifest, idle: limits.uploadIdle });
  exchangeOf(response).received += bytes.length;
  const { digest, subject } = await images.manifests.push(
    principal.accountId,
    name,
    tags,
    reference.digest,
    bytes,
    request.headers['content-type'],
  );
  sendEmpty(response, 201, {
    Location: `/v2/${name}/manifests/${digest}`,
    'Docker-Content-Digest': digest,
    ...(subject && { 'OCI-Subject': subject }),
    ...(query.has('tag') && { 'OCI-Tag': tags.join(', ') }),
  });
}

/** end-9 */
export async function deleteManifest({ response, principal, name, item, images }: Call): Promise<void> {
  await images.manifests.delete(principal.accountId, name, readableReference(item));
  sendEmpty(response, 202, {});
}

/** end-10 */
export async function deleteBlob({ response, principal, name, item, images }: Call): Promise<void> {
  await images.blobs.delete(principal.accountId, name, parseDigest(item));
  sendEmpty(response, 202, {});
}

/** end-8a, end-8b */
export async function listTags({ request, response, principal, name, query, images }: Call): Promise<void> {
  const limit = pageSize(query, mostTags);
  const last = query.get('last') ?? '';
  if (last !== '') parseTag(last);
  const { items, more } = await images.repositories.tags(principal.accountId, name, limit, last);
  const link = more && limit > 0 ? nextLink(`/v2/${name}/tags/list`, { n: limit, last: items.at(-1) }) : {};
  sendJson(request, response, 200, { name, tags: items }, { ...hosted, ...link });
}

/** `_catalog`: not in the specification, but clients ask for it. */
export async function listRepositories({ request, response, principal, query, images }: Call): Promise<void> {
  const limit = pageSize(query, mostRepositories);
  const last = query.get('last') ?? '';
  if (last !== '') parseRepositoryName(last);
  const { items, more } = await images.repositories.catalog(principal.accountId, limit, last);
  const link = more && limit > 0 ? nextLink('/v2/_catalog', { n: limit, last: items.at(-1) }) : {};
  sendJson(request, response, 200, { repositories: items }, { ...hosted, ...link });
}

/** end-12a, end-12b: an index, empty where there is nothing, even for a repository that does not exist. */
export async function listReferrers({ request, response, principal, name, item, query, images }: Call): Promise<void> {
  const subject = parseDigest(item);
  const artifactType = query.get('artifactType') || undefined;
  const limit = Math.max(1, pageSize(query, mostReferrers));
  const last = parseReferrersCursor(query.get('last') ?? '');
  const page = await images.referrers.list(principal.accountId, name, subject, { artifactType, limit, last });
  const n = query.has('n') ? limit : undefined;
  const body = { schemaVersion: 2, mediaType: mediaTypes.index, manifests: page.descriptors };
  sendJson(request, response, 200, body, {
    ...hosted,
    'Content-Type': mediaTypes.index,
    ...(artifactType && { 'OCI-Filters-Applied': 'artifactType' }),
    ...(page.next && nextLink(`/v2/${name}/referrers/${subject}`, { artifactType, n, last: page.next })),
  });
}

/** What cannot be a tag names no manifest; only a malformed digest is the asker's error. */
function readableReference(item: string): Reference {
  try {
    return parseReference(item);
  } catch (error) {
    if (isDomainError(error, 'TagInvalid')) return { tag: item };
    throw error;
  }
}
