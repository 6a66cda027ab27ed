import { spawn } from 'node:child_process';
import { createWriteStream, existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { commandLine, execute, requiredCommand, type CommandLine } from './clients.ts';

// A Docker engine of the test's own: another socket, another data folder, and no network of the machine touched.
// It speaks plain HTTP to every registry on a loopback address by default.

export interface DockerEngine {
  docker: CommandLine;
  stop(): Promise<void>;
}

export interface EngineOptions {
  /** Its `registry-mirrors`: asked first for Docker Hub's images. */
  mirrors?: string[];
}

export async function startDockerEngine(folder: string, options: EngineOptions = {}): Promise<DockerEngine> {
  await mkdir(folder, { recursive: true });
  const socket = `unix://${join(folder, 'socket')}`;
  const log = join(folder, 'dockerd.log');
  // Empty, in place of the machine's own.
  const configuration = join(folder, 'daemon.json');
  await writeFile(configuration, '{}');
  const state = ['--data-root', join(folder, 'data'), '--exec-root', join(folder, 'exec')];
  const files = ['--pidfile', join(folder, 'pid'), '--config-file', configuration];
  const network = ['--bridge=none', '--iptables=false', '--ip6tables=false', '--ip-forward=false', '--ip-masq=false'];
  const mirrors = (options.mirrors ?? []).map((mirror) => `--registry-mirror=${mirror}`);
  const args = ['--host', socket, '--storage-driver=vfs', ...state, ...files, ...network, ...mirrors];
  const child = spawn(requiredCommand('dockerd'), args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const file = createWriteStream(log);
  child.stdout.pipe(file, { end: false });
  child.stderr.pipe(file, { end: false });
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await closed;
    file.end();
    await rm(join(folder, 'data'), { recursive: true, force: true });
  };

  const leading = ['--config', join(folder, 'client'), '--host', socket];
  const path = dockerClient();
  for (let attempt = 0; (await execute(path, [...leading, 'version'])).code !== 0; attempt++) {
    if (child.exitCode !== null || attempt === 300) {
      await stop();
      const said = (await readFile(log, 'utf8')).trim().split('\n').slice(-5).join('\n');
      throw new Error(`dockerd did not start: ${said}`);
    }
    await sleep(100);
  }
  const env = { PATH: process.env.PATH, HOME: folder };
  return { docker: commandLine('dockerd', path, leading, { env, cwd: folder }), stop };
}

/** The client of the engine's own package, where another one precedes it on PATH. */
function dockerClient(): string {
  return existsSync('/usr/bin/docker') ? '/usr/bin/docker' : requiredCommand('docker');
}
