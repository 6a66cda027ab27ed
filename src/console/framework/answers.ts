import type { IncomingMessage, ServerResponse } from 'node:http';
import type { CookieKey } from '../../accounts/cookie-key.ts';
import { sendBytes } from '../../http/send.ts';
import type { Assets } from './assets.ts';
import { noticeFor, removeNotice, setNotice } from './cookie.ts';
import { layout, type Frame } from './layout.ts';
import type { Page, PageView, Redirect } from './page.ts';
import type { Visit } from './visit.ts';

/** What signs notices, and the time in milliseconds since 1970. */
interface SigningParts {
  cookies: CookieKey;
  now: () => number;
}

/** Sends a page, with the notice for it, which no other answer shows then. */
export function respond(
  assets: Assets,
  { request, response, scheme, principal, notice }: Visit,
  view: PageView,
  page?: Page,
): void {
  if (notice !== undefined) response.appendHeader('Set-Cookie', removeNotice(scheme));
  sendPage(request, response, view, { assets: assets.addresses, principal, section: page?.section, notice });
}

export function sendPage(request: IncomingMessage, response: ServerResponse, view: PageView, frame: Frame): void {
  sendBytes(request, response, view.status ?? 200, Buffer.from(layout(view, frame).text), {
    'Content-Type': 'text/html; charset=utf-8',
    'Cache-Control': 'no-store',
  });
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
