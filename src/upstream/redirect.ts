import type { UpstreamAnswer } from './answer.ts';
import { discard } from './body.ts';
import { Refused } from './failures.ts';

/** Redirects that one request follows. */
export const redirectLimit = 5;

/**
 * The address to which the answer to a request to `url` redirects, and drops its body; undefined for another answer. Throws
 * `Refused` for an address that is not followed.
 */
export function redirectOf({ status, headers: { location }, body }: UpstreamAnswer, url: URL): URL | undefined {
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined) return undefined;
  discard(body);
  const next = URL.parse(location, url.href);
  if (!next || !/^https?:$/.test(next.protocol)) {
    throw new Refused('redirects to an address that is neither http nor https');
  }
  if (url.protocol === 'https:' && next.protocol === 'http:') throw new Refused('redirects from https to http');
  return next;
}

export function tooManyRedirects(): Refused {
  return new Refused(`redirects more than ${redirectLimit} times`);
}
