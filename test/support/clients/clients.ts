import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findCommand } from '../../../scripts/packages.ts';

// Real clients. Each has its own configuration, cache and credential file in the test's folder, so that it neither
// reads nor writes files of the machine's user. Tests write the command lines of the client.

/** Client's command → Debian package. */
export const clientCommands = {
  skopeo: 'skopeo',
  podman: 'podman',
  buildah: 'buildah',
  dockerd: 'docker.io',
};

/** Tools that are not clients: a builder of images, an upstream registry, a reverse proxy, readers of metrics, a browser. */
export const toolCommands = {
  umoci: 'umoci',
  'docker-registry': 'docker-registry',
  nginx: 'nginx-light',
  prometheus: 'prometheus',
  promtool: 'prometheus',
  'chromium-headless-shell': 'chromium-headless-shell',
};

/** No package manager here has the .NET SDK, so its tests run only if it is installed. */
const clientNames = [...Object.keys(clientCommands), 'dotnet'];

export interface Finished {
  code: number;
  stdout: string;
  stderr: string;
}

export interface CommandLine {
  /** Runs the client and returns its standard output; throws its output if it fails. */
  run(...args: string[]): Promise<string>;
  /** Runs the client, which must fail, and returns all its output. */
  fails(...args: string[]): Promise<string>;
}

interface RunOptions {
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  milliseconds?: number;
}

export function execute(path: string, args: string[], options: RunOptions = {}): Promise<Finished> {
  const { env = process.env, cwd, milliseconds = 300_000 } = options;
  return new Promise((resolve) => {
    const settings = { env, cwd, timeout: milliseconds, maxBuffer: 64 * 1024 * 1024 };
    execFile(path, args, settings, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : 1;
      const silent = error !== null && stdout === '' && stderr === '';
      resolve({ code, stdout, stderr: silent ? `${error.message}\n` : stderr });
    });
  });
}

/** A client with arguments and an environment that keep its files separate. */
export function commandLine(name: string, path: string, leading: string[], options: RunOptions): CommandLine {
  const start = (args: string[]): Promise<Finished> => {
    noteUse(name);
    return execute(path, [...leading, ...args], options);
  };
  return {
    run: async (...args) => {
      const { code, stdout, stderr } = await start(args);
      if (code !== 0) throw new Error(`${name} ${args.join(' ')}: ended with ${code}\n${stdout}${stderr}`);
      return stdout;
    },
    fails: async (...args) => {
      const { code, stdout, stderr } = await start(args);
      if (code === 0) throw new Error(`${name} ${args.join(' ')}: succeeded\n${stdout}${stderr}`);
      return stdout + stderr;
    },
  };
}

export function requiredCommand(name: string): string {
  const path = findCommand(name);
  if (path === undefined) throw new Error(`${name} is not on this machine`);
  return path;
}

/** Every client of the tests, with its version; undefined if it is not installed. */
export async function clientVersions(): Promise<Map<string, string | undefined>> {
  const versions = new Map<string, string | undefined>();
  for (const name of clientNames) {
    const path = findCommand(name);
    versions.set(name, path && firstVersion((await execute(path, ['--version'])).stdout));
  }
  return versions;
}

/** In lower case, because podman makes an image name from a path; short, because its run folder may have 50 characters. */
export async function temporaryFolder(): Promise<{ path: string; remove(): Promise<void> }> {
  const path = join(tmpdir(), `client-${randomBytes(2).toString('hex')}`);
  await mkdir(path, { mode: 0o700 });
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

function firstVersion(output: string): string {
  return /\d+(?:\.\d+)+[^\s,]*/.exec(output)?.[0] ?? output.trim();
}

/** Reports to scripts/test.ts that this client took part in the run. */
export function noteUse(client: string): void {
  const file = process.env.ENTREPOT_TEST_CLIENTS_USED;
  if (file !== undefined) appendFileSync(file, `${client}\n`);
}
