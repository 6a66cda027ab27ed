import { DomainError } from '../runtime/errors.ts';

/**
 * The URL of `segments` below the path of `base`. Every URL that contains a name is made here, so that no name can add a
 * path, a query or a fragment (RFC 3986, 3.3). Query and fragment of `base` are left out. Throws `Invalid` for a segment
 * that URLs resolve or drop: an empty one, `.` and `..`.
 */
export function urlBelow(base: URL | string, ...segments: readonly string[]): URL {
  const url = new URL(base);
  const folder = url.pathname.endsWith('/') ? url.pathname : `${url.pathname}/`;
  url.pathname = folder + segments.map(encodeSegment).join('/');
  url.search = '';
  url.hash = '';
  return url;
}

/** The same address without a user name and password. */
export function withoutUser(address: URL): URL {
  if (address.username === '' && address.password === '') return address;
  const url = new URL(address);
  url.username = '';
  url.password = '';
  return url;
}

/** A colon is allowed in a segment (RFC 3986, 3.3), and some registries do not decode an encoded one in a digest. */
function encodeSegment(segment: string): string {
  if (segment === '' || segment === '.' || segment === '..' || !segment.isWellFormed()) {
    throw new DomainError('Invalid', `"${segment.slice(0, 100)}" cannot be part of an upstream's URL.`);
  }
  return encodeURIComponent(segment).replaceAll('%3A', ':');
}
