import { Router, type Request } from 'express';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { parse } from 'node:querystring';
import type { Logger } from 'pino';
import { allow } from '../accounts/allow.ts';
import type { Principal } from '../accounts/principal.ts';
import type { CookieKey } from '../accounts/cookie-key.ts';
import type { Sessions } from '../accounts/sessions.ts';
import { statusOf } from '../api/framework/errors.ts';
import { sendFile } from '../http/send-file.ts';
import type { Api } from '../api/operations.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import { inTime } from '../runtime/in-time.ts';
import type { Mount } from '../http/app.ts';
import { readBody } from '../http/body.ts';
import type { Authenticator } from '../http/authenticate.ts';
import { answerOrRefuse, type Refusals } from '../http/edge.ts';
import { sendBytes } from '../http/send.ts';
import { limitAttempt, limitCost } from '../http/limit.ts';
import { alwaysSend, contextOf } from '../http/request-context.ts';
import { splitTarget } from '../http/target.ts';
import type { Urls } from '../http/urls.ts';
import type { PersonSignIn } from '../identity/person-sign-in.ts';
import type { Limits } from '../limits/limits.ts';
import { Assets } from './framework/assets.ts';
import { leadTo, noticeOf, redirect, respond, respondCompressed, sendPage } from './framework/answers.ts';
import { isLinkFromElsewhere, setNotice, setSessionCookie } from './framework/cookie.ts';
import { beginPersonSignIn, finishPersonSignIn } from './person-sign-in.ts';
import { failureView } from './framework/failure.ts';
import { fieldOf, trimmedField } from './framework/form.ts';
import { html } from './framework/html.ts';
import { may } from './framework/layout.ts';
import type { Page, PageCall, Redirect, RefusedForm, PageView } from './framework/page.ts';
import { leadToRefused, refusedForm } from './framework/refused.ts';
import { requireShownAccount, shownAccount } from './framework/shown-account.ts';
import { pages } from './pages/index.ts';
import { overviewCounters, overviewPage } from './pages/overview.ts';
import { pageFiles } from './pages/files.ts';
import { localPath, signInView } from './pages/account/sign-in.ts';
import { beginSession, countersAddress, findVisitor, sessionOf, type Visit } from './framework/visit.ts';

interface ConsoleParts {
  api: Api;
  /** Signs cookies. */
  cookies: CookieKey;
  sessions: Sessions;
  authenticator: Authenticator;
  /** Signs people in; undefined without a provider. */
  signIn: PersonSignIn | undefined;
  /** Called for each failed sign-in of a person. */
  onRefused: () => void;
  urls: Urls;
  limits: Config['limits'];
  /** Limits what the visitors may cost. */
  clients: Limits;
  log: Logger;
  now: () => number;
}

/** Largest form, in bytes. */
const formLimit = 64 * 1024;

/** A page that is not ready by then shows a notice instead; milliseconds. */
const maxWait = 8000;

const signInAddress = '/console/sign-in';

/** How long the sign-in page waits for the provider; milliseconds. */
const patience = 1000;

const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

/** Finds who has the session of a request, for the operations of `/v1` that people use. */
export function visitors(
  parts: Pick<ConsoleParts, 'sessions' | 'authenticator' | 'clients' | 'onRefused' | 'urls'>,
): (request: Request, response: ServerResponse) => Promise<Principal | undefined> {
  return async (request, response) => {
    const scheme = parts.urls.of(request).base.startsWith('https:') ? 'https' : 'http';
    return (await sessionOf(parts, { request, response, scheme }))?.principal;
  };
}

/**
 * The web console, at `/console`: pages that a browser shows, each a view of `/v1`. Cookies count here, and at `/v1/me`. `/`
 * leads browsers here.
 */
export function createConsole(parts: ConsoleParts): Mount[] {
  const assets = new Assets();
  const router = Router({ caseSensitive: true, strict: true });
  const refusals: Refusals<Visit> = {
    log: parts.log,
    statusOf,
    refuse: (_request, response, _status, error, visit) => refuse(assets, visit, error, contextOf(response).id),
  };
  const handle = (run: (visit: Visit) => Promise<void>) => {
    const edge = answerOrRefuse(refusals, async (visit) => {
      await findVisitor(parts, visit);
      visit.notice = await noticeOf(visit, parts);
      try {
        await run(visit);
      } catch (error) {
        if (visit.request.method === 'POST' && mustSignIn(error, visit)) await tellUnsent(parts, visit);
        throw error;
      }
    });
    return (request: Request, response: ServerResponse) => {
      setHeaders(response);
      const { base } = parts.urls.of(request);
      const scheme = base.startsWith('https:') ? 'https' : 'http';
      const unknown = { session: undefined, principal: undefined, notice: undefined };
      return edge({ request, response, base, scheme, ...unknown }, request, response);
    };
  };
  router.get('/assets/*path', (request, response, next) => {
    if (!assets.send(request, response, splitTarget(request.originalUrl).path)) next();
  });
  const get: AddRoute = (path, run) => router.get(path, handle(run));
  const post: AddRoute = (path, run) => router.post(path, handle(run));
  get('/sign-in', (visit) => showSignIn(parts, assets, visit));
  post('/sign-in', (visit) => signIn(parts, assets, visit));
  if (parts.signIn) addPersonSignIn(get, parts, parts.signIn, assets);
  post('/account', (visit) => useAccount(parts, visit));
  post('/sign-out', (visit) => signOut(parts, visit));
  for (const page of pages) {
    get(page.path, (visit) => show(parts, assets, page, visit));
    if (page.send) post(page.path, (visit) => send(parts, assets, page, visit));
    if (page.receive) post(page.path, (visit) => receive(parts, assets, page, visit));
  }
  get(countersAddress.slice('/console'.length), (visit) => showCounters(parts, visit));
  for (const { path, operation } of pageFiles) get(path, (visit) => showFile(parts, operation, visit));
  router.use(
    handle(() => {
      throw new DomainError('NotFound', 'The console has no such page. It may have been moved or deleted.');
    }),
  );
  const root = Router({ caseSensitive: true, strict: true });
  root.get('/', (request, response, next) => {
    if (request.headers.accept?.includes('text/html')) response.writeHead(302, { Location: '/console/' }).end();
    else next();
  });
  root.get('/console', (_request, response) => void response.writeHead(302, { Location: '/console/' }).end());
  return [
    { path: '/', router: root },
    { path: '/console', router, refuseOtherSite: (...refused) => refuseOtherSite(assets, ...refused) },
  ];
}

function setHeaders(response: ServerResponse): void {
  alwaysSend(response, 'Content-Security-Policy', policy);
  // With `no-referrer`, browsers send `Origin: null` with forms, which plain HTTP needs (see `Hosts`).
  alwaysSend(response, 'Referrer-Policy', 'same-origin');
  alwaysSend(response, 'Cross-Origin-Opener-Policy', 'same-origin');
}

async function show(parts: ConsoleParts, assets: Assets, page: Page, visit: Visit): Promise<void> {
  const call = await callOf(parts, page, visit);
  const view = await inTime(() => page.show(call), maxWait, { late: refuseSlow, ref: false });
  if (!call.refused && queryOf(visit.request)['refused']) visit.notice = 'form-forgotten';
  // Only the form was refused, and not this request for its page.
  await respondCompressed(assets, visit, call.refused ? { ...view, status: 200 } : view, page);
}

async function showCounters(parts: ConsoleParts, visit: Visit): Promise<void> {
  const counters = await overviewCounters(await callOf(parts, overviewPage, visit));
  sendBytes(visit.request, visit.response, 200, Buffer.from(JSON.stringify(counters)), {
    'Content-Type': 'application/json',
    'Cache-Control': 'no-store',
  });
}

async function showFile({ api }: ConsoleParts, id: string, { request, response, principal }: Visit): Promise<void> {
  if (!principal) throw signInFirst();
  const params = request.params as Record<string, string>;
  await sendFile(request, response, await api.open(id, principal, { params }));
}

function signInFirst(): DomainError {
  return new DomainError('Unauthorized', 'Sign in to see this page.');
}

async function send(parts: ConsoleParts, assets: Assets, page: Page, visit: Visit): Promise<void> {
  const call = await callOf(parts, page, visit);
  requireShownAccount(queryOf(visit.request), call.principal);
  const result = await page.send!({ ...call, form: await readForm(parts, visit) });
  await answerForm(parts, assets, page, visit, result);
}

async function receive(parts: ConsoleParts, assets: Assets, page: Page, visit: Visit): Promise<void> {
  const { request, response, principal } = visit;
  const call = await callOf(parts, page, visit);
  requireShownAccount(queryOf(request), call.principal);
  const result = await page.receive!({
    ...call,
    receive: (id, answer, params) => parts.api.receive(id, answer, principal!, { request, response }, params),
  });
  await answerForm(parts, assets, page, visit, result);
}

async function answerForm(
  parts: ConsoleParts,
  assets: Assets,
  page: Page,
  visit: Visit,
  result: PageView | Redirect | RefusedForm,
): Promise<void> {
  if ('to' in result) await redirect(visit, result, parts);
  else if ('refused' in result) await leadToRefused(visit, result, parts.sessions.refusedForms);
  else respond(assets, visit, result, page);
}

/** Throws `Unauthorized` and `ScopeMissing`. */
async function callOf(parts: ConsoleParts, page: Page, visit: Visit): Promise<PageCall> {
  const { api, urls, now, sessions } = parts;
  const { request, response, session, principal } = visit;
  if (!principal) throw signInFirst();
  allow(principal, page.action);
  const { refused, [shownAccount]: _shown, ...query } = queryOf(request);
  return {
    principal,
    session,
    params: request.params as Record<string, string>,
    query,
    refused: await refusedForm(principal, refused, sessions.refusedForms),
    values: (name) => valuesOf(request, name),
    urls: urls.of(request),
    api: {
      call: async (id, answer, args) => {
        await limitCost(response, api.costOf(id), false);
        return api.call(id, answer, principal, args);
      },
      do: (id, args) => api.do(id, principal, args),
    },
    now: now(),
  };
}

function queryOf({ originalUrl }: Request): Record<string, string> {
  const entries = Object.entries(parse(splitTarget(originalUrl).query));
  return Object.fromEntries(entries.map(([name, value]) => [name, (Array.isArray(value) ? value[0] : value) ?? '']));
}

function valuesOf({ originalUrl }: Request, name: string): string[] {
  return [parse(splitTarget(originalUrl).query)[name] ?? []].flat();
}

/** So that a slow database shows a notice and no empty window. */
function refuseSlow(): never {
  const message = 'The database answers slowly, so this page is not ready. Try again.';
  throw new DomainError('DatabaseUnavailable', message, { retryAfter: 5 });
}

async function readForm({ limits }: ConsoleParts, { request, response }: Visit): Promise<URLSearchParams> {
  const type = request.headers['content-type']?.split(';', 1)[0]!.trim().toLowerCase();
  if (type !== 'application/x-www-form-urlencoded') {
    throw new DomainError('Unsupported', 'Send the form as application/x-www-form-urlencoded.');
  }
  const bytes = await readBody(request, { limit: formLimit, idle: limits.uploadIdle });
  contextOf(response).received = bytes.length;
  return new URLSearchParams(bytes.toString('utf8'));
}

/** Answers a form that a page of another site sent. */
function refuseOtherSite(assets: Assets, request: IncomingMessage, response: ServerResponse, message: string): void {
  setHeaders(response);
  const view = { title: 'Not allowed', status: 403, body: html`<p class="failure" role="alert">${message}</p>` };
  sendPage(request, response, view, { assets: assets.addresses, principal: undefined });
}

type AddRoute = (path: string, run: (visit: Visit) => Promise<void>) => void;

/** The routes of the sign-in with the provider. */
function addPersonSignIn(get: AddRoute, parts: ConsoleParts, signIn: PersonSignIn, assets: Assets): void {
  const { clients, cookies, now } = parts;
  const placeOf = ({ response, scheme, base }: Visit) => ({
    scheme,
    base,
    signing: { cookies, now: now() },
    refusal: (error: DomainError) => {
      signIn.logFailure(error, contextOf(response).remote);
      if (error.name === 'Unauthorized') parts.onRefused();
    },
  });
  get('/sign-in/oidc', async (visit) => {
    const { request, response, session, base } = visit;
    const next = localPath(queryOf(request)['next']);
    if (session !== undefined) return leadTo(response, next);
    // Only the visitor begins a sign-in, not a link of another site.
    if (isLinkFromElsewhere(request, base))
      return respond(assets, visit, signInView({ next, provider: signIn.providerName }));
    const begun = await beginPersonSignIn(signIn, { ...placeOf(visit), next });
    if ('body' in begun) return respond(assets, visit, begun);
    response.setHeader('Set-Cookie', begun.cookie);
    return leadTo(response, begun.to);
  });
  get('/sign-in/oidc/callback', async (visit) => {
    const { request, response, scheme } = visit;
    const { query } = splitTarget(request.originalUrl);
    const finished = await finishPersonSignIn(signIn, {
      ...placeOf(visit),
      request,
      query,
      attempt: (work) => limitAttempt(clients, work),
    });
    response.setHeader('Set-Cookie', finished.cookie);
    if ('view' in finished) return respond(assets, visit, finished.view);
    const value = await beginSession(parts, visit, finished.owner);
    response.setHeader('Set-Cookie', [finished.cookie, setSessionCookie(scheme, value)]);
    return leadTo(response, localPath(finished.next));
  });
}

/** Uses another account of the person from now on. */
async function useAccount(parts: ConsoleParts, visit: Visit): Promise<void> {
  if (visit.session === undefined) throw new DomainError('Unauthorized', 'Sign in to choose an account.');
  const account = fieldOf(await readForm(parts, visit), 'account');
  await parts.sessions.useAccount(visit.session, account);
  await redirect(visit, { to: '/console/', done: 'account-changed' }, parts);
}

async function showSignIn({ signIn: person }: ConsoleParts, assets: Assets, visit: Visit): Promise<void> {
  const next = localPath(queryOf(visit.request)['next']);
  if (visit.session !== undefined) {
    leadTo(visit.response, next);
    return;
  }
  const hasLeft = visit.notice === 'signed-out';
  const signOut = hasLeft && person ? await signOutAddressOf(person) : undefined;
  respond(assets, visit, signInView({ next, provider: person?.providerName, signOut }));
}

/** Undefined if the provider has none, or does not answer soon. */
function signOutAddressOf(person: PersonSignIn): Promise<string | undefined> {
  const known = () => person.signOutAddress().catch(() => undefined);
  return inTime(known, patience, { late: () => undefined, ref: false });
}

async function signIn(parts: ConsoleParts, assets: Assets, visit: Visit): Promise<void> {
  const { response, scheme } = visit;
  const form = await readForm(parts, visit);
  const next = localPath(form.get('next') ?? undefined);
  const token = trimmedField(form, 'token');
  let principal: Principal;
  try {
    principal = await parts.authenticator.principalOf({ headers: { authorization: `Bearer ${token}` } });
    if (principal.kind !== 'token') throw new DomainError('Unauthorized', 'Paste an API token.');
  } catch (error) {
    if (!(error instanceof DomainError) || error.name !== 'Unauthorized') throw error;
    const message = token === '' ? 'Paste an API token.' : error.message;
    respond(assets, visit, signInView({ next, error: message, provider: parts.signIn?.providerName }));
    return;
  }
  contextOf(response).principal = principal;
  const value = await beginSession(parts, visit, principal);
  response.setHeader('Set-Cookie', setSessionCookie(scheme, value));
  leadTo(response, next);
}

async function signOut(parts: ConsoleParts, visit: Visit): Promise<void> {
  const { response, scheme, session, principal } = visit;
  if (session !== undefined) await parts.sessions.end(principal!.accountId, session);
  response.setHeader('Set-Cookie', setSessionCookie(scheme, undefined));
  await redirect(visit, { to: signInAddress, done: 'signed-out' }, parts);
}

function mustSignIn(error: unknown, { principal }: Visit): boolean {
  if (!(error instanceof DomainError) || error.name !== 'Unauthorized') return false;
  return principal === undefined || principal.kind === 'anonymous';
}

/** So that the sign-in page, to which a form without a session leads, says that nothing was changed. */
async function tellUnsent({ cookies, now }: ConsoleParts, { response, scheme }: Visit): Promise<void> {
  const notice = await setNotice('form-unsent', signInAddress, scheme, { cookies, now: now() });
  response.appendHeader('Set-Cookie', notice);
}

/** Answers with a page that says what is wrong; without a session, leads to the sign-in page and back. */
function refuse(assets: Assets, visit: Visit, error: DomainError | undefined, requestId: string): void {
  const { request, response, principal } = visit;
  if (mustSignIn(error, visit)) {
    const next = request.method === 'GET' ? `?next=${encodeURIComponent(localPath(request.originalUrl))}` : '';
    leadTo(response, `${signInAddress}${next}`);
    return;
  }
  respond(assets, visit, failureView(error, requestId, principal && may(principal, 'operate')));
}
