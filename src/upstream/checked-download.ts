import type { ProxyEnvironment } from './addresses.ts';
import type { UpstreamAnswer } from './answer.ts';
import { UpstreamClient } from './client.ts';
import { redirectLimit, redirectOf, tooManyRedirects } from './redirect.ts';
import { withoutUser } from './url.ts';

/** Longest time of each step of a request, and of silence in a body; milliseconds. */
export const downloadStep = 30_000;

interface DownloadOptions {
  headers: Record<string, string>;
  /** Whether private and loopback addresses are allowed. */
  allowPrivate: boolean;
  proxy: ProxyEnvironment;
  signal: AbortSignal;
}

/**
 * Requests `url` with the address checks of upstreams, also of each address to which it redirects, and resolves to what `read`
 * makes of the answer. Rejects with `Refused` for an address that is not allowed, with `NotConnected`, or with the error of got.
 * The connection is closed at the end.
 */
export async function download<T>(
  url: URL,
  { headers, allowPrivate, proxy, signal }: DownloadOptions,
  read: (answer: UpstreamAnswer) => Promise<T>,
): Promise<T> {
  const client = new UpstreamClient({ allowPrivate, proxy, timeout: downloadStep, connections: 1 });
  try {
    let at = url;
    for (let hop = 0; hop <= redirectLimit; hop += 1) {
      const answer = await client.send({ url: withoutUser(at), headers, group: url.pathname, signal });
      const next = redirectOf(answer, at);
      if (!next) return await read(answer);
      at = next;
    }
    throw tooManyRedirects();
  } finally {
    client.close();
  }
}
