import { isIP } from 'node:net';
import { DomainError } from '../runtime/errors.ts';
import { AddressRefused, isIn, networkList, reachOf, type CheckAddress, type Resolve } from '../upstream/addresses.ts';
import { userNameLookup } from './name-lookup.ts';
import { maxUrlLength } from './webhook.ts';

/** The private receivers of the setting `webhooks.allow`. */
export class Receivers {
  readonly #hosts: ReadonlySet<string>;
  readonly #networks: ReturnType<typeof networkList>;

  /** Hosts, addresses and networks in CIDR notation. */
  constructor(allow: readonly string[]) {
    const [hosts, networks]: [string[], string[]] = [[], []];
    for (const each of allow) {
      if (each.includes('/')) networks.push(each);
      else if (isIP(each)) networks.push(`${each}/${isIP(each) === 6 ? 128 : 32}`);
      else hosts.push(each.toLowerCase());
    }
    this.#hosts = new Set(hosts);
    this.#networks = networkList(networks);
  }

  /** Checks each address before a connection. The message does not name it: only operators may know private addresses. */
  readonly check: CheckAddress = (address, host) => {
    const reach = reachOf(address);
    if (reach === 'public') return;
    if (reach === 'private' && (this.#hosts.has(host.toLowerCase()) || isIn(this.#networks, address))) return;
    throw new AddressRefused(
      'the receiver has an address that is not allowed; the setting webhooks.allow can allow private receivers',
    );
  };

  /** Only names that an operator has allowed are looked up with the shared threads of the process. */
  get resolve(): Resolve {
    return userNameLookup((hostname) => this.#hosts.has(hostname.toLowerCase()));
  }

  /** The URL of a webhook, normalized; throws `Invalid`. Names are resolved and checked when a delivery connects. */
  parse(text: string): string {
    const url = URL.parse(text);
    if (!url || !/^https?:$/.test(url.protocol)) throw invalid('expected an http or https URL');
    if (url.username !== '' || url.password !== '') throw invalid('a user name or password is not allowed');
    url.hash = '';
    if (url.href.length > maxUrlLength) throw invalid(`expected at most ${maxUrlLength} characters`);
    const host = url.hostname.replace(/^\[|\]$/g, '');
    try {
      if (isIP(host)) this.check(host, host);
    } catch (error) {
      throw invalid((error as AddressRefused).message);
    }
    return url.href;
  }
}

function invalid(message: string): DomainError {
  const errors = [{ field: 'url', message: `${message}.` }];
  return new DomainError('Invalid', `url: ${message}.`, { detail: { parameter: 'url', errors } });
}
