import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createClient } from '@redis/client';
import { requiredCommand } from '../clients/clients.ts';
import { until } from '../until.ts';
import { endWithThisProcess } from './ending.ts';
import { freePort } from './services.ts';

/** Redis servers that replicate, and Sentinels that replace a primary which is gone. */
export interface SentinelRedis {
  /** For the setting `redis.url`. */
  url: string;
  /** The port of the primary as a Sentinel knows it. */
  primary(): Promise<number>;
  /** Kills a Redis at once, as in a crash of its machine. */
  kill(port: number): Promise<void>;
  /** Kills a Sentinel; they are counted from 0. */
  killSentinel(index: number): Promise<void>;
  stop(): Promise<void>;
}

export interface SentinelCounts {
  redis: number;
  sentinels: number;
  /** Milliseconds without an answer after which a Redis is down. */
  downAfter: number;
}

/** The name of the primary. */
const name = 'main';

/** Starts them in `folder`; resolves when each Sentinel knows all others. Debian package: redis-server. */
export async function startSentinelRedis(folder: string, counts: SentinelCounts): Promise<SentinelRedis> {
  const program = requiredCommand('redis-server');
  const children = new Map<number, ChildProcess>();
  const start = async (port: number, args: readonly string[]) => {
    const child = spawn(program, args, { stdio: 'ignore' });
    endWithThisProcess(child);
    children.set(port, child);
    await until(async () => (await send(port, ['PING']).catch(() => undefined)) === 'PONG');
  };
  const ports = await Promise.all(Array.from({ length: counts.redis }, () => freePort()));
  for (const port of ports) {
    const dir = join(folder, `redis-${port}`);
    await mkdir(dir, { recursive: true });
    const options = [
      '--bind',
      '127.0.0.1',
      '--port',
      `${port}`,
      '--dir',
      dir,
      '--save',
      '',
      '--repl-diskless-sync-delay',
      '0',
    ];
    await start(port, port === ports[0] ? options : [...options, '--replicaof', `127.0.0.1 ${ports[0]}`]);
  }
  const replicas = counts.redis - 1;
  await until(async () =>
    String(await send(ports[0]!, ['INFO', 'replication'])).includes(`connected_slaves:${replicas}`),
  );
  const sentinels = await Promise.all(Array.from({ length: counts.sentinels }, () => freePort()));
  const quorum = Math.floor(counts.sentinels / 2) + 1;
  for (const port of sentinels) {
    const file = join(folder, `sentinel-${port}.conf`);
    await writeFile(
      file,
      `port ${port}
bind 127.0.0.1
dir ${folder}
sentinel monitor ${name} 127.0.0.1 ${ports[0]} ${quorum}
sentinel down-after-milliseconds ${name} ${counts.downAfter}
sentinel failover-timeout ${name} 10000
`,
    );
    await start(port, [file, '--sentinel']);
  }
  for (const port of sentinels)
    await until(async () => {
      const state = (await send(port, ['SENTINEL', 'MASTER', name])) as string[];
      const valueOf = (key: string) => Number(state[state.indexOf(key) + 1]);
      return valueOf('num-slaves') === replicas && valueOf('num-other-sentinels') === counts.sentinels - 1;
    }, 30_000);
  const kill = async (port: number) => {
    const child = children.get(port)!;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  };
  return {
    url: `redis+sentinel://${sentinels.map((port) => `127.0.0.1:${port}`).join(',')}/${name}`,
    primary: async () => {
      const answer = await send(sentinels.at(-1)!, ['SENTINEL', 'get-master-addr-by-name', name]);
      return Number((answer as string[])[1]);
    },
    kill,
    killSentinel: (index) => kill(sentinels[index]!),
    stop: async () => {
      await Promise.all([...children.keys()].map(kill));
    },
  };
}

async function send(port: number, command: string[]): Promise<unknown> {
  const client = createClient({ socket: { host: '127.0.0.1', port, reconnectStrategy: false } });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await client.sendCommand(command);
  } finally {
    if (client.isOpen) client.destroy();
  }
}
