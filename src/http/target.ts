import type { IncomingMessage } from 'node:http';

// What a request is addressed to (RFC 9112, 3.2), and behind a trusted reverse proxy what it was addressed to there.

/** A request's target in origin form: what stands before the path in absolute form is left out (RFC 9112, 3.2.2). */
export function originForm(target: string): string {
  if (target.startsWith('/')) return target;
  const relative = target.replace(/^[a-z]+:\/\/[^/?]*/i, '');
  return relative.startsWith('/') ? relative : `/${relative}`;
}

/** The path and the query of a target in origin form, both with their percent-encoding. */
export function splitTarget(target: string): { path: string; query: string } {
  const mark = target.indexOf('?');
  return mark < 0 ? { path: target, query: '' } : { path: target.slice(0, mark), query: target.slice(mark + 1) };
}

/** Host and port as the client wrote them; undefined where it wrote none. With `trusted`, by the proxy's word. */
export function hostOf({ headers }: IncomingMessage, trusted: boolean): string | undefined {
  return (trusted ? firstOf(headers['x-forwarded-host']) : undefined) ?? headers.host;
}

/**
 * Whether `host`, which `hostOf` gave for `request`, can stand in the URLs that answers hold. A request with two Host
 * headers is refused: the parties on its way could each believe another one (RFC 9112, 3.2).
 */
export function isHost({ rawHeaders }: IncomingMessage, host: string | undefined): boolean {
  if (host === undefined || !/^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/.test(host)) return false;
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1;
  }
  return hosts < 2 && URL.canParse(`http://${host}`);
}

/** `http`; `https` where a trusted proxy says that the client spoke that with it. */
export function schemeOf({ headers }: IncomingMessage, trusted: boolean): 'http' | 'https' {
  return trusted && firstOf(headers['x-forwarded-proto'])?.toLowerCase() === 'https' ? 'https' : 'http';
}

/** The client's address. */
export function remoteOf({ headers, socket }: IncomingMessage, trusted: boolean): string | undefined {
  return (trusted ? firstOf(headers['x-forwarded-for']) : undefined) ?? socket.remoteAddress;
}

/** Each proxy on the way adds its value at the end. */
function firstOf(header: string | string[] | undefined): string | undefined {
  return (
    String(header ?? '')
      .split(',', 1)[0]!
      .trim() || undefined
  );
}
