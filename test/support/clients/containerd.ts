import { spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecutionContext } from 'ava';
import { commandLine, execute, requiredCommand, type CommandLine } from './clients.ts';

/**
 * Starts containerd with its files in the new folder `home`, until the test ends; resolves to its command line `ctr`. With
 * `hosts`, a folder of `hosts.toml` files, it also serves Kubernetes at `home/socket`.
 */
export async function startContainerd(t: ExecutionContext, home: string, hosts?: string): Promise<CommandLine> {
  await mkdir(home);
  const socket = join(home, 'socket');
  const files = ['--root', join(home, 'root'), '--state', join(home, 'state'), '--address', socket];
  const configuration = join(home, 'config.toml');
  const plugin = 'io.containerd.grpc.v1.cri';
  const settings =
    hosts === undefined
      ? `disabled_plugins = ["${plugin}"]\n`
      : `[plugins."${plugin}".registry]\nconfig_path = "${hosts}"\n[plugins."${plugin}".containerd]\nsnapshotter = "native"\n`;
  await writeFile(configuration, `version = 2\n${settings}`);
  const daemon = spawn(requiredCommand('containerd'), ['--config', configuration, ...files], { stdio: 'ignore' });
  const ended = new Promise((resolve) => daemon.once('close', resolve));
  t.teardown(async () => {
    daemon.kill('SIGTERM');
    await ended;
  });
  const isUp = async () => (await execute(requiredCommand('ctr'), ['--address', socket, 'version'])).code === 0;
  for (let attempt = 0; !(await isUp()); attempt += 1) {
    if (attempt === 100) throw new Error('containerd did not start');
    await sleep(100);
  }
  return commandLine('ctr', requiredCommand('ctr'), ['--address', socket], {});
}
