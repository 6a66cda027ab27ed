/**
 * The address of the next page of a list at `url`, by the header `Link` (RFC 8288); undefined without one. Servers behind a
 * proxy often name another scheme, port or host than the one that was asked: the page is always asked at the origin of `url`.
 */
export function nextPage(link: string | string[] | undefined, url: URL): URL | undefined {
  // No part of the expression can begin in an earlier one, so that a long header takes no longer than its length.
  const next = /<([^<>]{1,4096})>\s*;[^,<]*rel="?next"?/.exec(String(link ?? ''))?.[1];
  const following = next === undefined ? null : URL.parse(next, url.href);
  if (!following) return undefined;
  const page = new URL(url);
  page.pathname = following.pathname;
  page.search = following.search;
  return page;
}
