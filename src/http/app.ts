import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router, type Request, type Response } from 'express';
import type { Logger } from 'pino';
import { tokenIdOf } from '../accounts/principal.ts';
import type { Config } from '../config/schema.ts';
import type { ErrorName } from '../runtime/errors.ts';
import { isBillable } from '../usage/counters.ts';
import type { Limits } from '../limits/limits.ts';
import type { ClientChecks } from '../usage/client-checks.ts';
import type { FailedRequests } from '../usage/failed-requests.ts';
import type { TokenUses } from '../usage/token-uses.ts';
import type { UsageRecord } from '../usage/record.ts';
import type { Aliases } from './aliases.ts';
import { writeAccess, type AccessLine } from './access-log.ts';
import { authorizationOf } from './authenticate.ts';
import { drain } from './drain.ts';
import { refuse, type Refusals } from './edge.ts';
import { currentResponse, runInContext, type AppResponse, type RequestContext } from './request-context.ts';
import { Hosts, isOfOperations } from './hosts.ts';
import type { Probes } from './probes.ts';
import { Proxies } from './proxies.ts';
import { problem, sendProblem } from './problem.ts';
import type { Sending } from './sending.ts';
import { cutSlowAnswer } from './slow-body.ts';
import { isHost, originForm, splitTarget } from './target.ts';

/** Answers a request. A rejection is a bug: it is logged and answered with 500. */
export type HttpHandler = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** What answers the requests below a path: a handler, or a router of Express, which costs more for each request. */
export type Mount = {
  path: string;
  /** Answers a request that a page of another site sent; a problem document by default. */
  refuseOtherSite?: (request: IncomingMessage, response: ServerResponse, message: string) => void;
} & ({ answer: HttpHandler } | { router: Router });

interface Observers {
  aliases: Aliases;
  log: Logger;
  observe: Probes;
  usage: UsageRecord;
  failures: FailedRequests;
  uses: TokenUses;
  checks: ClientChecks;
  limits: Limits;
  sending: Sending;
  now: () => number;
}

/** Machines ask these each few seconds, so a success is logged only with the level `debug`. */
const probes: ReadonlySet<string> = new Set(['/livez', '/readyz']);
const otherHost =
  'This server has another host name. Its operator can add this one to the setting server.hosts (ENTREPOT_HOSTS).';
const otherSite =
  'A page of another site sent this form, so nothing was changed. Open the page of this server and send it there.';

/** All of HTTP on a port: what is mounted there, and one access log. */
export function createApp(
  config: Config,
  mounts: readonly Mount[],
  observers: Observers,
): (request: IncomingMessage, response: AppResponse) => void {
  const proxies = new Proxies(config.server.trustProxy);
  const { aliases } = observers;
  const hosts = new Hosts(config.server, aliases);
  // The readers of bodies notice silence before, and their refusal can say so.
  const slowest = { rate: config.limits.uploadRate, period: 2 * config.limits.uploadIdle };
  const direct = mounts.filter((each) => 'answer' in each);
  const router = Router({ caseSensitive: true });
  for (const each of mounts) if ('router' in each) router.use(each.path, each.router);

  const dispatch = (request: IncomingMessage, response: AppResponse, asked: string): void => {
    let target = asked;
    const fail = (error: unknown) => answerFailure(observers.log, request, response, error);
    const host = proxies.hostOf(request);
    // HTTP/1.0 needs no Host (RFC 9112, 3.2). Load balancers that only look whether a server is ready send it.
    const isProbe = host === undefined && request.httpVersion === '1.0' && isOfOperations(target);
    if (!isProbe && !isHost(request, host)) {
      problem(request, response, 400, 'Invalid', 'The Host header is missing, malformed, or there is more than one.');
      return;
    }
    if (!isProbe && !hosts.serves(host!, target)) {
      problem(request, response, 421, 'Misdirected', otherHost);
      return;
    }
    if (response.writes && hosts.isFromOtherSite(request)) {
      const refusing = mounts.find((each) => each.refuseOtherSite && isUnder(target, each.path));
      if (refusing) refusing.refuseOtherSite!(request, response, otherSite);
      else problem(request, response, 403, 'OtherSite', otherSite);
      return;
    }
    const aliased = aliases.find(request.method!, host ?? '', target);
    if (aliased) {
      request.url = target = aliased.target;
      response.renamed = aliased.renamed;
      response.onlyAccount = aliased.account;
    }
    const mount = direct.find(({ path }) => isUnder(target, path));
    if (mount) {
      mount.answer(request, response).catch(fail);
      return;
    }
    router(request as Request, response as ServerResponse as Response, (error: unknown) => {
      if (error) fail(error);
      else problem(request, response, 404, 'NotFound', 'There is nothing at this address.');
    });
  };
  const isShuttingDown = () => observers.observe.isShuttingDown;
  return (request, response) => {
    const { context } = response;
    response.idle = config.limits.uploadIdle;
    response.limits = observers.limits;
    response.sending = observers.sending;
    if (slowest.rate > 0) cutSlowAnswer(response, slowest);
    response.mustClose = isShuttingDown;
    if (isFramedInDoubt(request)) response.mustClose = always;
    const target = originForm(request.url!);
    request.url = target;
    context.remote = proxies.remoteOf(request);
    response.on('close', () => {
      const seconds = (performance.now() - context.startedAt) / 1000;
      try {
        record(observers, request, response, { path: splitTarget(target).path, target, seconds });
      } catch (error) {
        observers.log.error({ err: error, request: context.id }, 'a request could not be recorded');
      }
      if (!request.complete) drain(request, { idle: config.limits.uploadIdle });
    });
    runInContext(response, () => dispatch(request, response, target));
  };
}

const always = (): boolean => true;

/**
 * Whether a proxy may have read another end of the body: HTTP/1.0 has no `Transfer-Encoding` (RFC 9112, 6.1). What follows on the
 * connection is then no request.
 */
function isFramedInDoubt({ httpVersion, headers }: IncomingMessage): boolean {
  return httpVersion === '1.0' && headers['transfer-encoding'] !== undefined;
}

function isUnder(target: string, prefix: string): boolean {
  if (!target.startsWith(prefix)) return false;
  const next = target[prefix.length];
  return next === undefined || next === '/' || next === '?';
}

/** Fields of the access log that are not in the request context. */
interface RequestFacts {
  path: string;
  target: string;
  seconds: number;
}

/** Counts a finished request and writes one JSON line. It contains no `Authorization` header, so never a token. */
function record(
  { log, observe, usage, failures, uses, checks, now }: Observers,
  request: IncomingMessage,
  response: AppResponse,
  facts: RequestFacts,
): void {
  const { context } = response;
  observe.count(request.method!, response.statusCode, facts.seconds, context);
  const line = accessLine(request, response, facts, now());
  const { principal } = context;
  if (principal && line.billable) usage.count(principal.accountId, line, context.version, principal);
  // The console uses a token in the place of its visitor; its sessions are listed by themselves.
  if (principal?.kind === 'token' && !isUnder(line.path, '/console')) {
    const { accountId, tokenId, publisherId } = principal;
    uses.note(accountId, publisherId ?? tokenId, line, `${line.remote} ${line.agent ?? ''}`);
  }
  noteFailure(failures, line, context);
  noteCheck(checks, facts.target, request, line, context);
  const isProbe = line.method === 'GET' && line.status === 200 && probes.has(line.path);
  if (!isProbe || log.isLevelEnabled('debug')) writeAccess(log, line);
  if (context.fetching === 0) return;
  // The client disconnected, and the mirror continues its downloads.
  context.fetchedLater = (fetched) => {
    const { request: id, status, account, token, kind, subject, billable } = line;
    const later = { request: id, at: now(), status, fetched, account, token, kind, subject, billable };
    if (principal && billable) usage.countFetched(principal.accountId, later);
    log.info(later, 'fetched');
  };
}

/** Counts a request of a known client for a package or image that failed. */
function noteFailure(
  failures: FailedRequests,
  { status, kind, subject, act, method, token }: AccessLine,
  { id: requestId, principal, asked, failure }: RequestContext,
): void {
  // Of the other reads, such as of a missing icon, clients show nothing.
  const name = asked?.name ?? (act === 'upload' ? subject : '');
  if (!principal || !failure || kind === 'other' || name === '' || status === 401) return;
  // A push asks what is there, and expects that nothing is.
  if (status === 404 && method === 'HEAD' && principal.scopes.has('write')) return;
  const { accountId } = principal;
  const reference = asked?.reference ?? '';
  failures.note({ accountId, kind, name, reference, tokenId: token ?? null, status, ...failure, requestId });
}

/** Notes a request for which a check of clients waits. */
function noteCheck(
  checks: ClientChecks,
  target: string,
  { headers }: IncomingMessage,
  { status, kind, remote, agent, token }: AccessLine,
  { principal, asked, failure }: RequestContext,
): void {
  const accountId = principal?.accountId ?? null;
  checks.note(target, asked && accountId !== null ? { accountId, kind, ...asked } : undefined, () => ({
    status,
    reason: failure?.reason ?? null,
    hasCredential: authorizationOf({ headers }) !== undefined || headers['x-nuget-apikey'] !== undefined,
    agent: agent ?? '',
    address: remote ?? '',
    host: headers.host ?? '',
    path: target,
    accountId,
    tokenId: token ?? null,
  }));
}

/** `entrepot usage reconcile` computes usage from these lines. */
function accessLine(
  request: IncomingMessage,
  response: AppResponse,
  { path, seconds }: RequestFacts,
  at: number,
): AccessLine {
  const { statusCode: status, context } = response;
  const { principal, remote, received, fetched, kind, subject, act, cache } = context;
  return {
    request: context.id,
    at,
    method: request.method!,
    path,
    status,
    complete: response.writableFinished,
    seconds: Math.round(seconds * 1e6) / 1e6,
    received,
    sent: context.sent + context.redirected,
    fetched,
    remote,
    agent: request.headers['user-agent'],
    account: principal?.accountName,
    token: tokenIdOf(principal),
    kind,
    subject,
    act,
    cache,
    // A page of the console is no use of the account; a file that is downloaded or published with it is.
    billable: principal !== undefined && isBillable(status) && (act !== undefined || !isUnder(path, '/console')),
  };
}

/**
 * Handles a rejected promise that no code has caught: logs it, and answers its request with 500 unless an answer has
 * begun. It does not interrupt an answer that has begun, because the rejected work may be unrelated to it.
 */
export function answerUnhandled(log: Logger, error: unknown): void {
  const response = currentResponse();
  if (response && !response.headersSent) answerFailure(log, response.req, response, error);
  else log.error({ err: error, request: response?.context.id }, 'a promise was rejected and no code caught it');
}

/** The status of errors that concern no interface: of `/metrics`, and of a request that could not reach its interface. */
const statuses: Partial<Record<ErrorName, number>> = {
  Unauthorized: 401,
  TooManyRequests: 429,
  DatabaseUnavailable: 503,
  StorageUnavailable: 503,
};

const failures: Omit<Refusals<undefined>, 'log'> = {
  statusOf: ({ name }) => statuses[name],
  challenge: () => 'Basic realm="Entrepot"',
  refuse: sendProblem,
};

/** Answers a request that no interface has answered: a malformed path, or a bug. Never sends a stack trace. */
function answerFailure(log: Logger, request: IncomingMessage, response: ServerResponse, error: unknown): void {
  const { status = 500 } = (error ?? {}) as { status?: number };
  if (status < 500 && !response.headersSent) {
    problem(request, response, status, 'Invalid', 'The request is malformed.');
    return;
  }
  void refuse({ ...failures, log }, undefined, request, response, error);
}
