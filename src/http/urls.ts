import type { IncomingMessage } from 'node:http';
import type { Config } from '../config/schema.ts';
import { hostOf, schemeOf } from './target.ts';

/** The public addresses of the three interfaces, without a slash at the end. */
export interface PublicUrls {
  base: string;
  feed: string;
  registry: string;
}

/** The one owner of absolute URLs: as configured, else as the request was addressed (Host, or a trusted proxy's word). */
export class Urls {
  readonly #configured: Partial<PublicUrls>;
  readonly #trustProxy: boolean;

  constructor({ baseUrl, feedUrl, registryUrl, trustProxy }: Config['server']) {
    this.#configured = { base: trim(baseUrl), feed: trim(feedUrl), registry: trim(registryUrl) };
    this.#trustProxy = trustProxy;
  }

  of(request: IncomingMessage): PublicUrls {
    const { base = this.#addressed(request), feed = base, registry = base } = this.#configured;
    return { base, feed, registry };
  }

  #addressed(request: IncomingMessage): string {
    return `${schemeOf(request, this.#trustProxy)}://${hostOf(request, this.#trustProxy)}`;
  }
}

function trim(url: string | undefined): string | undefined {
  return url?.replace(/\/+$/, '');
}
