import type { IncomingMessage, ServerResponse } from 'node:http';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { CookieKey } from '../../accounts/cookie-key.ts';
import { sendBytes } from '../../http/send.ts';
import { splitTarget } from '../../http/target.ts';
import type { Assets } from './assets.ts';
import { noticeFor, removeNotice, setNotice } from './cookie.ts';
import { layout, type Frame } from './layout.ts';
import type { Page, PageView, Redirect } from './page.ts';
import type { Visit } from './visit.ts';

const compress = promisify(gzip);
const pageHeaders = {
  'Content-Type': 'text/html; charset=utf-8',
  'Cache-Control': 'no-store',
  Vary: 'Accept-Encoding, Sec-Fetch-Site',
};

/** What signs notices, and the time in milliseconds since 1970. */
interface SigningParts {
  cookies: CookieKey;
  now: () => number;
}

/** Sends a page, with the notice for it, which no other answer shows then. */
export function respond(assets: Assets, visit: Visit, view: PageView, page?: Page): void {
  sendPage(visit.request, visit.response, view, frameOf(assets, visit, page));
}

/**
 * As `respond`, compressed for a visitor who opens the page by its address or from the console. A page of another site could let
 * the browser open pages with guesses in their addresses, and learn from the lengths of compressed answers what else is on them
 * (BREACH). Not for answers to forms, which show new secrets, nor for pages that can show one at any time.
 */
export async function respondCompressed(assets: Assets, visit: Visit, view: PageView, page: Page): Promise<void> {
  const { request, response } = visit;
  if (page.hasSecrets || !mayCompress(request)) {
    respond(assets, visit, view, page);
    return;
  }
  const bytes = await compress(layout(view, frameOf(assets, visit, page)).text);
  sendBytes(request, response, view.status ?? 200, bytes, { ...pageHeaders, 'Content-Encoding': 'gzip' });
}

function mayCompress({ method, headers }: IncomingMessage): boolean {
  const site = headers['sec-fetch-site'];
  if (method !== 'GET' || (site !== 'same-origin' && site !== 'none')) return false;
  const codings = (headers['accept-encoding'] ?? '').split(',');
  return codings.some((each) => /^\s*gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*$).*)?$/i.test(each));
}

function frameOf(
  assets: Assets,
  { request, response, scheme, principal, notice }: Visit,
  page: Page | undefined,
): Frame {
  if (notice !== undefined) response.appendHeader('Set-Cookie', removeNotice(scheme));
  return {
    assets: assets.addresses,
    principal,
    section: page?.section,
    path: page && `/console${page.path}`,
    notice,
    isAnswer: request.method === 'POST',
    query: splitTarget(request.originalUrl).query,
  };
}

export function sendPage(request: IncomingMessage, response: ServerResponse, view: PageView, frame: Frame): void {
  sendBytes(request, response, view.status ?? 200, Buffer.from(layout(view, frame).text), pageHeaders);
}

/** The notice for the page that the visitor opens. A HEAD shows no page, so it uses none up. */
export async function noticeOf(
  { request, scheme }: Visit,
  { cookies, now }: SigningParts,
): Promise<string | undefined> {
  if (request.method !== 'GET') return undefined;
  return noticeFor(request.originalUrl, request, scheme, { cookies, now: now() });
}

/** Leads on; with `done`, to a page that shows the notice. */
export async function redirect(
  { response, scheme }: Visit,
  { to, done }: Redirect,
  { cookies, now }: SigningParts,
): Promise<void> {
  if (done !== undefined) {
    response.appendHeader('Set-Cookie', await setNotice(done, to, scheme, { cookies, now: now() }));
  }
  leadTo(response, to);
}

export function leadTo(response: ServerResponse, to: string): void {
  response.writeHead(303, { Location: to }).end();
}
