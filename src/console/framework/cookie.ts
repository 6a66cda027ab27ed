import type { IncomingMessage } from 'node:http';
import type { CookieKey } from '../../accounts/cookie-key.ts';

/** The scheme of the visitor's address. */
export type Scheme = 'http' | 'https';

/** The cookies that a browser keeps for some time only. */
type ShortLived = 'sign-in' | 'notice';

/** With HTTPS, the prefix keeps other hosts and plain HTTP from setting the cookie (RFC 6265bis, 4.1.3). */
function nameOf(scheme: Scheme, name: 'session' | ShortLived = 'session'): string {
  return `${scheme === 'https' ? '__Host-' : ''}entrepot-${name}`;
}

/** The value of the session cookie; undefined without one. */
export function sessionCookie(request: Pick<IncomingMessage, 'headers'>, scheme: Scheme): string | undefined {
  const value = valueOf(request, nameOf(scheme));
  return value !== undefined && /^[\w-]{43}$/.test(value) ? value : undefined;
}

/** What the browser keeps while its visitor signs in with the provider. */
interface PendingSignIn {
  /** Random; 43 characters of base64url. */
  secret: string;
  /** The path that the sign-in leads to. */
  next: string;
}

/** What a cookie is signed with, and the time in milliseconds since 1970. */
export interface Signing {
  cookies: CookieKey;
  now: number;
}

/** Seconds that a sign-in with the provider may take. */
const signInTime = 600;

/** The sign-in that this browser has begun here within the last 10 minutes; undefined without one. */
export async function pendingSignIn(
  request: Pick<IncomingMessage, 'headers'>,
  scheme: Scheme,
  { cookies, now }: Signing,
): Promise<PendingSignIn | undefined> {
  const value = valueOf(request, nameOf(scheme, 'sign-in')) ?? '';
  const parts = /^(([\w-]{43})\.([0-9a-z]{1,10})\.([\w-]*))\.([\w-]{43})$/.exec(value);
  if (!parts) return undefined;
  const [, text, secret, until, next, signature] = parts as unknown as string[];
  if (!(await cookies.isSigned('sign-in', text!, Buffer.from(signature!, 'base64url')))) return undefined;
  if (Number.parseInt(until!, 36) <= now) return undefined;
  return { secret: secret!, next: Buffer.from(next!, 'base64url').toString('utf8') };
}

/** `Set-Cookie` with a sign-in that has begun. Its signature shows later that this server has begun it. */
export async function setPendingSignIn(
  scheme: Scheme,
  { secret, next }: PendingSignIn,
  { cookies, now }: Signing,
): Promise<string> {
  const until = (now + signInTime * 1000).toString(36);
  const text = `${secret}.${until}.${Buffer.from(next).toString('base64url')}`;
  const signature = await cookies.sign('sign-in', text);
  return shortLived(scheme, 'sign-in', `${text}.${signature.toString('base64url')}`, signInTime);
}

/** `Set-Cookie` that removes the sign-in from the browser. */
export function removePendingSignIn(scheme: Scheme): string {
  return shortLived(scheme, 'sign-in', '', 0);
}

/** Seconds until a notice that no page has shown is gone. */
const noticeTime = 60;

/** The key of the notice that the page at `address` shows now; undefined without one. */
export async function noticeFor(
  address: string,
  request: Pick<IncomingMessage, 'headers'>,
  scheme: Scheme,
  { cookies, now }: Signing,
): Promise<string | undefined> {
  const parts = /^(([a-z-]{1,32})\.([0-9a-z]{1,10}))\.([\w-]{43})$/.exec(
    valueOf(request, nameOf(scheme, 'notice')) ?? '',
  );
  if (!parts) return undefined;
  const [, text, key, until, signature] = parts as unknown as string[];
  if (Number.parseInt(until!, 36) <= now) return undefined;
  const signed = `${text} ${normal(address)}`;
  return (await cookies.isSigned('notice', signed, Buffer.from(signature!, 'base64url'))) ? key : undefined;
}

/**
 * `Set-Cookie` with the key of a notice that only the page at `address` shows. It is not in that address, so a link has none. It
 * is signed, so that only this server chooses what a page says.
 */
export async function setNotice(
  key: string,
  address: string,
  scheme: Scheme,
  { cookies, now }: Signing,
): Promise<string> {
  const text = `${key}.${(now + noticeTime * 1000).toString(36)}`;
  const signature = await cookies.sign('notice', `${text} ${normal(address)}`);
  return shortLived(scheme, 'notice', `${text}.${signature.toString('base64url')}`, noticeTime);
}

/** `Set-Cookie` that removes the notice after it was shown. */
export function removeNotice(scheme: Scheme): string {
  return shortLived(scheme, 'notice', '', 0);
}

/** An address of this server as browsers send it. */
function normal(address: string): string {
  const { pathname, search } = new URL(address, 'http://console.invalid');
  return pathname + search;
}

function shortLived(scheme: Scheme, name: ShortLived, value: string, seconds: number): string {
  const rest = `; Path=/; HttpOnly; SameSite=Lax${scheme === 'https' ? '; Secure' : ''}`;
  return `${nameOf(scheme, name)}=${value}${rest}; Max-Age=${seconds}`;
}

/** The value of a cookie; undefined without it, and for several with the name. */
function valueOf({ headers }: Pick<IncomingMessage, 'headers'>, name: string): string | undefined {
  const prefix = `${name}=`;
  const pairs = (headers.cookie ?? '').split(';').map((each) => each.trim());
  const values = pairs.filter((each) => each.startsWith(prefix)).map((each) => each.slice(prefix.length));
  return values.length === 1 ? values[0] : undefined;
}

/** `Set-Cookie` with a session, or without `value` to remove it. The browser forgets it when it closes. */
export function setSessionCookie(scheme: Scheme, value: string | undefined): string {
  const secure = scheme === 'https' ? '; Secure' : '';
  const end = value === undefined ? '; Max-Age=0' : '';
  return `${nameOf(scheme)}=${value ?? ''}; Path=/; HttpOnly; SameSite=Lax${secure}${end}`;
}

/**
 * Whether a link of another site led here. Without the header fields that tell, as over plain HTTP from a bookmark, nothing
 * shows that.
 */
export function isLinkFromElsewhere({ headers }: Pick<IncomingMessage, 'headers'>, base: string): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site !== 'same-origin' && site !== 'none';
  return headers.referer !== undefined && URL.parse(headers.referer)?.origin !== new URL(base).origin;
}
