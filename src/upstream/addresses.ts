import { lookup as dnsLookup, type LookupAddress, type LookupOptions } from 'node:dns';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import type { Duplex } from 'node:stream';
import { createSecureContext, getCACertificates } from 'node:tls';

/** An address an upstream may not have; the message names it. */
export class AddressRefused extends Error {
  readonly code = 'ADDRESS_REFUSED';
}

/** `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` as the environment has them. */
export type ProxyEnvironment = Readonly<Record<string, string | undefined>>;

/** Resolves a name to all its addresses, as `dns.lookup` with `all` does. */
export type Resolve = (
  hostname: string,
  options: LookupOptions & { all: true },
  done: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/** Loopback and private networks: reached only where `allowPrivateNetwork` is set. */
const privateNetworks = blockList([
  '127.0.0.0/8', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', '198.18.0.0/15',
  '::1/128', 'fc00::/7',
]); // prettier-ignore

/** What no upstream is ever at: unspecified, link-local (cloud metadata), protocol, multicast and reserved. */
const neverNetworks = blockList([
  '0.0.0.0/8', '169.254.0.0/16', '192.0.0.0/24', '224.0.0.0/4', '240.0.0.0/4',
  '::/128', 'fe80::/10', 'fec0::/10', 'ff00::/8', '64:ff9b:1::/48', '2001::/32', '2002::/16',
]); // prettier-ignore

/** An IPv4 network counts in each way of writing it as IPv6: mapped (`BlockList` sees to that) and NAT64 (RFC 6052). */
function blockList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address, prefix] = network.split('/') as [string, string];
    if (isIP(address) === 6) {
      list.addSubnet(address, Number(prefix), 'ipv6');
    } else {
      list.addSubnet(address, Number(prefix), 'ipv4');
      list.addSubnet(`64:ff9b::${address}`, 96 + Number(prefix), 'ipv6');
    }
  }
  return list;
}

/** Throws `AddressRefused` unless an upstream may be at `address`. IPv4 in IPv6 counts as IPv4. */
export function checkAddress(address: string, allowPrivate: boolean): void {
  const bare = address.replace(/%.*$/, '');
  const family = isIP(bare) === 6 ? 'ipv6' : 'ipv4';
  if (isIP(bare) === 0 || neverNetworks.check(bare, family)) throw new AddressRefused(`${address} is never dialled`);
  if (!allowPrivate && privateNetworks.check(bare, family)) {
    throw new AddressRefused(
      `${address} is a private address; set allowPrivateNetwork for this upstream if that is meant`,
    );
  }
}

export interface AgentOptions {
  /** Whether loopback and private networks may be dialled. */
  allowPrivate: boolean;
  /** A proxy may be at any address, and resolves names itself; literal addresses are checked before it is asked. */
  proxy: ProxyEnvironment;
  /** Milliseconds a proxy may take to open a tunnel, and an idle connection is kept. */
  timeout: number;
  /** Authorities to trust besides the usual ones, PEM. */
  ca?: string | undefined;
  resolve?: Resolve | undefined;
}

/** Agents that dial only addresses an upstream may have, whether they were written as such or came from a name. */
export function checkedAgents(options: AgentOptions): { http: HttpAgent; https: HttpsAgent } {
  const { allowPrivate, proxy, timeout, ca, resolve = dnsLookup } = options;
  // `Connections` limits their number: a request that waits in an agent's own queue has no time-out.
  const common = { keepAlive: true, proxyEnv: proxy, timeout, scheduling: 'lifo' as const };
  const lookup = checkedLookup(allowPrivate, resolve);
  type Dial = (
    options: { host?: string; lookup?: LookupFunction },
    done: (error: Error | null, socket: Duplex) => void,
  ) => Duplex;
  const guard = <T extends HttpAgent>(agent: T): T => {
    const dial = agent.createConnection.bind(agent) as unknown as Dial;
    const guarded: Dial = (target, done) => {
      const host = target.host?.replace(/^\[|\]$/g, '') ?? '';
      if (isIP(host)) checkAddress(host, allowPrivate);
      return dial({ ...target, lookup }, done);
    };
    agent.createConnection = guarded;
    return agent;
  };
  // Made once: to read all authorities anew for each connection would take longer than the connection.
  const trust = ca !== undefined && {
    secureContext: createSecureContext({ ca: [...getCACertificates('default'), ca] }),
  };
  return { http: guard(new HttpAgent(common)), https: guard(new HttpsAgent({ ...common, ...trust })) };
}

/** A lookup that fails when any address of the name is refused: a name that resolves to both kinds is an attack. */
function checkedLookup(allowPrivate: boolean, resolve: Resolve): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, '', 0);
      try {
        for (const { address } of addresses) checkAddress(address, allowPrivate);
      } catch (refusal) {
        return callback(refusal as NodeJS.ErrnoException, '', 0);
      }
      if (options.all) return callback(null, addresses);
      const first = addresses[0]!;
      return callback(null, first.address, first.family);
    });
  };
}
