import { Router, type Request } from 'express';
import type { ServerResponse } from 'node:http';
import { parse } from 'node:querystring';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { allow } from '../accounts/allow.ts';
import type { Principal } from '../accounts/principal.ts';
import type { Session, Sessions } from '../accounts/sessions.ts';
import type { Api } from '../api/operations.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../errors.ts';
import type { Mount } from '../http/app.ts';
import { readBody } from '../http/body.ts';
import type { Authenticator } from '../http/authenticate.ts';
import { limitCost, limitLookUp, limitRequest, setLimitFields } from '../http/limit.ts';
import { alwaysSend, contextOf } from '../http/request-context.ts';
import { sendBytes } from '../http/send.ts';
import { splitTarget } from '../http/target.ts';
import { asDomainError, noteUnavailable } from '../http/unavailable.ts';
import type { Urls } from '../http/urls.ts';
import type { Limits } from '../limits/limits.ts';
import { Assets } from './assets.ts';
import { isSameOrigin, sessionCookie, setSessionCookie, type Scheme } from './cookie.ts';
import { failureView } from './failure.ts';
import { html } from './html.ts';
import { layout } from './layout.ts';
import type { Page, PageCall, Redirect, View } from './page.ts';
import { pages } from './pages/index.ts';
import { localPath, signInView } from './pages/sign-in.ts';

export interface ConsoleParts {
  api: Api;
  sessions: Sessions;
  authenticator: Authenticator;
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
const longestWait = 8000;

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

const crossSiteView: View = {
  title: 'Not allowed',
  status: 403,
  body: html`<p class="failure" role="alert">
    A page of another site sent this form, so nothing was changed. Open the console and send it there.
  </p>`,
};

/** A request whose sender is known. */
interface Visit {
  request: Request;
  response: ServerResponse;
  scheme: Scheme;
  base: string;
  session: Session | undefined;
  /** Undefined without a session, unless visitors may read without one. */
  principal: Principal | undefined;
}

/**
 * The web console, at `/console`: pages that a browser shows, each a view of `/v1`. Cookies count here only. `/` leads
 * browsers here.
 */
export function createConsole(parts: ConsoleParts): Mount[] {
  const assets = new Assets();
  const router = Router({ caseSensitive: true, strict: true });
  const handle =
    (run: (visit: Visit) => Promise<void>) =>
    async (request: Request, response: ServerResponse): Promise<void> => {
      setHeaders(response);
      const base = parts.urls.of(request).base;
      const scheme = base.startsWith('https:') ? 'https' : 'http';
      const visit: Visit = { request, response, base, scheme, session: undefined, principal: undefined };
      try {
        await identify(parts, visit);
        if (request.method === 'POST' && !isSameOrigin(request, base)) {
          respond(assets, visit, crossSiteView);
        } else {
          await run(visit);
        }
      } catch (error) {
        fail(parts, assets, visit, error);
      }
    };
  router.get('/assets/*path', (request, response, next) => {
    if (!assets.send(request, response, splitTarget(request.originalUrl).path)) next();
  });
  router.get(
    '/sign-in',
    handle((visit) => showSignIn(assets, visit)),
  );
  router.post(
    '/sign-in',
    handle((visit) => signIn(parts, assets, visit)),
  );
  router.post(
    '/sign-out',
    handle((visit) => signOut(parts, visit)),
  );
  for (const page of pages) {
    router.get(
      page.path,
      handle((visit) => show(parts, assets, page, visit)),
    );
    if (page.send)
      router.post(
        page.path,
        handle((visit) => send(parts, assets, page, visit)),
      );
  }
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
    { path: '/console', router },
  ];
}

function setHeaders(response: ServerResponse): void {
  alwaysSend(response, 'Content-Security-Policy', policy);
  // With `no-referrer`, browsers send `Origin: null` with forms, which plain HTTP needs (see isSameOrigin).
  alwaysSend(response, 'Referrer-Policy', 'same-origin');
  alwaysSend(response, 'Cross-Origin-Opener-Policy', 'same-origin');
}

/** Finds the session of the visitor, or treats the visitor as an anonymous reader. */
async function identify({ sessions, authenticator, clients }: ConsoleParts, visit: Visit): Promise<void> {
  const value = sessionCookie(visit.request, visit.scheme);
  const found = value === undefined ? undefined : await limitLookUp(clients, () => sessions.find(value));
  visit.session = found?.session;
  visit.principal = found?.principal ?? authenticator.anonymous;
  contextOf(visit.response).principal = visit.principal;
  if (visit.principal) await limitRequest(visit.response, visit.principal);
}

async function show(parts: ConsoleParts, assets: Assets, page: Page, visit: Visit): Promise<void> {
  const call = callOf(parts, page, visit);
  respond(assets, visit, await inTime(page.show(call)), page);
}

async function send(parts: ConsoleParts, assets: Assets, page: Page, visit: Visit): Promise<void> {
  const call = callOf(parts, page, visit);
  const result = await page.send!({ ...call, form: await readForm(parts, visit) });
  if ('body' in result) respond(assets, visit, result, page);
  else redirect(visit.response, result);
}

/** Throws `Unauthorized` and `ScopeMissing`. */
function callOf({ api, urls, now }: ConsoleParts, page: Page, visit: Visit): PageCall {
  const { request, response, session, principal } = visit;
  if (!principal) throw new DomainError('Unauthorized', 'Sign in to see this page.');
  allow(principal, page.action);
  return {
    principal,
    session,
    params: request.params as Record<string, string>,
    query: queryOf(request),
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

/** Rejects with `DatabaseUnavailable` if `work` takes too long, so that a slow database shows a notice and no empty window. */
async function inTime<T>(work: Promise<T>): Promise<T> {
  const timer = new AbortController();
  const late = sleep(longestWait, undefined, { signal: timer.signal, ref: false }).then(() => {
    throw new DomainError('DatabaseUnavailable', 'The database answers slowly, so this page is not ready. Try again.', {
      retryAfter: 5,
    });
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.abort();
    work.catch(() => undefined);
  }
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

function respond(assets: Assets, { request, response, principal }: Visit, view: View, page?: Page): void {
  const query = queryOf(request);
  const frame = { assets: assets.addresses, principal, section: page?.section, done: query['done'] };
  sendBytes(request, response, view.status ?? 200, Buffer.from(layout(view, frame).text), {
    'Content-Type': 'text/html; charset=utf-8',
    'Cache-Control': 'no-store',
  });
}

function redirect(response: ServerResponse, { to, done }: Redirect): void {
  const mark = to.includes('?') ? '&' : '?';
  response.writeHead(303, { Location: done === undefined ? to : `${to}${mark}done=${done}` }).end();
}

async function showSignIn(assets: Assets, visit: Visit): Promise<void> {
  const next = localPath(queryOf(visit.request)['next']);
  if (visit.session) redirect(visit.response, { to: next });
  else respond(assets, visit, signInView({ next }));
  return Promise.resolve();
}

async function signIn(parts: ConsoleParts, assets: Assets, visit: Visit): Promise<void> {
  const { request, response, scheme } = visit;
  const form = await readForm(parts, visit);
  const next = localPath(form.get('next') ?? undefined);
  const token = (form.get('token') ?? '').trim();
  let principal: Principal;
  try {
    principal = await parts.authenticator.principalOf({ headers: { authorization: `Bearer ${token}` } });
    if (principal.kind !== 'token') throw new DomainError('Unauthorized', 'Paste an API token.');
  } catch (error) {
    if (!(error instanceof DomainError) || error.name !== 'Unauthorized') throw error;
    respond(assets, visit, signInView({ next, error: token === '' ? 'Paste an API token.' : error.message }));
    return;
  }
  contextOf(response).principal = principal;
  // A session that the browser had before must not become this one.
  if (visit.session) await parts.sessions.end(visit.principal!.accountId, visit.session.id).catch(ignoreEnded);
  const agent = request.headers['user-agent'] ?? '';
  const value = await parts.sessions.begin(principal, { agent, address: contextOf(response).remote ?? null });
  response.setHeader('Set-Cookie', setSessionCookie(scheme, value));
  redirect(response, { to: next });
}

async function signOut({ sessions }: ConsoleParts, { response, scheme, session, principal }: Visit): Promise<void> {
  if (session) await sessions.end(principal!.accountId, session.id).catch(ignoreEnded);
  response.setHeader('Set-Cookie', setSessionCookie(scheme, undefined));
  redirect(response, { to: '/console/sign-in', done: 'signed-out' });
}

function ignoreEnded(error: unknown): void {
  if (!(error instanceof DomainError) || error.name !== 'NotFound') throw error;
}

/** Answers with a page that says what is wrong; without a session, leads to the sign-in page and back. */
function fail({ log }: ConsoleParts, assets: Assets, visit: Visit, error: unknown): void {
  const { request, response, principal } = visit;
  const known = asDomainError(error);
  noteUnavailable(log, response, known);
  const { id } = contextOf(response);
  if (response.headersSent || response.destroyed) {
    log.error({ err: error, request: id }, 'an answer was interrupted by an error');
    response.destroy();
    return;
  }
  if (known?.name === 'Unauthorized' && (principal === undefined || principal.kind === 'anonymous')) {
    const next = request.method === 'GET' ? `?next=${encodeURIComponent(localPath(request.originalUrl))}` : '';
    redirect(response, { to: `/console/sign-in${next}` });
    return;
  }
  const view = failureView(known, id);
  if (view.status === 500) log.error({ err: error, request: id }, 'a request failed');
  setLimitFields(response, known);
  if (known?.retryAfter !== undefined) response.setHeader('Retry-After', known.retryAfter);
  respond(assets, visit, view);
}
