import type { IncomingMessage } from 'node:http';

// The target of a request (RFC 9112, 3.2).

/** A request target in origin form. Removes scheme and host of the absolute form (RFC 9112, 3.2.2). */
export function originForm(target: string): string {
  if (target.startsWith('/')) return target;
  const relative = target.replace(/^[a-z]+:\/\/[^/?]*/i, '');
  return relative.startsWith('/') ? relative : `/${relative}`;
}

/** The path and the query of a target in origin form, both still percent-encoded. */
export function splitTarget(target: string): { path: string; query: string } {
  const mark = target.indexOf('?');
  return mark < 0 ? { path: target, query: '' } : { path: target.slice(0, mark), query: target.slice(mark + 1) };
}

/**
 * Whether `host`, the result of `Proxies.hostOf` for `request`, can be part of a URL. A request with two Host headers has no
 * valid host, because a proxy and the server could use different ones (RFC 9112, 3.2).
 */
export function isHost({ rawHeaders }: IncomingMessage, host: string | undefined): boolean {
  if (host === undefined || !fitsUrl(host)) return false;
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1;
  }
  return hosts < 2;
}

/** The host that was valid last: most requests have the same. */
let lastValid: string | undefined;

function fitsUrl(host: string): boolean {
  if (host === lastValid) return true;
  const fits = /^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/.test(host) && URL.canParse(`http://${host}`);
  if (fits) lastValid = host;
  return fits;
}
