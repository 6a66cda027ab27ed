import { listsOf } from '../../accounts/owner.ts';
import { byBytes } from '../../runtime/sorted.ts';
import { readsHosted } from '../../accounts/principal.ts';
import { contextOf } from '../../http/request-context.ts';
import { parseDigest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { readBody } from '../../http/body.ts';
import { cacheStatus } from '../../http/cache-status.ts';
import { sendLongJson } from '../../http/json-pieces.ts';
import { sendContent, sendJson } from '../../http/send.ts';
import { nextLink, pageSize, sendEmpty, type RegistryCall } from './call.ts';
import { isIndex, mediaTypes } from '../format/manifest.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import { isTag, parseReference, parseRepositoryName, parseTag, type Reference } from '../format/reference.ts';
import { parseReferrersCursor } from '../hosted/referrers.ts';

// Pull, content discovery and content management (distribution-spec); end-… are its endpoints.

const maxTags = 10_000;
/** The most tags of one push. */
const maxPushedTags = 50;
const maxRepositories = 1000;
const maxReferrers = 1000;

/** end-1: clients request it to learn how to authenticate. */
export async function probe({ request, response }: RegistryCall): Promise<void> {
  sendJson(request, response, 200, {}, cacheStatus('hosted'));
}

/** end-2 */
export async function getBlob(call: RegistryCall): Promise<void> {
  const { request, response, repository, item, readable } = call;
  const digest = parseDigest(item);
  const blob = await readable.openBlob(repository, digest, request.method === 'HEAD');
  const { served, content } = blob;
  contextOf(response).subject = blob.repository;
  await sendContent(request, response, content, {
    headers: { ...cacheStatus(served), 'Content-Type': 'application/octet-stream', 'Docker-Content-Digest': digest },
    etag: `"${digest}"`,
    ranges: true,
    redirect: true,
  });
}

/** end-3: the bytes and the media type that were pushed; `Accept` is ignored. */
export async function getManifest(call: RegistryCall): Promise<void> {
  const { request, response, repository, item, readable } = call;
  const manifest = await readable.openManifest(repository, existingReference(item), request.method === 'HEAD');
  const { served, digest, mediaType, content, firstSeenAt } = manifest;
  const context = contextOf(response);
  context.subject = manifest.repository;
  // An index alone is not a pull: the client then gets an image manifest.
  if (request.method === 'HEAD') context.act = 'version-check';
  else {
    context.version = digest;
    if (!isIndex(mediaType)) context.act = 'download';
  }
  await sendContent(request, response, content, {
    headers: {
      ...cacheStatus(served),
      'Content-Type': mediaType,
      'Docker-Content-Digest': digest,
      // Programs that update images wait until they are some days old by this date.
      ...(firstSeenAt !== undefined && { 'Last-Modified': new Date(firstSeenAt).toUTCString() }),
    },
    etag: `"${digest}"`,
  });
}

/** end-7a, end-7b */
export async function putManifest(call: RegistryCall): Promise<void> {
  const { request, response, repository, name, item, query, pushes, limits } = call;
  const reference = parseReference(item);
  const tags = tagsOf(reference, query.getAll('tag'));
  const bytes = await readBody(request, { limit: limits.manifest, idle: limits.uploadIdle });
  const context = contextOf(response);
  context.act = 'upload';
  context.received += bytes.length;
  const { digest, subject, warning } = await pushes.push(repository.accountId, name, {
    tags,
    digest: reference.digest,
    bytes,
    contentType: request.headers['content-type'],
  });
  context.version = digest;
  sendEmpty(response, 201, {
    Location: `/v2/${name}/manifests/${digest}`,
    'Docker-Content-Digest': digest,
    ...(subject && { 'OCI-Subject': subject }),
    ...(warning && { Warning: `299 - "${warning}"` }),
    ...(query.has('tag') && { 'OCI-Tag': tags.join(', ') }),
  });
}

/** The tags that a push names: the one in its path, and those in its query. `TagInvalid` if one is not valid, or for too many. */
function tagsOf({ tag: first }: Reference, more: readonly string[]): string[] {
  const tags = [...new Set([...(first === undefined ? [] : [first]), ...more])];
  if (tags.length > maxPushedTags) {
    throw new DomainError(
      'TagInvalid',
      `This push names ${tags.length} tags. At most ${maxPushedTags} can be pushed at once: send the manifest again with the others.`,
      { detail: { tags: tags.length, most: maxPushedTags } },
    );
  }
  for (const tag of tags) parseTag(tag);
  return tags;
}

/** end-9 */
export async function answerDelete({ response, repository, name, item, images }: RegistryCall): Promise<void> {
  await images.manifests.delete(repository.accountId, name, existingReference(item));
  sendEmpty(response, 202, {});
}

/** end-10 */
export async function deleteBlob({ response, repository, name, item, images }: RegistryCall): Promise<void> {
  await images.blobs.delete(repository.accountId, name, parseDigest(item));
  sendEmpty(response, 202, {});
}

/** end-8a, end-8b */
export async function answerTags(call: RegistryCall): Promise<void> {
  const { request, response, name, ns, repository, query, readable } = call;
  const limit = pageSize(query, maxTags);
  const last = query.get('last') ?? '';
  if (last !== '' && !isTag(last))
    throw new DomainError('Invalid', '"last" has to be a tag, as a page of this list ends.');
  contextOf(response).act = 'version-check';
  const { served, items, more } = await readable.listTags(repository, limit, last);
  const link = more && limit > 0 ? nextLink(`/v2/${name}/tags/list`, { n: limit, last: items.at(-1), ns }) : {};
  sendJson(request, response, 200, { name, tags: items }, { ...cacheStatus(served), ...link });
}

/** `_catalog`: not in the specification, but used by clients. */
export async function listRepositories({ request, response, principal, query, images }: RegistryCall): Promise<void> {
  const limit = pageSize(query, maxRepositories);
  const last = query.get('last') ?? '';
  if (last !== '') parseRepositoryName(last);
  const accounts = readsHosted(principal) ? listsOf(principal, 'container') : [];
  const pages = await Promise.all(
    accounts.map(({ accountId, only }) => images.repositories.catalog(accountId, limit, last, only)),
  );
  const found = [...new Set(pages.flatMap((page) => page.items))].sort(byBytes);
  const items = found.slice(0, limit);
  const more = found.length > limit || pages.some((page) => page.more);
  const link = more && limit > 0 ? nextLink('/v2/_catalog', { n: limit, last: items.at(-1) }) : {};
  sendJson(request, response, 200, { repositories: items }, { ...cacheStatus('hosted'), ...link });
}

/** end-12a, end-12b: an index, which is empty if there are no referrers or no such repository. */
export async function listReferrers(call: RegistryCall): Promise<void> {
  const { request, response, name, ns, repository, item, query, readable } = call;
  const subject = parseDigest(item);
  const artifactType = query.get('artifactType') || undefined;
  const limit = Math.max(1, pageSize(query, maxReferrers));
  const last = parseReferrersCursor(query.get('last') ?? '');
  const page = await readable.listReferrers(repository, subject, { artifactType, limit, last });
  // The list is empty for every name, also for an invented one, and each name in usage is a row for ever.
  if (page.descriptors.length === 0) contextOf(response).subject = '';
  const n = query.has('n') ? limit : undefined;
  const body = { schemaVersion: 2, mediaType: mediaTypes.index, manifests: page.descriptors };
  await sendLongJson(request, response, body, {
    ...cacheStatus(page.served),
    'Content-Type': mediaTypes.index,
    ...(artifactType && { 'OCI-Filters-Applied': 'artifactType' }),
    ...(page.next && nextLink(`/v2/${name}/referrers/${subject}`, { artifactType, n, last: page.next, ns })),
  });
}

/** The reference in a path of a read. `ManifestUnknown` for text that is not a valid tag, `DigestInvalid` for a malformed digest. */
function existingReference(item: string): Reference {
  if (!item.includes(':') && !isTag(item)) throw manifestUnknown({ tag: item.slice(0, 160) });
  return parseReference(item);
}
