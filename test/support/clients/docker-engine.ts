import { spawn } from 'node:child_process';
import { createWriteStream, existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { commandLine, execute, requiredCommand, type CommandLine } from './clients.ts';

// A private Docker engine with its own socket and data folder. It does not change the network of the machine.
// By default it uses plain HTTP for all registries on a loopback address.

export interface DockerEngine {
  docker: CommandLine;
  /** Builds a small image with this content under a name, without network access. */
  build: (name: string, content: string) => Promise<void>;
  stop(): Promise<void>;
}

export interface EngineOptions {
  /** Its `registry-mirrors`, which it tries first for images of Docker Hub. */
  mirrors?: string[];
  /** The URL of a proxy, through which it reaches all hosts that are not on a loopback address. */
  proxy?: string;
}

export async function startDockerEngine(folder: string, options: EngineOptions = {}): Promise<DockerEngine> {
  await mkdir(folder, { recursive: true });
  const socket = `unix://${join(folder, 'socket')}`;
  const log = join(folder, 'dockerd.log');
  // Empty, so that the configuration of the machine is not used.
  const configuration = join(folder, 'daemon.json');
  await writeFile(configuration, '{}');
  const state = ['--data-root', join(folder, 'data'), '--exec-root', join(folder, 'exec')];
  const files = ['--pidfile', join(folder, 'pid'), '--config-file', configuration];
  const network = ['--bridge=none', '--iptables=false', '--ip6tables=false', '--ip-forward=false', '--ip-masq=false'];
  const mirrors = (options.mirrors ?? []).map((mirror) => `--registry-mirror=${mirror}`);
  const args = ['--host', socket, '--storage-driver=vfs', ...state, ...files, ...network, ...mirrors];
  const proxies = options.proxy !== undefined && { HTTP_PROXY: options.proxy, HTTPS_PROXY: options.proxy };
  const child = spawn(requiredCommand('dockerd'), args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...proxies },
  });
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
      const output = (await readFile(log, 'utf8')).trim().split('\n').slice(-5).join('\n');
      throw new Error(`dockerd did not start: ${output}`);
    }
    await sleep(100);
  }
  const env = { PATH: process.env.PATH, HOME: folder };
  const docker = commandLine('dockerd', path, leading, { env, cwd: folder });
  const build = async (name: string, content: string): Promise<void> => {
    const context = await mkdtemp(join(folder, 'context-'));
    await writeFile(join(context, 'Dockerfile'), 'FROM scratch\nCOPY content /\n');
    await writeFile(join(context, 'content'), content);
    await docker.run('build', '--network', 'none', '--tag', name, context);
  };
  return { docker, build, stop };
}

/** The client from the engine's package, if PATH finds another one first. */
function dockerClient(): string {
  return existsSync('/usr/bin/docker') ? '/usr/bin/docker' : requiredCommand('docker');
}
