import { spawn } from 'node:child_process';
import { accessSync, constants, existsSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

// Installs the Debian packages that the tests need.

/** Debian installs daemons in folders that are not in the PATH of an ordinary user. */
const systemFolders = ['/usr/local/sbin', '/usr/sbin', '/sbin', '/usr/local/bin', '/usr/bin', '/bin'];

/** Debian's maintainer scripts run it before they start a service; exit code 101 forbids the start. */
const servicePolicy = '/usr/sbin/policy-rc.d';

export interface Missing {
  command: string;
  package: string;
}

export interface EnsuredCommands {
  /** Command name → absolute path. */
  paths: Map<string, string>;
  missing: Missing[];
  /** One line with the reason why commands are missing. */
  reason?: string;
}

export function findCommand(command: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(delimiter), ...systemFolders].filter((folder) => folder !== '');
  return folders.map((folder) => join(folder, command)).find(isExecutable);
}

/** Finds each command. Installs the packages of missing commands, if this process is root and has apt-get. */
export async function ensureCommands(wanted: Record<string, string>): Promise<EnsuredCommands> {
  const before = lookUp(wanted);
  if (before.missing.length === 0) return before;
  const packages = [...new Set(before.missing.map((each) => each.package))];
  if (process.getuid?.() !== 0) return { ...before, reason: `not root, so not installing ${packages.join(', ')}` };
  if (findCommand('apt-get') === undefined)
    return { ...before, reason: `there is no apt-get to install ${packages.join(', ')}` };

  console.error(`entrepot: installing Debian packages: ${packages.join(', ')}`);
  const trouble = await install(packages);
  const after = lookUp(wanted);
  return after.missing.length === 0
    ? after
    : { ...after, reason: trouble ?? 'the package does not contain the command' };
}

export function describeMissing({ missing, reason }: EnsuredCommands): string {
  const names = missing.map((each) => `${each.command} (Debian package ${each.package})`);
  return `not installed: ${names.join(', ')}${reason === undefined ? '' : ` – ${reason}`}`;
}

function lookUp(wanted: Record<string, string>): EnsuredCommands {
  const paths = new Map<string, string>();
  const missing: Missing[] = [];
  for (const [command, packageName] of Object.entries(wanted)) {
    const path = findCommand(command);
    if (path === undefined) missing.push({ command, package: packageName });
    else paths.set(command, path);
  }
  return { paths, missing };
}

/** Installs all packages together. If that fails, one by one, so that one bad package does not prevent the others. */
async function install(packages: string[]): Promise<string | undefined> {
  return withoutServiceStart(async () => {
    let trouble = await aptGet(['update']);
    const options = ['install', '-y', '--no-install-recommends', '-o', 'Dpkg::Options::=--force-confold'];
    const failure = await aptGet([...options, ...packages]);
    if (failure === undefined) return undefined;
    trouble ??= failure;
    if (packages.length > 1) for (const one of packages) trouble = (await aptGet([...options, one])) ?? trouble;
    return trouble;
  });
}

/** Prevents the packages from starting their services: the tests start private ones. Keeps an existing policy file. */
async function withoutServiceStart<T>(work: () => Promise<T>): Promise<T> {
  if (existsSync(servicePolicy)) return work();
  writeFileSync(servicePolicy, '#!/bin/sh\nexit 101\n', { mode: 0o755, flag: 'wx' });
  const remove = (): void => rmSync(servicePolicy, { force: true });
  process.once('exit', remove);
  try {
    return await work();
  } finally {
    remove();
    process.off('exit', remove);
  }
}

/** Runs apt-get; resolves to its error message, or to undefined after success. */
function aptGet(args: string[]): Promise<string | undefined> {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' };
  const child = spawn('apt-get', ['-qq', '-o', 'DPkg::Lock::Timeout=300', '-o', 'Dpkg::Use-Pty=0', ...args], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  return new Promise((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('close', (code) => resolve(code === 0 ? undefined : firstError(output)));
  });
}

function firstError(output: string): string {
  const lines = output.split('\n').map((line) => line.trim());
  return lines.find((line) => line.startsWith('E: ')) ?? lines.findLast((line) => line !== '') ?? 'apt-get failed';
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
