import { isIP } from 'node:net';
import { AddressRefused, isIn, networkList, reachOf, type CheckAddress, type Resolve } from './addresses.ts';
import { userNameLookup } from './name-lookup.ts';

/** The private servers of a setting, to which addresses that users have chosen may lead; public ones always may. */
export class PrivateHosts {
  readonly #hosts: ReadonlySet<string>;
  readonly #networks: ReturnType<typeof networkList>;
  readonly #refusal: string;

  /** Hosts, addresses and networks in CIDR notation. `refusal` is the message of `AddressRefused`. */
  constructor(allow: readonly string[], refusal: string) {
    const [hosts, networks]: [string[], string[]] = [[], []];
    for (const each of allow) {
      if (each.includes('/')) networks.push(each);
      else if (isIP(each)) networks.push(`${each}/${isIP(each) === 6 ? 128 : 32}`);
      else hosts.push(each.toLowerCase());
    }
    this.#hosts = new Set(hosts);
    this.#networks = networkList(networks);
    this.#refusal = refusal;
  }

  /** Checks each address before a connection. The message does not name it: only operators may know private addresses. */
  readonly check: CheckAddress = (address, host) => {
    const reach = reachOf(address);
    if (reach === 'public') return;
    if (reach === 'private' && (this.#hosts.has(host.toLowerCase()) || isIn(this.#networks, address))) return;
    throw new AddressRefused(this.#refusal);
  };

  /** Only names that an operator has allowed are looked up with the shared threads of the process. */
  get resolve(): Resolve {
    return userNameLookup((hostname) => this.#hosts.has(hostname.toLowerCase()));
  }
}
