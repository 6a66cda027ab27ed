import type { AddressInfo } from 'node:net';
import { hostname } from 'node:os';
import type { Logger } from 'pino';
import { ConfigError } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import type { AppServer } from '../http/listener.ts';
import { authorityOf } from '../runtime/authority.ts';
import type { Instance, Instances } from './instances.ts';
import { Relay } from './relay.ts';
import { RelayKey } from './relay-key.ts';
import { listenForRelay, type RelayHandler } from './relay-listener.ts';

interface JoinParts {
  config: Config;
  instances: Instances;
  log: Logger;
  now: () => number;
}

interface OpenInstances {
  /** How this process calls other instances; undefined without `server.internal`. */
  relay: Relay | undefined;
  /**
   * Listens for other instances, if `server.internal` is set, and adds this process, `name`, to the instances. Resolves to
   * the listener. Rejects with `ConfigError` if it cannot listen.
   */
  join(name: string | undefined, handlers: readonly RelayHandler[]): Promise<AppServer | undefined>;
}

/** Throws `ConfigError` if the secret of `server.internal` cannot be used. */
export function openInstances({ config, instances, log, now }: JoinParts): OpenInstances {
  const { host = '', port = 0, secretFile } = config.server.internal;
  const key = secretFile === undefined ? undefined : RelayKey.read(secretFile);
  const shared = config.server.workers > 1;
  const { folder } = instances;
  return {
    relay: key && new Relay(key, instances, now),
    join: async (name = hostname(), handlers) => {
      const options = { host, port, shared, folder, handlers, log, now };
      const server = key && (await listenForRelay({ ...options, key }).catch(nameListener));
      try {
        await instances.enter({ name, address: server ? addressOf(host, server) : null });
        const warning = relayAdvice(await instances.live());
        if (warning !== undefined) log.warn(warning);
        return server;
      } catch (error) {
        server?.http.close();
        throw error;
      }
    },
  };
}

function addressOf(host: string, { http }: AppServer): string {
  const { port } = http.address() as AddressInfo;
  return authorityOf(host, port);
}

function nameListener(error: NodeJS.ErrnoException): never {
  const isPort = error.code === 'EADDRINUSE' || error.code === 'EACCES';
  const key = isPort ? 'ENTREPOT_INTERNAL_PORT' : 'ENTREPOT_INTERNAL_HOST';
  throw new ConfigError(`${key}: cannot listen: ${error.message}`, { cause: error });
}

/** What to do if uploads cannot continue at every live instance; undefined if they can. */
export function relayAdvice(live: readonly Instance[]): string | undefined {
  const folders = new Set(live.map(({ folder }) => folder));
  const without = live.filter(({ address }) => address === null).map(({ name }) => name);
  if (folders.size < 2 || without.length === 0) return undefined;
  return `the live instances have ${folders.size} data folders, and other instances cannot reach ${without.join(', ')}: an upload that begins there fails at other instances. Set server.internal on all instances`;
}
