import type { IncomingMessage } from 'node:http';
import type { Config } from '../config/schema.ts';
import type { Aliases } from './aliases.ts';
import { Proxies } from './proxies.ts';

/** The public URLs of the three interfaces, without a slash at the end. */
export interface PublicUrls {
  base: string;
  feed: string;
  registry: string;
}

/**
 * Builds all absolute URLs: from the settings, otherwise from the request (Host, or the headers of a trusted proxy). A client that
 * uses an old host of this server may reach it only there.
 */
export class Urls {
  readonly #configured: Partial<PublicUrls>;
  readonly #proxies: Proxies;
  readonly #aliases: Aliases;

  constructor({ baseUrl, feedUrl, registryUrl, trustProxy }: Config['server'], aliases: Aliases) {
    this.#aliases = aliases;
    this.#configured = { base: trim(baseUrl), feed: trim(feedUrl), registry: trim(registryUrl) };
    this.#proxies = new Proxies(trustProxy);
  }

  of(request: IncomingMessage): PublicUrls {
    const configured = this.#aliases.isHost(this.#proxies.hostOf(request)) ? {} : this.#configured;
    const { base = this.#requestedBase(request), feed = base, registry = base } = configured;
    return { base, feed, registry };
  }

  #requestedBase(request: IncomingMessage): string {
    return `${this.#proxies.schemeOf(request)}://${this.#proxies.hostOf(request)}`;
  }
}

function trim(url: string | undefined): string | undefined {
  return url?.replace(/\/+$/, '');
}
