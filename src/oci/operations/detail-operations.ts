import { jsonItem } from '../../runtime/json-item.ts';
import { z } from 'zod';
import { allow } from '../../accounts/allow.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { cursorOf, pageQuery, readCursor, readPage } from '../../api/framework/paging.ts';
import { containerDetails, manifestDetails, manifestList, tagList } from '../../api/content/content-schemas.ts';
import { dailyQuery } from '../../api/framework/sorted.ts';
import { originFields } from '../../api/framework/schemas.ts';
import type { Database } from '../../database/database.ts';
import { parseDigest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { dailyDownloads } from '../../usage/daily.ts';
import { describeManifest } from '../catalog/manifest-details.ts';
import { nameUnknown } from '../hosted/repositories.ts';
import type { StoredImages } from '../catalog/stored-images.ts';
import type { ListedTag } from '../catalog/repository.ts';

const name = 'Name of the image; its slashes may be percent-encoded';
const subject = { kind: 'container', param: 'name' } as const;

/** Manifests that are read for one page of those without a tag. */
const scanned = 2000;

const tagQuery = pageQuery.extend({
  attached: z.enum(['0', '1'], 'expected 0 or 1').default('1').meta({
    description: 'With 0, without the tags that clients make for signatures and others, such as `sha256-….sig`',
  }),
  q: z.string('expected one text').max(128).optional().meta({ description: 'Only tags that contain this text' }),
  order: z
    .enum(['asc', 'desc', 'newest', 'oldest', 'size', 'pulls'], 'expected asc, desc, newest, oldest, size or pulls')
    .default('asc')
    .meta({
      description:
        'The natural order, in which v2 is before v10, its reverse, or by the last push, the newest or the oldest first; by the time of storing if mirrored. By size or pulls the largest first: of a hosted image with at most 5,000 tags, and pulls only of a hosted one',
    }),
});

/** `/containers/<name>`: the tags and manifests of one image. They answer from what is stored, and fetch nothing. */
export function imageOperations(
  stored: StoredImages,
  { database, now }: { database: Database; now: () => number },
): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/containers/*name/tags',
      id: 'listTags',
      summary: 'List the tags of an image; of a mirrored image those that are stored here',
      action: 'read',
      params: { name },
      subject,
      query: tagQuery,
      status: 200,
      answer: tagList,
      run: async ({ principal, params, query }) => {
        const at = await stored.locate(principal, params['name']!);
        const { q = '', order } = query;
        const asked = { text: q.toLowerCase(), order, hidesAttached: query.attached === '0' };
        const { entries, next_cursor } = await readPage(query, {
          name: `tags/${order}`,
          key: z.tuple([order === 'asc' || order === 'desc' ? z.string() : z.int(), z.string()]).readonly(),
          keyOf: ({ key }: ListedTag) => key,
          read: (limit, after) => stored.tags(at, asked, limit, after),
        });
        const items = entries.map(({ key: _key, platforms, ...tag }) => ({
          ...jsonItem(tag),
          platforms: platforms ?? null,
        }));
        return { items, next_cursor };
      },
    }),
    operation({
      method: 'get',
      path: '/containers/*name/manifests',
      id: 'listUntaggedManifests',
      summary: 'List the manifests of an image without a tag, by digest. A page may be short, also before the last one',
      action: 'read',
      params: { name },
      subject,
      query: pageQuery,
      status: 200,
      answer: manifestList,
      run: async ({ principal, params, query }) => {
        const at = await stored.locate(principal, params['name']!);
        const list = { name: 'manifests', key: z.tuple([z.string()]) };
        const [after] = readCursor(query.cursor, list) ?? [''];
        const { items, next } = await at.manifests(scanned, after);
        const untagged = items.filter(({ isTagged }) => !isTagged);
        const shown = untagged.slice(0, query.limit);
        const last = untagged.length > shown.length ? shown.at(-1)!.digest : next;
        return {
          items: shown.map(({ isTagged: _isTagged, ...manifest }) => jsonItem(manifest)),
          next_cursor: last === undefined ? null : cursorOf(list.name, [last]),
        };
      },
    }),
    operation({
      method: 'get',
      path: '/containers/*name/manifests/:reference',
      id: 'getManifest',
      summary: 'Get one manifest: its layers and their history, its platforms, and what refers to it',
      action: 'read',
      params: { name, reference: 'The digest, or a tag' },
      subject,
      status: 200,
      answer: manifestDetails,
      run: async ({ principal, params }) => {
        const at = await stored.locate(principal, params['name']!);
        return describeManifest(stored, at, await stored.digestOf(at, params['reference']!));
      },
    }),
    operation({
      method: 'delete',
      path: '/containers/*name/manifests/:reference',
      // Else it is a tag of an image whose name ends with `manifests`. No tag has a colon.
      matches: (params) => params['reference']!.includes(':'),
      id: 'deleteManifest',
      summary:
        'Delete one manifest with its tags. A mirrored one needs the scope operate too, and is fetched again at the next pull',
      action: 'delete',
      params: { name, reference: 'The digest' },
      subject,
      status: 204,
      run: async ({ principal, params }) => {
        const at = await stored.locate(principal, params['name']!, 'delete');
        const digest = parseDigest(params['reference']!);
        await at.deleteManifest(digest, () => allow(principal, 'operate'));
      },
    }),
    // After the deletion of a manifest, whose path this one matches too.
    operation({
      method: 'delete',
      path: '/containers/*name/:tag',
      id: 'deleteTag',
      summary:
        'Delete one tag of a container image. Its manifest stays and can be pulled by digest. A mirrored tag needs the scope operate too, and is fetched again at the next pull',
      action: 'delete',
      subject,
      params: { name, tag: 'The tag' },
      status: 204,
      run: async ({ principal, params }) => {
        const tag = params['tag']!;
        const at = await stored.locate(principal, params['name']!, 'delete').catch((error: unknown) => {
          if (!isDomainError(error, 'NameUnknown')) throw error;
          return undefined;
        });
        if (await at?.deleteTag(tag, () => allow(principal, 'operate'))) return;
        throw new DomainError('NotFound', `This account has no image "${params['name']}" with a tag "${tag}".`);
      },
    }),
    operation({
      method: 'get',
      path: '/containers/*name',
      id: 'getContainer',
      summary: 'Get one image without its tags',
      action: 'read',
      params: { name },
      subject,
      query: dailyQuery,
      status: 200,
      answer: containerDetails,
      run: async ({ principal, params, query }) => {
        const at = await stored.locate(principal, params['name']!);
        const found = await at.summary();
        if (!found) throw nameUnknown(params['name']!);
        const { tags: _tags, upstream, ...summary } = found;
        const names = query.daily === '1' ? [found.name] : [];
        const dailyOf = await dailyDownloads(database, principal.accountId, 'container', names, now());
        const daily = query.daily === '1' && { daily_pulls: dailyOf(found.name) };
        return { ...jsonItem(summary), ...originFields(upstream), ...daily };
      },
    }),
  ];
}
