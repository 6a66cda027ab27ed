import { contextOf } from '../../http/request-context.ts';
import { cacheStatus } from '../../http/cache-status.ts';
import { sendJson } from '../../http/send.ts';
import { parseDigest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { mediaTypes } from '../format/manifest.ts';
import { parseTag } from '../format/reference.ts';
import { nextLink, pageSize, type RegistryCall } from './call.ts';

// Extensions of the registry (distribution-spec, "Extensions" and its document of the extension _oci).

const maxLines = 1000;

const extensions = [
  {
    name: '_oci',
    url: 'https://github.com/opencontainers/distribution-spec/blob/main/extensions/_oci.md',
    description: 'Discovery of extensions, and the history of tags (as the draft in pull request 606 says)',
    endpoints: ['/v2/_oci/ext/discover', '/v2/<name>/_oci/ext/discover', '/v2/<name>/_oci/tag-history/<tag>'],
  },
];

/** The extensions of the registry, and of each repository. */
export async function discover({ request, response }: RegistryCall): Promise<void> {
  sendJson(request, response, 200, { extensions }, cacheStatus('hosted'));
}

/** Which manifests a tag has had, the latest first: an index, which is empty for a tag or a repository without a history. */
export async function listTagHistory(call: RegistryCall): Promise<void> {
  const { request, response, name, ns, repository, item, query, history, until } = call;
  const tag = parseTag(item);
  const limit = pageSize(query, maxLines);
  const digest = query.get('digest') || undefined;
  const range = {
    after: lineIn(query),
    since: timeIn(query, 'since'),
    before: Math.min(timeIn(query, 'before') ?? Infinity, (until ?? Infinity) + 1),
    digest: digest && parseDigest(digest),
  };
  const context = contextOf(response);
  context.act = 'version-check';
  const page = await history.page(repository, tag, range, limit);
  // As for referrers: each name in usage is a row for ever.
  if (page.descriptors.length === 0) context.subject = '';
  const [since, before] = [query.get('since') ?? undefined, query.get('before') ?? undefined];
  const body = { schemaVersion: 2, mediaType: mediaTypes.index, manifests: page.descriptors };
  sendJson(request, response, 200, body, {
    ...cacheStatus(repository.place ? 'hit' : 'hosted'),
    'Content-Type': mediaTypes.index,
    ...(page.next !== undefined &&
      nextLink(`/v2/${name}/_oci/tag-history/${tag}`, { n: limit, last: page.next, since, before, digest, ns })),
  });
}

/** The line in `last`, which is from the `Link` of the page before. */
function lineIn(query: URLSearchParams): number | undefined {
  const text = query.get('last') || undefined;
  if (text === undefined) return undefined;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new DomainError('Invalid', '"last" has to be taken from the Link header of the previous page.');
}

/** A time in a query; milliseconds since 1970 UTC. */
function timeIn(query: URLSearchParams, name: 'since' | 'before'): number | undefined {
  const text = query.get(name) || undefined;
  if (text === undefined) return undefined;
  const time = /^\d{4}-\d\d-\d\dT/i.test(text) ? Date.parse(text) : NaN;
  if (!Number.isNaN(time)) return time;
  throw new DomainError('Invalid', `"${name}" has to be a time as in RFC 3339, such as 2026-09-01T12:00:00Z.`);
}
