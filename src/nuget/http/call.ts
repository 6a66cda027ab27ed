import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestHandler, Router } from 'express';
import type { Logger } from 'pino';
import type { Scope, Principal } from '../../accounts/principal.ts';
import type { Config } from '../../config/schema.ts';
import type { Authenticator } from '../../http/authenticate.ts';
import { problem } from '../../http/problem.ts';
import type { Urls } from '../../http/urls.ts';
import type { BlobStore } from '../../storage/blob-store.ts';
import type { UsageAction } from '../../usage/counters.ts';
import type { Quota } from '../../usage/quota.ts';
import type { Addresses } from './addresses.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import type { MergedSearch } from '../search/merged-search.ts';
import type { PackageSource } from '../package-source.ts';
import type { PackageMirror } from '../upstream/package-mirror.ts';
import type { UpstreamSymbols } from '../upstream/upstream-symbols.ts';
import type { UpstreamVulnerabilities } from '../upstream/upstream-vulnerabilities.ts';

export interface FeedParts {
  feed: FeedContext;
  mirror: PackageMirror;
  source: PackageSource;
  search: MergedSearch;
  vulnerabilities: UpstreamVulnerabilities;
  symbols: UpstreamSymbols;
  blobs: BlobStore;
  authenticator: Authenticator;
  quota: Quota;
  urls: Urls;
  limits: Config['limits'];
  log: Logger;
}

/** One request that has been routed, authenticated and allowed. */
export interface Call {
  request: IncomingMessage;
  response: ServerResponse;
  principal: Principal;
  accountId: number;
  addresses: Addresses;
  /** Parameters of the path, decoded. */
  path: Record<string, string>;
}

/** Makes a route of a handler: `scope` is what it takes, `act` what a request counts as. */
export type Answering = (
  scope: Scope,
  answer: (call: Call) => void | Promise<void>,
  act?: UsageAction,
) => RequestHandler;

/** Answers every method that a path does not take. */
export function refuseMethods(router: Router, path: string, allow: string): void {
  router.all(path, (request, response) => {
    response.setHeader('Allow', allow);
    problem(request, response, 405, 'MethodNotAllowed', `This address takes ${allow}.`);
  });
}
