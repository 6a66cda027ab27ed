import { createClient } from '@keyv/redis';
import { inTime } from '../runtime/in-time.ts';

/** Milliseconds for the answer of one Sentinel, with its connection. */
const answerTime = 500;
const defaultPort = 26_379;

export interface Address {
  host: string;
  port: number;
}

/** The address of Redis behind Sentinels, and how to sign in there. The Sentinels themselves are asked without a password. */
export interface SentinelPlace {
  sentinels: readonly Address[];
  /** The name of the primary in the configuration of the Sentinels. */
  name: string;
  username: string | undefined;
  password: string | undefined;
  database: number;
}

/** The place in `redis+sentinel://user:password@host:port,host:port/name/database`; undefined for another address. */
export function sentinelPlace(url: string): SentinelPlace | undefined {
  const parts = /^redis\+sentinel:\/\/(?:([^/]*)@)?([^@/]+)\/([^/]+)(?:\/(\d+))?$/.exec(url);
  if (!parts) return undefined;
  const [, user, hosts = '', name = '', database = '0'] = parts;
  const [username = '', password] = user?.split(/:(.*)/s, 2).map(decodeURIComponent) ?? [];
  const sentinels = hosts.split(',').map((each) => {
    const { hostname, port } = new URL(`redis://${each}`);
    return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? defaultPort : Number(port) };
  });
  return {
    sentinels,
    name: decodeURIComponent(name),
    username: username === '' ? undefined : username,
    password,
    database: Number(database),
  };
}

/** The address of the primary that a Sentinel names; rejects if none answers. Takes at most half a second for each. */
export async function primaryOf({ sentinels, name }: SentinelPlace): Promise<Address> {
  let reason: unknown;
  for (const sentinel of sentinels) {
    try {
      return await ask(sentinel, name);
    } catch (error) {
      reason = error;
    }
  }
  throw new Error(`no Sentinel names the primary ${name}: ${(reason as Error).message}`, { cause: reason });
}

async function ask(sentinel: Address, name: string): Promise<Address> {
  const client = createClient({ socket: { ...sentinel, connectTimeout: answerTime, reconnectStrategy: false } });
  // The failure also reaches the command.
  client.on('error', () => undefined);
  const asking = client.connect().then(() => client.sendCommand(['SENTINEL', 'get-master-addr-by-name', name]));
  try {
    const answer: unknown = await inTime(() => asking, answerTime, { late: noAnswer });
    if (!Array.isArray(answer)) throw new Error(`the Sentinel at ${sentinel.host}:${sentinel.port} does not know it`);
    const [host, port] = answer.map(String) as [string, string];
    return { host, port: Number(port) };
  } finally {
    asking.catch(() => undefined);
    if (client.isOpen) client.destroy();
  }
}

function noAnswer(): never {
  throw new Error('a Sentinel has not answered in time');
}
