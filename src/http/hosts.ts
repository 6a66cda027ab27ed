import type { IncomingMessage } from 'node:http';
import type { Config } from '../config/schema.ts';
import { hostnameOf, isLoopback } from '../runtime/authority.ts';
import type { Aliases } from './aliases.ts';
import { Proxies } from './proxies.ts';
import { splitTarget } from './target.ts';

/** What also answers to other hosts: a probe asks for the address of a pod. */
const operations = new Set(['/livez', '/readyz', '/metrics']);

/** Whether a request for `target` needs no host of this server. */
export function isOfOperations(target: string): boolean {
  return operations.has(splitTarget(target).path);
}

/** The hosts of this server: which requests are for them, and which come from their pages. */
export class Hosts {
  readonly #proxies: Proxies;
  /** Host and port of the public URLs. */
  readonly #public: ReadonlySet<string>;
  /** Host names without ports; undefined if the server has no configured address, so that any host may be its own. */
  readonly #names: ReadonlySet<string> | undefined;
  /** The host that was served last: most requests have the same. */
  #lastServed: string | undefined;

  readonly #aliases: Aliases;

  constructor({ baseUrl, feedUrl, registryUrl, hosts, trustProxy }: Config['server'], aliases: Aliases) {
    this.#aliases = aliases;
    this.#proxies = new Proxies(trustProxy);
    const urls = [baseUrl, feedUrl, registryUrl].filter((each) => each !== undefined).map((each) => new URL(each));
    this.#public = new Set(urls.map(({ host }) => host));
    if (baseUrl !== undefined)
      this.#names = new Set([...urls.map(({ hostname }) => hostname), ...hosts.map(hostnameOf)]);
  }

  /**
   * Whether to answer a request for `target` at `host`, which is valid in a URL. A page of another site can give its own host
   * name the address of this server, and is then the same site to a browser (DNS rebinding).
   */
  serves(host: string, target: string): boolean {
    if (this.#names === undefined || host === this.#lastServed) return true;
    const { hostname } = new URL(`http://${host}`);
    const isOurs = this.#names.has(hostname) || isLoopback(hostname) || this.#aliases.isHost(host);
    if (!isOurs) return isOfOperations(target);
    this.#lastServed = host;
    return true;
  }

  /**
   * Whether a page of another site sent a request. A browser adds credentials that its user has typed at this server, also
   * to such a request. Browsers send `Sec-Fetch-Site` over HTTPS and to loopback addresses, and `Origin` otherwise; other
   * clients send neither. The scheme of the origin does not matter, because TLS may end at a proxy.
   */
  isFromOtherSite(request: IncomingMessage): boolean {
    const { 'sec-fetch-site': site, origin } = request.headers;
    if (site !== undefined) return site !== 'same-origin' && site !== 'none';
    if (origin === undefined) return false;
    if (!URL.canParse(origin)) return true;
    const { host, protocol } = new URL(origin);
    const requested = `${protocol}//${this.#proxies.hostOf(request)}`;
    const isRequested = URL.canParse(requested) && new URL(requested).host === host;
    return host === '' || !(isRequested || this.#public.has(host));
  }
}
