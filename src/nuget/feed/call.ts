import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestHandler, Router } from 'express';
import type { Logger } from 'pino';
import type { Scope, Principal } from '../../accounts/principal.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Authenticator, CredentialRules } from '../../http/authenticate.ts';
import type { Cost } from '../../http/limit.ts';
import { problem } from '../../http/problem.ts';
import type { Urls } from '../../http/urls.ts';
import type { UsageAction } from '../../usage/counters.ts';
import type { Quota } from '../../usage/quota.ts';
import type { Addresses } from './addresses.ts';
import { isPackageId } from '../format/nuspec.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { packageKey } from '../hosted/packages.ts';
import type { MergedSearch } from '../source/merged-search.ts';
import type { PackageSource } from '../source/package-source.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import type { Takeover } from '../../takeover/takeover.ts';
import type { UpstreamSymbols } from '../source/symbols.ts';

export interface FeedParts {
  feed: FeedContext;
  views: FeedViews;
  source: PackageSource;
  search: MergedSearch;
  symbols: UpstreamSymbols;
  authenticator: Authenticator;
  quota: Quota;
  urls: Urls;
  takeover: Pick<Takeover, 'bring' | 'isClosed'>;
  log: Logger;
}

/** A request that was routed, authenticated and allowed. */
export interface FeedCall {
  request: IncomingMessage;
  response: ServerResponse;
  principal: Principal;
  accountId: number;
  addresses: Addresses;
  /** What the feed at this address serves. */
  source: PackageSource;
  /** Whether it is the feed as of a date. Clients ask for all of it again, because something may be refused by now. */
  isPast: boolean;
  /** Decoded parameters of the path. */
  path: Record<string, string>;
}

/**
 * Makes a route's handler: `scope` is the scope it needs, `act` is how usage counts the request, `cost` what it costs,
 * `rules` how it takes credentials besides the feed's own rules.
 */
export type Answering = (
  scope: Scope,
  answer: (call: FeedCall) => void | Promise<void>,
  act?: UsageAction,
  cost?: Cost,
  rules?: Pick<CredentialRules, 'anyUser'>,
) => RequestHandler;

/** Answers 405 to every method that a path does not allow. */
export function refuseMethods(router: Router, path: string, allow: string): void {
  router.all(path, (request, response) => {
    response.setHeader('Allow', allow);
    problem(request, response, 405, 'MethodNotAllowed', `This address allows only ${allow}.`);
  });
}

/** The id in a path, in lower case; throws `NotFound` when it cannot be an id. */
export function idOf(path: Record<string, string>): string {
  const id = path['id']!;
  if (isPackageId(id)) return packageKey(id);
  throw noPackage(path);
}

export function noPackage({ id }: Record<string, string>): DomainError {
  return new DomainError('NotFound', `The package ${id!.slice(0, 100)} does not exist in this feed.`);
}

/** Of a version, or of a file of a version. */
export function noFile({ id, version }: Record<string, string>): DomainError {
  return new DomainError('NotFound', `${id!.slice(0, 100)} ${version!.slice(0, 100)} has no such file in this feed.`);
}
