import type { Router } from 'express';
import { z } from 'zod';
import { allow } from '../../accounts/allow.ts';
import { check } from '../../api/framework/operation.ts';
import { parseJson, readBody } from '../../http/body.ts';
import { contextOf } from '../../http/request-context.ts';
import { sendJson } from '../../http/send.ts';
import { parseDeprecation, wrong, type DeprecationInput, type DeprecationReason } from '../format/deprecation.ts';
import { normalize, parseVersion } from '../format/version.ts';
import { changeDeprecation } from '../hosted/deprecations.ts';
import { packageKey } from '../hosted/packages.ts';
import { refuseMethods, type Answering, type FeedParts } from './call.ts';

/** Largest body, in bytes. */
const bodyLimit = 64 * 1024;

const flag = z.boolean().nullish();
const text = z.string().nullish();

/** Most versions of one request. */
const maxVersions = 1000;

/** The body of the public gallery's API. Fields that are not known are ignored, as there. */
const galleryRequest = z.object({
  versions: z.array(z.string()).max(maxVersions),
  isLegacy: flag,
  hasCriticalBugs: flag,
  isOther: flag,
  alternatePackageId: text,
  alternatePackageVersion: text,
  message: text,
  listedVerb: z.enum(['Unchanged', 'Unlist', 'Relist']).nullish(),
});
type GalleryRequest = z.output<typeof galleryRequest>;

/**
 * Deprecation with the clients of the public gallery.
 * https://learn.microsoft.com/nuget/api/package-publish-resource#deprecate-or-undeprecate-a-package
 */
export function addDeprecation(router: Router, answering: Answering, { feed }: FeedParts): void {
  router.put(
    '/push/:id/deprecations',
    answering('write', async ({ request, response, principal, accountId, path }) => {
      const id = path['id']!;
      const bytes = await readBody(request, { limit: bodyLimit, idle: feed.limits.uploadIdle });
      contextOf(response).received = bytes.length;
      const body = check(galleryRequest, parseJson(request, bytes), 'body');
      // As for the request that unlists one version.
      if (body.listedVerb === 'Unlist') allow(principal, 'delete', 'package', packageKey(id));
      const input = inputOf(body);
      await changeDeprecation(feed, accountId, id, body.versions, {
        deprecation: input && parseDeprecation(id, input),
        listed: body.listedVerb === 'Unlist' ? false : body.listedVerb === 'Relist' ? true : undefined,
      });
      sendJson(request, response, 200, {});
    }),
  );
  refuseMethods(router, '/push/:id/deprecations', 'PUT');
}

/** Undefined for a request without a reason, which ends the deprecation. */
function inputOf(body: GalleryRequest): DeprecationInput | undefined {
  const reasons: DeprecationReason[] = [];
  if (body.isLegacy) reasons.push('Legacy');
  if (body.hasCriticalBugs) reasons.push('CriticalBugs');
  if (body.isOther) reasons.push('Other');
  if (reasons.length === 0) return undefined;
  const { alternatePackageId: id, alternatePackageVersion: version, message } = body;
  if (!id && version) throw wrong('alternatePackageId', 'A version of the alternative package needs its ID.');
  return { reasons, message, alternative: id ? { id, range: version ? fromVersion(version) : undefined } : undefined };
}

/** The gallery shows one version as a range that starts with it. */
function fromVersion(text: string): string {
  const version = parseVersion(text);
  if (!version) throw wrong('alternatePackageVersion', 'The version of the alternative package is not valid.');
  return `[${normalize(version)}, )`;
}
