import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findCommand } from '../../../scripts/packages.ts';

// The real clients. Each gets a configuration, a cache and a credential file of its own under a test's folder, so that
// nothing of the machine's user is read or written. A test writes the client's own command lines.

/** Client's command → Debian package. */
export const clientCommands = {
  skopeo: 'skopeo',
  podman: 'podman',
  buildah: 'buildah',
  dockerd: 'docker.io',
};

/** Not clients of ours: one makes images, the other is a registry to stand upstream. */
export const toolCommands = {
  umoci: 'umoci',
  'docker-registry': 'docker-registry',
};

/** The .NET SDK is in no package client's reach: its tests run where it is. */
const clientNames = [...Object.keys(clientCommands), 'dotnet'];

export interface Finished {
  code: number;
  stdout: string;
  stderr: string;
}

export interface CommandLine {
  /** Runs the client and gives its standard output; throws what it said when it fails. */
  run(...args: string[]): Promise<string>;
  /** Runs the client, which must fail, and gives all it said. */
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

/** A client's command line whose leading arguments and environment keep it to itself. */
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

/** Every client the tests know, with its version, or undefined when the machine has none. */
export async function clientVersions(): Promise<Map<string, string | undefined>> {
  const versions = new Map<string, string | undefined>();
  for (const name of clientNames) {
    const path = findCommand(name);
    versions.set(name, path && firstVersion((await execute(path, ['--version'])).stdout));
  }
  return versions;
}

/** In lower case, for podman makes an image's name of a path; short, for its run folder may have 50 characters. */
export async function temporaryFolder(): Promise<{ path: string; remove(): Promise<void> }> {
  const path = join(tmpdir(), `client-${randomBytes(2).toString('hex')}`);
  await mkdir(path, { mode: 0o700 });
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

function firstVersion(said: string): string {
  return /\d+(?:\.\d+)+[^\s,]*/.exec(said)?.[0] ?? said.trim();
}

/** Tells scripts/test.ts that this client took part in the run. */
export function noteUse(client: string): void {
  const file = process.env.ENTREPOT_TEST_CLIENTS_USED;
  if (file !== undefined) appendFileSync(file, `${client}\n`);
}
