import type { IncomingMessage } from 'node:http';

/** The scheme of the visitor's address. */
export type Scheme = 'http' | 'https';

/** With HTTPS, the prefix keeps other hosts and plain HTTP from setting the cookie (RFC 6265bis, 4.1.3). */
function nameOf(scheme: Scheme, name: 'session' | 'sign-in' = 'session'): string {
  return `${scheme === 'https' ? '__Host-' : ''}entrepot-${name}`;
}

/** The value of the session cookie; undefined without one. */
export function sessionCookie(request: Pick<IncomingMessage, 'headers'>, scheme: Scheme): string | undefined {
  const value = valueOf(request, nameOf(scheme));
  return value !== undefined && /^[\w-]{43}$/.test(value) ? value : undefined;
}

/** What the browser keeps while its visitor signs in with the provider. */
export interface PendingSignIn {
  /** Random; 43 characters of base64url. */
  secret: string;
  /** The path that the sign-in leads to. */
  next: string;
}

/** Seconds that a sign-in with the provider may take. */
const signInTime = 600;

/** The sign-in that this browser has begun; undefined without one. */
export function pendingSignIn(request: Pick<IncomingMessage, 'headers'>, scheme: Scheme): PendingSignIn | undefined {
  const [, secret, next] = /^([\w-]{43})\.([\w-]*)$/.exec(valueOf(request, nameOf(scheme, 'sign-in')) ?? '') ?? [];
  return secret === undefined ? undefined : { secret, next: Buffer.from(next!, 'base64url').toString('utf8') };
}

/** `Set-Cookie` with a sign-in that has begun, or without one to remove it. */
export function setPendingSignIn(scheme: Scheme, pending: PendingSignIn | undefined): string {
  const value = pending ? `${pending.secret}.${Buffer.from(pending.next).toString('base64url')}` : '';
  const rest = `; Path=/; HttpOnly; SameSite=Lax${scheme === 'https' ? '; Secure' : ''}`;
  return `${nameOf(scheme, 'sign-in')}=${value}${rest}; Max-Age=${pending ? signInTime : 0}`;
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
 * Whether a request that changes something comes from a page of this server. Browsers send `Sec-Fetch-Site` over HTTPS and
 * to loopback addresses, and `Origin` otherwise; a client that sends neither is no browser and has no cookie to steal.
 */
export function isSameOrigin({ headers }: Pick<IncomingMessage, 'headers'>, base: string): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site === 'same-origin' || site === 'none';
  return headers.origin === undefined || headers.origin === new URL(base).origin;
}
