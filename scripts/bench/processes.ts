import { spawn, type ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** A server under measurement: its address and what it has used so far. */
export interface Peer {
  name: string;
  url: string;
  /** Headers that a request needs. */
  headers: Record<string, string>;
  /** Seconds of CPU of the process and its children. */
  cpu(): number;
  /** Peak resident bytes, all processes together. */
  peak(): number;
  stop(): Promise<void>;
}

/** Starts a server and waits until `probe` answers with anything. */
export async function startPeer(
  name: string,
  command: string,
  args: readonly string[],
  options: { url: string; probe: string; headers?: Record<string, string>; env?: NodeJS.ProcessEnv },
): Promise<Peer> {
  const child = spawn(command, args, { stdio: 'ignore', env: options.env ?? process.env });
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  for (let attempt = 0; !(await answers(options.probe)); attempt += 1) {
    if (child.exitCode !== null || attempt === 600) throw new Error(`${name} did not start`);
    await sleep(50);
  }
  return {
    name,
    url: options.url,
    headers: options.headers ?? {},
    cpu: () => processesOf(child).reduce((sum, pid) => sum + cpuOf(pid), 0),
    peak: () => processesOf(child).reduce((sum, pid) => sum + peakOf(pid), 0),
    stop: async () => {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
      await closed;
      clearTimeout(timer);
    },
  };
}

async function answers(url: string): Promise<boolean> {
  try {
    await (await fetch(url)).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}

function processesOf(child: ChildProcess): number[] {
  const parents = new Map<number, number>();
  for (const entry of readdirSync('/proc')) {
    const fields = /^\d+$/.test(entry) ? statOf(Number(entry)) : undefined;
    if (fields) parents.set(Number(entry), Number(fields[1]));
  }
  const found = [child.pid!];
  for (const pid of found) for (const [each, parent] of parents) if (parent === pid) found.push(each);
  return found;
}

/** The fields of /proc/PID/stat after the command's name. */
function statOf(pid: number): string[] | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
  } catch {
    return undefined;
  }
}

function cpuOf(pid: number): number {
  const fields = statOf(pid);
  return fields ? (Number(fields[11]) + Number(fields[12])) / 100 : 0;
}

function peakOf(pid: number): number {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
