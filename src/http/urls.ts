import type { IncomingMessage } from 'node:http';
import type { Config } from '../config/schema.ts';
import { Proxies } from './proxies.ts';

/** The public URLs of the three interfaces, without a slash at the end. */
export interface PublicUrls {
  base: string;
  feed: string;
  registry: string;
}

/**
 * Builds all absolute URLs: from the settings, otherwise from the request (Host, or the headers of a trusted proxy).
 */
export class Urls {
  readonly #configured: Partial<PublicUrls>;
  readonly #proxies: Proxies;

  constructor({ baseUrl, feedUrl, registryUrl, trustProxy }: Config['server']) {
    this.#configured = { base: trim(baseUrl), feed: trim(feedUrl), registry: trim(registryUrl) };
    this.#proxies = new Proxies(trustProxy);
  }

  of(request: IncomingMessage): PublicUrls {
    const { base = this.#requestedBase(request), feed = base, registry = base } = this.#configured;
    return { base, feed, registry };
  }

  #requestedBase(request: IncomingMessage): string {
    return `${this.#proxies.schemeOf(request)}://${this.#proxies.hostOf(request)}`;
  }
}

function trim(url: string | undefined): string | undefined {
  return url?.replace(/\/+$/, '');
}
