import type { Logger } from 'pino';
import { Cache } from '../cache/cache.ts';
import { protocolWords, upstreamKindAt } from '../config/protocols.ts';
import { publicUpstreams } from '../config/upstreams.ts';
import type { UpstreamConfig } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import type { CheckAddress, ProxyEnvironment, Resolve } from '../upstream/addresses.ts';
import { readProxies } from '../upstream/configured.ts';
import { fixedCredentials } from '../upstream/credential-source.ts';
import { Upstream } from '../upstream/upstream.ts';
import { sourceId, type ImportSource } from './item.ts';
import { nexusRepositories } from './nexus.ts';

/** Longest time of each step of a request; milliseconds. */
const stepTimeout = 30_000;

export interface RemoteParts {
  cache: Cache;
  log: Logger;
  now: () => number;
  proxy: ProxyEnvironment;
  offline: boolean;
  /** Of a source that a user has named: decides to which addresses it may lead, and looks its names up. */
  reach?: { check: CheckAddress; resolve: Resolve } | undefined;
}

type ServerParts = RemoteParts & { sendsFirst?: boolean };

interface RemoteOptions {
  /** The secret, and the user to whom it belongs; without a user it is a bearer token. */
  secret?: string | undefined;
  user?: string | undefined;
  /** Certificate authorities to trust besides the default ones, PEM. */
  ca?: string | undefined;
}

/** What a server can be, by which it is read. */
export const serverKinds: readonly string[] = [...protocolWords.map(({ server }) => server), 'harbor', 'nexus'];

/**
 * The sources at an address; a Nexus has several. Without a kind, an address with a path is that of the index of a feed, and one
 * without that of a registry. `stack` closes them. Throws `Invalid` for an address that cannot be used.
 */
export async function openServer(
  kind: string | undefined,
  address: string,
  options: RemoteOptions,
  parts: Omit<RemoteParts, 'cache'> & { signal: AbortSignal },
  stack: AsyncDisposableStack,
): Promise<ImportSource[]> {
  const url = urlOfSource(address);
  // In memory of its own: a source may name the realm of another registry, and would choose the tokens of its other users.
  const cache = await Cache.open(undefined, parts.now, () => undefined);
  const open = (upstreamKind: string, at = url, sendsFirst = false) => {
    const remote = openRemote(upstreamKind, at, options, { ...parts, cache, sendsFirst });
    stack.defer(() => remote.close());
    return remote;
  };
  const registry = protocolWords.find(({ hasIndex }) => !hasIndex)!.upstream;
  if (kind === 'nexus') {
    const api = open(registry, url, true);
    const found = await nexusRepositories(api, parts.signal);
    return found.map((each) => sourceOf(open(each.kind, each.address)));
  }
  if (kind === 'harbor') {
    checkSource(kind, address);
    return [{ type: 'server', from: url.host, remote: open(registry), harbor: open(registry, url, true) }];
  }
  const named = protocolWords.find(({ server }) => server === kind);
  return [sourceOf(open(named?.upstream ?? upstreamKindAt(url)))];
}

function sourceOf(remote: Upstream): ImportSource {
  return { type: 'server', remote, from: remote.name };
}

/** Checks the address of a source of this kind, before it is opened. Throws `Invalid`. */
export function checkSource(kind: string, address: string): void {
  const { pathname } = urlOfSource(address);
  if (kind === 'harbor' && pathname !== '/')
    throw new DomainError('Invalid', 'The address of Harbor is that of its host, without a path.');
}

function urlOfSource(address: string): URL {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol))
    throw new DomainError('Invalid', 'The source needs an address with http or https.');
  if (url.username !== '' || url.password !== '')
    throw new DomainError('Invalid', 'The address of a source cannot have a password. Give it with --token-file.');
  return url;
}

/** The server of a source at an address. Only hosts of its own domain get the secret. */
function openRemote(kind: string, url: URL, { secret, user, ca }: RemoteOptions, parts: ServerParts): Upstream {
  const auth = user === undefined ? { bearer: secret ?? '' } : { username: user, password: secret ?? '' };
  const credentials = secret === undefined ? undefined : fixedCredentials(auth);
  return otherServer({ kind, url, name: url.host, id: sourceId }, credentials, { ...parts, ca });
}

/**
 * A server that the operator named and that is no upstream, reached as an upstream is: with time limits, retries and checked addresses.
 * Its own host may be in a private network; hosts to which it leads may not, unless `allowPrivateNetwork` or `reach` decides.
 */
export function otherServer(
  { url, ...named }: { kind: string; url: URL; name: string; id: string; allowPrivateNetwork?: boolean },
  credentials: ConstructorParameters<typeof Upstream>[2],
  parts: ServerParts & { ca: string | undefined },
): Upstream {
  const like = publicUpstreams.find(({ kind }) => kind === named.kind)!;
  const config: UpstreamConfig = { ...like, ...named, url: url.href, default: false, timeout: stepTimeout };
  return new Upstream(config, url, credentials, {
    ...parts,
    proxy: readProxies(parts.proxy),
    ...parts.reach,
    privateHost: url.hostname.replace(/^\[|\]$/g, ''),
  });
}
