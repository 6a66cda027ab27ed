import type { Logger } from 'pino';
import type { Cache } from '../cache/cache.ts';
import { upstreamKindAt } from '../config/protocols.ts';
import { publicUpstreams } from '../config/upstreams.ts';
import type { UpstreamConfig } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import type { ProxyEnvironment } from '../upstream/addresses.ts';
import { readProxies } from '../upstream/configured.ts';
import { fixedCredentials } from '../upstream/credential-source.ts';
import { Upstream } from '../upstream/upstream.ts';
import { sourceId } from './item.ts';

/** Longest time of each step of a request to a source; milliseconds. */
const sourceTimeout = 30_000;

interface RemoteParts {
  cache: Cache;
  log: Logger;
  now: () => number;
  proxy: ProxyEnvironment;
  offline: boolean;
}

interface RemoteOptions {
  /** The secret, and the user to whom it belongs; without a user it is a bearer token. */
  secret?: string | undefined;
  user?: string | undefined;
  /** Certificate authorities to trust besides the default ones, PEM. */
  ca?: string | undefined;
}

/**
 * The server at an address, reached as an upstream is: with time limits, retries and checked addresses. Its own host may be in a
 * private network, because the operator named it; hosts to which it leads may not. Only its own host gets the secret. Throws
 * `Invalid` for an address that cannot be used.
 */
export function openRemote(address: string, { secret, user, ca }: RemoteOptions, parts: RemoteParts): Upstream {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol))
    throw new DomainError('Invalid', 'The source needs an address with http or https.');
  if (url.username !== '' || url.password !== '')
    throw new DomainError('Invalid', 'The address of a source cannot have a password. Give it with --token-file.');
  const kind = upstreamKindAt(url);
  const config: UpstreamConfig = {
    ...publicUpstreams.find((each) => each.kind === kind)!,
    name: url.host,
    id: sourceId,
    url: url.href,
    default: false,
    timeout: sourceTimeout,
  };
  const auth = user === undefined ? { bearer: secret ?? '' } : { username: user, password: secret ?? '' };
  return new Upstream(config, url, secret === undefined ? undefined : fixedCredentials(auth), {
    ...parts,
    proxy: readProxies(parts.proxy),
    ca,
    privateHost: url.hostname.replace(/^\[|\]$/g, ''),
  });
}
