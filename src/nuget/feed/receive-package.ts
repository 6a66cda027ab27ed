import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { allow } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import { contextOf } from '../../http/request-context.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { publish } from '../hosted/publish.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import { receiveFile } from './upload.ts';

export interface PublishingParts {
  feed: FeedContext;
  views: FeedViews;
  log: Logger;
}

/** A request with a package, whose sender may push. */
export interface Push {
  request: IncomingMessage;
  response: ServerResponse;
  principal: Principal;
}

/** A package that was published, with warnings for its publisher, each on one line. */
export interface PublishedPackage {
  id: string;
  /** Normalised. */
  version: string;
  warnings: string[];
}

/** Receives and publishes the package in the body of a request. Throws as `receiveFile` and `publish` do. */
export async function receivePackage({ feed, views, log }: PublishingParts, push: Push): Promise<PublishedPackage> {
  const { response, principal } = push;
  const { accountId } = principal;
  const context = contextOf(response);
  const { mirror } = await views.of(accountId);
  const staged = await receiveUpload(feed, push);
  const checks = { permit: permitting(push), mirroredFrom: (each: string) => mirror.mirroredFrom(each) };
  const { id, version, replaces: upstream, warnings } = await publish(feed, accountId, staged, checks);
  context.version = keyOfVersion(version)!;
  log.info({ request: context.id, id, version }, 'package published');
  if (upstream !== undefined) {
    log.warn({ account: accountId, id, upstream }, 'the pushed package now takes precedence over the mirrored one');
    warnings.push(`${id} was mirrored from ${upstream} until now; ${consequence(mirror.origin.isMerged(id))}.`);
  }
  return { id, version, warnings };
}

/** The file in the request's body, staged; its bytes count as received. */
export function receiveUpload({ blobs, limits }: FeedContext, { request, response }: Push): Promise<StagedFile> {
  const context = contextOf(response);
  const upload = { size: limits.nupkg, idle: limits.uploadIdle };
  return receiveFile(request, blobs, upload, (bytes) => (context.received += bytes));
}

/** Refuses ids that the principal is not allowed to push. The request then concerns the id, also if it fails. */
export function permitting({ principal, response }: Push): (id: string) => void {
  return (id) => {
    contextOf(response).subject = packageKey(id);
    allow(principal, 'write', 'package', packageKey(id));
  };
}

function consequence(isMerged: boolean): string {
  return isMerged
    ? 'from now on a version pushed here takes precedence over the same version there'
    : 'from now on only versions pushed here are served';
}
