import { ConfigError, readSecretFile } from '../config/load.ts';
import type { Config, UpstreamConfig } from '../config/schema.ts';
import type { ProxyEnvironment } from './addresses.ts';
import type { UpstreamAuth } from './credentials.ts';
import { Upstream, type UpstreamParts } from './upstream.ts';

/** The upstreams of the configuration, in its order. Throws `ConfigError` for an unreadable file or a wrong proxy. */
export function openUpstreams(config: Config, parts: Omit<UpstreamParts, 'offline' | 'ca'>): Upstream[] {
  const proxy = readProxies(parts.proxy);
  return config.upstreams.map((each, index) => {
    const key = `upstreams.${index}`;
    const auth = each.auth && readAuth(each.auth, `${key}.auth`);
    const ca = each.caFile === undefined ? undefined : readSecretFile(each.caFile, `${key}.caFile`);
    return new Upstream(each, baseOf(each), auth, { ...parts, proxy, ca, offline: config.offline });
  });
}

/**
 * The environment's proxies, in the form that Node's agents need. Node silently ignores a proxy without a scheme, and
 * reads a name in `NO_PROXY` as that one host, where other programs include its subdomains. Throws `ConfigError`.
 */
export function readProxies(environment: ProxyEnvironment): ProxyEnvironment {
  const proxies: Record<string, string> = {};
  for (const key of ['http_proxy', 'HTTP_PROXY', 'https_proxy', 'HTTPS_PROXY']) {
    const value = environment[key];
    if (!value) continue;
    const url = URL.parse(value.includes('://') ? value : `http://${value}`);
    if (!url || !/^https?:$/.test(url.protocol)) {
      throw new ConfigError(`${key}: expected the URL of an HTTP proxy, such as http://proxy.example:3128`);
    }
    proxies[key] = url.href;
  }
  const direct = environment['no_proxy'] || environment['NO_PROXY'];
  if (direct) {
    const entries = direct.split(/[\s,]+/).filter((entry) => entry !== '');
    proxies['no_proxy'] = entries
      .map((entry) => (/^[a-z][\w-]*(?:\.[\w-]+)*$/i.test(entry) ? `.${entry}` : entry))
      .join();
  }
  return proxies;
}

/** The base URL of an upstream: as configured, else derived from its name. */
export function baseOf({ kind, name, url }: Pick<UpstreamConfig, 'kind' | 'name' | 'url'>): URL {
  if (url !== undefined) return new URL(url);
  if (kind === 'nuget') return new URL(`https://api.${name}/v3/index.json`);
  return new URL(name === 'docker.io' ? `https://registry-1.${name}` : `https://${name}`);
}

/** The URL of a feed's symbol server: as configured, else the usual one of a public feed. Undefined if there is none. */
export function symbolsOf({ kind, name, url, symbolsUrl }: UpstreamConfig): URL | undefined {
  if (symbolsUrl !== undefined) return new URL(symbolsUrl);
  return kind === 'nuget' && url === undefined ? new URL(`https://symbols.${name}/download/symbols`) : undefined;
}

function readAuth(auth: NonNullable<UpstreamConfig['auth']>, key: string): UpstreamAuth {
  if ('bearer' in auth) return { bearer: auth.bearer };
  if ('bearerFile' in auth) return { bearer: readSecretFile(auth.bearerFile, `${key}.bearerFile`) };
  const { username } = auth;
  if ('password' in auth) return { username, password: auth.password };
  return { username, password: readSecretFile(auth.passwordFile, `${key}.passwordFile`) };
}
