import type { IncomingMessage } from 'node:http';

/** The scheme of the visitor's address. */
export type Scheme = 'http' | 'https';

/** With HTTPS, the prefix keeps other hosts and plain HTTP from setting the cookie (RFC 6265bis, 4.1.3). */
function nameOf(scheme: Scheme): string {
  return scheme === 'https' ? '__Host-entrepot-session' : 'entrepot-session';
}

/** The value of the session cookie; undefined without one. */
export function sessionCookie({ headers }: Pick<IncomingMessage, 'headers'>, scheme: Scheme): string | undefined {
  const prefix = `${nameOf(scheme)}=`;
  const pairs = (headers.cookie ?? '').split(';').map((each) => each.trim());
  const values = pairs.filter((each) => each.startsWith(prefix)).map((each) => each.slice(prefix.length));
  const [value] = values;
  return values.length === 1 && /^[\w-]{43}$/.test(value!) ? value : undefined;
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
