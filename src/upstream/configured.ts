import { ConfigError, readSecretFile } from '../config/load.ts';
import type { Config, UpstreamConfig } from '../config/schema.ts';
import { urlProblem } from '../config/password-url.ts';
import type { ProxyEnvironment } from './addresses.ts';
import { CredentialCommand } from './credential-command.ts';
import { fixedCredentials, SecretFile, type CredentialSource } from './credential-source.ts';
import { Upstream, type UpstreamParts } from './upstream.ts';

/** The upstreams of the configuration, in its order. Throws `ConfigError` for an unreadable file or a wrong proxy. */
export function openUpstreams(config: Config, parts: Omit<UpstreamParts, 'offline' | 'ca'>): Upstream[] {
  const proxy = readProxies(parts.proxy);
  return config.upstreams.map((each, index) => {
    const key = `upstreams.${index}`;
    const source = each.auth && credentialsIn(each, each.auth, `${key}.auth`, parts);
    const ca = each.caFile === undefined ? undefined : readSecretFile(each.caFile, `${key}.caFile`);
    return new Upstream(each, baseOf(each), source, { ...parts, proxy, ca, offline: config.offline });
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
    const address = value.includes('://') ? value : `http://${value}`;
    const problem = urlProblem(address);
    if (problem !== undefined) throw new ConfigError(`${key}: ${problem}`);
    const url = URL.parse(address);
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

/** The credentials in the setting `key`. Throws `ConfigError` for an unreadable file. */
export function credentialsIn(
  { id: upstream }: Pick<UpstreamConfig, 'id'>,
  auth: NonNullable<UpstreamConfig['auth']>,
  key: string,
  { log, now, proxy }: Pick<UpstreamParts, 'log' | 'now' | 'proxy'>,
): CredentialSource {
  if ('exec' in auth) {
    const onFailure = (reason: string) => log.warn({ upstream, reason }, 'an upstream has no new credentials');
    return new CredentialCommand({ command: auth.exec, environment: proxy, now, onFailure });
  }
  const onFailure = (reason: string) => log.warn({ upstream, reason }, 'a changed file with credentials was not used');
  if ('bearerFile' in auth) {
    const file = { file: auth.bearerFile, key: `${key}.bearerFile` };
    return new SecretFile({ ...file, authOf: (bearer) => ({ bearer }), now, onFailure });
  }
  if ('passwordFile' in auth) {
    const { username, passwordFile } = auth;
    const file = { file: passwordFile, key: `${key}.passwordFile` };
    return new SecretFile({ ...file, authOf: (password) => ({ username, password }), now, onFailure });
  }
  return fixedCredentials(auth);
}
