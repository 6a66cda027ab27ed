import type { Request } from 'express';
import type { Config } from '../config/schema.ts';

/** The public addresses of the three interfaces, without a slash at the end. */
export interface PublicUrls {
  base: string;
  feed: string;
  registry: string;
}

/** The one owner of absolute URLs: as configured, else as the request was addressed (Host, or a trusted proxy's word). */
export class Urls {
  readonly #server: Config['server'];

  constructor(server: Config['server']) {
    this.#server = server;
  }

  of(request: Request): PublicUrls {
    const base = trim(this.#server.baseUrl ?? `${request.protocol}://${request.host}`);
    return {
      base,
      feed: trim(this.#server.feedUrl ?? base),
      registry: trim(this.#server.registryUrl ?? base),
    };
  }
}

function trim(url: string): string {
  return url.replace(/\/+$/, '');
}
