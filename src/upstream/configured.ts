import { readSecretFile } from '../config/load.ts';
import type { Config, UpstreamConfig } from '../config/schema.ts';
import type { UpstreamAuth } from './credentials.ts';
import { Upstream, type UpstreamParts } from './upstream.ts';

/** The upstreams of the configuration, in its order; throws `ConfigError` when a secret cannot be read. */
export function openUpstreams(config: Config, parts: Omit<UpstreamParts, 'offline'>): Upstream[] {
  return config.upstreams.map((each, index) => {
    const auth = each.auth && readAuth(each.auth, `upstreams.${index}.auth`);
    return new Upstream(each, baseOf(each), auth, { ...parts, offline: config.offline });
  });
}

/** Where an upstream is: as configured, else derived from its name. */
export function baseOf({ kind, name, url }: Pick<UpstreamConfig, 'kind' | 'name' | 'url'>): URL {
  if (url !== undefined) return new URL(url);
  if (kind === 'nuget') return new URL(`https://api.${name}/v3/index.json`);
  return new URL(name === 'docker.io' ? `https://registry-1.${name}` : `https://${name}`);
}

function readAuth(auth: NonNullable<UpstreamConfig['auth']>, key: string): UpstreamAuth {
  if ('bearer' in auth) return { bearer: auth.bearer };
  if ('bearerFile' in auth) return { bearer: readSecretFile(auth.bearerFile, `${key}.bearerFile`) };
  const { username } = auth;
  if ('password' in auth) return { username, password: auth.password };
  return { username, password: readSecretFile(auth.passwordFile, `${key}.passwordFile`) };
}
