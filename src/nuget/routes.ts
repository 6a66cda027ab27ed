import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router, type RequestHandler } from 'express';
import type { Logger } from 'pino';
import { requireScope, type Scope } from '../accounts/principal.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../errors.ts';
import type { Authenticator } from '../http/authenticate.ts';
import { exchangeOf } from '../http/exchange.ts';
import { problem } from '../http/problem.ts';
import { admit } from '../http/quota.ts';
import type { Urls } from '../http/urls.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { Act } from '../usage/counters.ts';
import type { Quota } from '../usage/quota.ts';
import { Addresses } from './addresses.ts';
import { refuseErrors } from './errors.ts';
import type { Feed } from './feed.ts';
import type { MergedSearch } from './merged-search.ts';
import { addPublishing } from './publish-routes.ts';
import { addReading } from './read-routes.ts';
import { addSearching } from './search-routes.ts';
import { packageKey } from './packages.ts';
import type { PackageSource } from './source.ts';
import type { PackageMirror } from './upstream.ts';
import type { UpstreamSymbols } from './upstream-symbols.ts';
import type { UpstreamVulnerabilities } from './upstream-vulnerabilities.ts';

export interface FeedParts {
  feed: Feed;
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

/** Who asks, from where, and for what. */
export interface Asked {
  request: IncomingMessage;
  response: ServerResponse;
  accountId: number;
  addresses: Addresses;
  /** Parameters of the path, decoded. */
  path: Record<string, string>;
}

/** A handler for whoever has the scope; `act` is what the request counts as. */
export type Answering = (scope: Scope, answer: (asked: Asked) => void | Promise<void>, act?: Act) => RequestHandler;

/** The package feed, mounted at `/v3`. https://learn.microsoft.com/nuget/api/overview */
export function createFeed(parts: FeedParts): Router {
  const { authenticator, urls, quota } = parts;
  const answering: Answering = (scope, answer, act) => async (request, response) => {
    const principal = await authenticator.principalOf(request, { apiKey: true });
    const exchange = exchangeOf(response);
    exchange.principal = principal;
    exchange.route = `/v3${String(request.route.path)}`;
    // Who is anonymous may have a token that would do; a challenge asks for it.
    if (principal.kind === 'anonymous' && !principal.scopes.has(scope)) {
      throw new DomainError('Unauthorized', `This needs an API token with the scope "${scope}".`);
    }
    requireScope(principal, scope);
    if (request.method === 'PUT') await admit(quota, request, response, principal);
    const addresses = new Addresses(urls.of(request).feed);
    const path = request.params as Record<string, string>;
    exchange.kind = 'package';
    exchange.subject = packageKey(path['id'] ?? '');
    exchange.act = act;
    await answer({ request, response, accountId: principal.accountId, addresses, path });
  };
  const router = Router();
  addReading(router, answering, parts);
  addSearching(router, answering, parts);
  addPublishing(router, answering, parts);
  router.use(refuseErrors);
  return router;
}

/** Answers every method that a path does not take. */
export function refuseMethods(router: Router, path: string, allow: string): void {
  router.all(path, (request, response) => {
    response.setHeader('Allow', allow);
    problem(request, response, 405, 'MethodNotAllowed', `This address takes ${allow}.`);
  });
}
