import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

// Private database and cache servers for tests. `scripts/test.ts` starts one of each for a whole run. Each test file
// gets its own database from `createDatabase`.

export const serviceCommands = {
  mariadbd: 'mariadb-server',
  'mariadb-install-db': 'mariadb-server',
  'redis-server': 'redis-server',
};

export interface Services {
  databaseUrl: string;
  redisUrl: string;
  stop(): Promise<void>;
}

export interface TestDatabase {
  url: string;
  drop(): Promise<void>;
}

interface Running {
  url: string;
  stop(): Promise<void>;
}

/** The servers write only to `folder`. The caller removes it. */
export async function startServices(folder: string, paths: ReadonlyMap<string, string>): Promise<Services> {
  const started = await Promise.allSettled([
    startMariadb(join(folder, 'mariadb'), paths),
    startRedis(join(folder, 'redis'), paths),
  ]);
  const stop = async (): Promise<void> => {
    for (const each of started) if (each.status === 'fulfilled') await each.value.stop();
  };
  const [mariadb, redis] = started;
  if (mariadb.status === 'fulfilled' && redis.status === 'fulfilled')
    return { databaseUrl: mariadb.value.url, redisUrl: redis.value.url, stop };
  await stop();
  throw started.find((each) => each.status === 'rejected')?.reason;
}

/** Creates an empty database on the MySQL server of the run. */
export async function createDatabase(server = process.env.ENTREPOT_TEST_DATABASE_URL): Promise<TestDatabase> {
  if (server === undefined) throw new Error('ENTREPOT_TEST_DATABASE_URL is not set: run the tests with npm test');
  const name = `entrepot_${randomBytes(8).toString('hex')}`;
  await statement(server, `CREATE DATABASE ${name} CHARACTER SET utf8mb4`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return { url: url.href, drop: () => statement(server, `DROP DATABASE IF EXISTS ${name}`) };
}

/** The Redis server of the run. All test files share it, so use a random key prefix. */
export function redisUrl(): string {
  const url = process.env.ENTREPOT_TEST_REDIS_URL;
  if (url === undefined) throw new Error('ENTREPOT_TEST_REDIS_URL is not set: run the tests with npm test');
  return url;
}

/** Whether a server answers at this address with this status. */
export async function answers(url: string, status = 200): Promise<boolean> {
  try {
    const response = await fetch(url);
    await response.arrayBuffer();
    return response.status === status;
  } catch {
    return false;
  }
}

/**
 * A port that nothing uses. It is below those that the system gives to connections and to servers without a port, so that none of
 * other tests takes it before it is used, or while its server is started again.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_768);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) =>
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true)),
    );
    if (!isFree) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

async function startMariadb(folder: string, paths: ReadonlyMap<string, string>): Promise<Running> {
  await installMariadb(folder, command(paths, 'mariadb-install-db'));
  return onFreePort(async (port) => {
    const server = await runMariadb(folder, command(paths, 'mariadbd'), port, ['--innodb-flush-log-at-trx-commit=0']);
    return { url: mariadbUrl(port), stop: () => kill(server) };
  });
}

export function mariadbUrl(port: number): string {
  return `mysql://root@127.0.0.1:${port}/`;
}

/** Creates the files of an empty MariaDB in `folder`, with `program`, which is mariadb-install-db. */
export async function installMariadb(folder: string, program: string): Promise<void> {
  await mkdir(join(folder, 'data'), { recursive: true });
  // --force: also work on a machine that cannot resolve its own name.
  const setup = ['--auth-root-authentication-method=normal', '--skip-test-db', '--skip-name-resolve', '--force'];
  const log = join(folder, 'install.log');
  await finished(launch(program, [...mariadbOptions(folder), ...setup], log), log);
}

/** Starts `program`, which is mariadbd, on the files in `folder`; resolves when it answers. */
export async function runMariadb(
  folder: string,
  program: string,
  port: number,
  more: readonly string[],
): Promise<ChildProcess> {
  const log = join(folder, 'mariadbd.log');
  const tuning = [
    '--skip-name-resolve',
    '--skip-log-bin',
    '--performance-schema=OFF',
    '--max-connections=2000',
    '--back-log=1000',
    // A busy machine can take longer than the 10 s of the default to greet a client.
    '--connect-timeout=60',
    '--innodb-buffer-pool-size=64M',
    '--innodb-log-file-size=16M',
    '--innodb-flush-method=nosync',
    '--innodb-doublewrite=OFF',
    '--character-set-server=utf8mb4',
  ];
  const address = ['--bind-address=127.0.0.1', `--port=${port}`, `--socket=${join(folder, 'sock')}`];
  const server = launch(program, [...mariadbOptions(folder), ...address, ...tuning, ...more], log);
  await ready(server, log, () => statement(mariadbUrl(port), 'SELECT 1'));
  return server;
}

function mariadbOptions(folder: string): string[] {
  // The server refuses to run as root without this option.
  const user = process.getuid?.() === 0 ? ['--user=root'] : [];
  return ['--no-defaults', `--datadir=${join(folder, 'data')}`, `--tmpdir=${folder}`, ...user];
}

async function startRedis(folder: string, paths: ReadonlyMap<string, string>): Promise<Running> {
  await mkdir(folder, { recursive: true });
  return onFreePort(async (port) => {
    const log = join(folder, 'redis.log');
    const options = ['--bind', '127.0.0.1', '--port', `${port}`, '--dir', folder, '--save', '', '--appendonly', 'no'];
    const server = launch(command(paths, 'redis-server'), options, log);
    await ready(server, log, () => ping(port));
    return { url: `redis://127.0.0.1:${port}`, stop: () => kill(server) };
  });
}

function command(paths: ReadonlyMap<string, string>, name: string): string {
  const path = paths.get(name);
  if (path === undefined) throw new Error(`${name} is not on this machine`);
  return path;
}

/** Another process may take the port before the server binds it. Then this tries another port. */
async function onFreePort<T>(start: (port: number) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start(await freePort());
    } catch (error) {
      if (attempt === 3) throw error;
    }
  }
}

function launch(path: string, args: string[], log: string): ChildProcess {
  const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const file = createWriteStream(log);
  child.stdout.pipe(file, { end: false });
  child.stderr.pipe(file, { end: false });
  child.once('close', () => file.end());
  // The caller that waits for the start gets its failure. Without this, the rejection would end the process before.
  child.on('error', (error) => file.write(`${error.message}\n`));
  return child;
}

function hasEnded(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}

async function finished(child: ChildProcess, log: string): Promise<void> {
  const code = await new Promise((resolve) => child.once('close', resolve));
  if (code !== 0) throw new Error(`${child.spawnfile} ended with ${String(code)}: ${await lastLines(log)}`);
}

async function lastLines(log: string): Promise<string> {
  const lines = (await readFile(log, 'utf8')).split('\n').filter((line) => line.trim() !== '');
  return lines.slice(-5).join(' | ');
}

async function ready(child: ChildProcess, log: string, probe: () => Promise<unknown>): Promise<void> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    try {
      await probe();
      return;
    } catch (error) {
      if (!hasEnded(child) && Date.now() < deadline) {
        await sleep(50);
        continue;
      }
      await kill(child);
      throw new Error(`${child.spawnfile} did not start: ${await lastLines(log)}`, { cause: error });
    }
  }
}

/** Kills them at once, because their data is not kept. */
async function kill(child: ChildProcess): Promise<void> {
  if (hasEnded(child)) return;
  const closed = new Promise((resolve) => child.once('close', resolve));
  child.kill('SIGKILL');
  await closed;
}

async function statement(server: string, sql: string): Promise<void> {
  // Tests on SQLite do not load it.
  const { createConnection } = await import('mysql2/promise');
  const connection = await createConnection({ uri: server, connectTimeout: 60_000 });
  try {
    await connection.query(sql);
  } finally {
    connection.destroy();
  }
}

function ping(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  return new Promise<void>((resolve, reject) => {
    socket.setTimeout(1000, () => reject(new Error('no answer')));
    socket.once('error', reject);
    socket.once('data', (answer) =>
      answer.toString().startsWith('+PONG') ? resolve() : reject(new Error(answer.toString())),
    );
    socket.write('PING\r\n');
  }).finally(() => socket.destroy());
}
