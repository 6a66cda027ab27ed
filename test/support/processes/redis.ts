import { spawn, type ChildProcess } from 'node:child_process';
import { connect } from 'node:net';
import type { ExecutionContext } from 'ava';
import { findCommand } from '../../../scripts/packages.ts';
import { folderUntilEnd } from '../folder.ts';
import { endWithThisProcess } from './ending.ts';
import { freePort } from './services.ts';
import { until } from '../until.ts';

/** A private Redis for one test, which can kill, freeze and empty it. */
export interface OwnRedis {
  url: string;
  start(): Promise<void>;
  /** Kills it at once, as in a crash of its machine. */
  kill(): Promise<void>;
  /** Until `thaw`, it accepts connections and does not answer. */
  freeze(): void;
  thaw(): void;
}

export async function ownRedis(t: Pick<ExecutionContext, 'teardown'>): Promise<OwnRedis> {
  const path = findCommand('redis-server');
  if (path === undefined) throw new Error('redis-server is not on this machine: run the tests with npm test');
  const port = await freePort();
  // A replica writes what it gets from its primary.
  const cwd = await folderUntilEnd(t);
  let child: ChildProcess | undefined;
  const redis: OwnRedis = {
    url: `redis://127.0.0.1:${port}`,
    start: async () => {
      const options = ['--bind', '127.0.0.1', '--port', `${port}`, '--save', '', '--appendonly', 'no'];
      child = spawn(path, options, { stdio: 'ignore', cwd });
      endWithThisProcess(child);
      await until(() => answers(port));
    },
    kill: async () => {
      if (!child || child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise((resolve) => child!.once('exit', resolve));
      child.kill('SIGKILL');
      await ended;
    },
    freeze: () => void child!.kill('SIGSTOP'),
    thaw: () => void child!.kill('SIGCONT'),
  };
  t.teardown(() => redis.kill());
  return redis;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    socket.setTimeout(1000, () => socket.destroy());
    socket.once('data', (data) => {
      resolve(data.toString().startsWith('+PONG'));
      socket.destroy();
    });
    socket.on('error', () => undefined);
    socket.once('close', () => resolve(false));
  });
}
