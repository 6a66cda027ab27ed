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

/** Loopback and private networks: allowed only if `allowPrivateNetwork` is set. */
const privateNetworks = networkList([
  '127.0.0.0/8', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', '198.18.0.0/15',
  '::1/128', 'fc00::/7',
]); // prettier-ignore

/**
 * Never allowed: unspecified, link-local, protocol, multicast and reserved networks, and the metadata services of clouds, which
 * give credentials to every program on the machine (also 168.63.129.16 of Azure and 100.100.100.200 of Alibaba).
 */
const neverNetworks = networkList([
  '0.0.0.0/8', '169.254.0.0/16', '192.0.0.0/24', '224.0.0.0/4', '240.0.0.0/4',
  '168.63.129.16/32', '100.100.100.200/32', 'fd00:ec2::/32', 'fd20:ce::254/128',
  '::/128', 'fe80::/10', 'fec0::/10', 'ff00::/8', '64:ff9b:1::/48', '2001::/32', '2002::/16',
]); // prettier-ignore

/** `::1`, which the IPv4-compatible form of 0.0.0.0/8 would include. */
const loopback = new BlockList();
loopback.addAddress('::1', 'ipv6');

/**
 * An IPv4 network includes its IPv6 forms: mapped addresses (`BlockList` does that itself), NAT64 (RFC 6052),
 * IPv4-compatible addresses (RFC 4291, 2.5.5.1) and IPv4-translated ones (RFC 7915, 2.1). Networks are in CIDR notation.
 */
export function networkList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address, prefix] = network.split('/') as [string, string];
    if (isIP(address) === 6) {
      list.addSubnet(address, Number(prefix), 'ipv6');
    } else {
      list.addSubnet(address, Number(prefix), 'ipv4');
      for (const form of ['64:ff9b::', '::', '::ffff:0:']) {
        list.addSubnet(form + address, 96 + Number(prefix), 'ipv6');
      }
    }
  }
  return list;
}

/** Whether `address` is in a list that `networkList` made. A zone, as in `fe80::1%eth0`, does not matter. */
export function isIn(list: BlockList, address: string): boolean {
  const bare = address.replace(/%.*$/, '');
  return list.check(bare, isIP(bare) === 6 ? 'ipv6' : 'ipv4');
}

/** Public addresses are always allowed, private ones only if a setting says so, and the others never. */
export function reachOf(address: string): 'public' | 'private' | 'never' {
  const isKnown = isIP(address.replace(/%.*$/, '')) !== 0;
  if (!isKnown || (isIn(neverNetworks, address) && !isIn(loopback, address))) return 'never';
  return isIn(privateNetworks, address) ? 'private' : 'public';
}

/** Throws `AddressRefused` if a connection to `address`, an address of `host`, is not allowed. */
export type CheckAddress = (address: string, host: string) => void;

/** Throws `AddressRefused` unless an upstream may be at `address`. IPv4 in IPv6 counts as IPv4. */
export function checkAddress(address: string, allowPrivate: boolean): void {
  const reach = reachOf(address);
  if (reach === 'never') throw new AddressRefused(`${address} is never allowed for an upstream`);
  if (!allowPrivate && reach === 'private') {
    throw new AddressRefused(`${address} is a private address; set allowPrivateNetwork for this upstream to allow it`);
  }
}

export interface AgentOptions extends ConnectionOptions {
  /** Whether connections to loopback and private networks are allowed; or the one host to which they are. */
  allowPrivate: boolean | string;
  /** Decides in place of `allowPrivate`. */
  check?: CheckAddress | undefined;
}

export interface ConnectionOptions {
  /** A proxy may have any address, and resolves names itself. Literal addresses are checked before it gets the request. */
  proxy: ProxyEnvironment;
  /** Milliseconds that a proxy may take to open a tunnel, and that an idle connection is kept open. */
  timeout: number;
  /** Certificate authorities to trust besides the default ones, PEM. */
  ca?: string | undefined;
  resolve?: Resolve | undefined;
  /** Whether later requests use a connection again; true by default. */
  keepAlive?: boolean;
}

/** Agents that connect only to addresses an upstream may have, whether literal or resolved from a name. */
export function checkedAgents({ allowPrivate, check, ...options }: AgentOptions): {
  http: HttpAgent;
  https: HttpsAgent;
} {
  const isAllowed = (host: string) => (typeof allowPrivate === 'string' ? host === allowPrivate : allowPrivate);
  return agentsWith(check ?? ((address, host) => checkAddress(address, isAllowed(host))), options);
}

/** Agents that connect only to addresses that pass `check`, whether literal or resolved from a name. */
export function agentsWith(check: CheckAddress, options: ConnectionOptions): { http: HttpAgent; https: HttpsAgent } {
  const { proxy, timeout, ca, resolve = dnsLookup, keepAlive = true } = options;
  // `Connections` limits the number of sockets, because a request that waits in an agent's own queue has no time-out.
  const common = { keepAlive, proxyEnv: proxy, timeout, scheduling: 'lifo' as const };
  const lookup = checkedLookup(check, resolve);
  type Dial = (
    options: { host?: string; lookup?: LookupFunction },
    done: (error: Error | null, socket: Duplex) => void,
  ) => Duplex;
  const guard = <T extends HttpAgent>(agent: T): T => {
    const dial = agent.createConnection.bind(agent) as unknown as Dial;
    const guarded: Dial = (target, done) => {
      const host = target.host?.replace(/^\[|\]$/g, '') ?? '';
      if (isIP(host)) check(host, host);
      return dial({ ...target, lookup }, done);
    };
    agent.createConnection = guarded;
    return agent;
  };
  // Made once: reading all authorities for each connection would take longer than the connection itself.
  const trust = ca !== undefined && {
    secureContext: createSecureContext({ ca: [...getCACertificates('default'), ca] }),
  };
  return { http: guard(new HttpAgent(common)), https: guard(new HttpsAgent({ ...common, ...trust })) };
}

/** A lookup that fails if any address of the name is refused: a name with both allowed and refused ones is an attack. */
function checkedLookup(check: CheckAddress, resolve: Resolve): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, '', 0);
      try {
        for (const { address } of addresses) check(address, hostname);
      } catch (refusal) {
        return callback(refusal as NodeJS.ErrnoException, '', 0);
      }
      if (options.all) return callback(null, addresses);
      const first = addresses[0]!;
      return callback(null, first.address, first.family);
    });
  };
}
