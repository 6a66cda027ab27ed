import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { answers } from '../../test/support/processes/services.ts';

/** A measured server: its address, and the resources that it has used so far. */
export interface Peer {
  name: string;
  url: string;
  /** Headers for each request. */
  headers: Record<string, string>;
  /** Seconds from the start to the first successful response. */
  startedIn: number;
  /** Seconds of CPU of the process and its children. */
  cpu(): number;
  /** Resident bytes, all processes together. */
  resident(): number;
  /** Peak resident bytes, all processes together. */
  peak(): number;
  stop(): Promise<void>;
}

/** Starts a server and waits until `probe` succeeds; its output goes to the file `log`. */
export async function startPeer(
  name: string,
  command: string,
  args: readonly string[],
  {
    url,
    probe,
    headers = {},
    env = process.env,
    log = '/dev/null',
  }: {
    url: string;
    probe: string;
    headers?: Record<string, string>;
    env?: NodeJS.ProcessEnv;
    log?: string | undefined;
  },
): Promise<Peer> {
  const output = await open(log, 'w');
  const startedAt = performance.now();
  const child = spawn(command, args, { stdio: ['ignore', output.fd, 'ignore'], env });
  await output.close();
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  while (!(await answers(probe))) {
    if (child.exitCode !== null || performance.now() - startedAt > 30_000) throw new Error(`${name} did not start`);
    await sleep(5);
  }
  const startedIn = (performance.now() - startedAt) / 1000;
  return {
    name,
    url,
    headers,
    startedIn,
    cpu: () => processesBelow(child.pid!).reduce((sum, pid) => sum + cpuOf(pid), 0),
    resident: () => processesBelow(child.pid!).reduce((sum, pid) => sum + residentOf(pid), 0),
    peak: () => processesBelow(child.pid!).reduce((sum, pid) => sum + residentOf(pid, 'VmHWM'), 0),
    stop: async () => {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
      await closed;
      clearTimeout(timer);
    },
  };
}

/** Waits for the end of a process; resolves to its peak resident bytes, with its children, and to what it wrote to its error output. */
export async function peakWhile(child: ChildProcess): Promise<{ peak: number; errors: string }> {
  let peak = 0;
  let errors = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => (errors += text));
  const timer = setInterval(() => {
    peak = Math.max(
      peak,
      processesBelow(child.pid!).reduce((sum, pid) => sum + residentOf(pid, 'VmHWM'), 0),
    );
  }, 20);
  await once(child, 'close');
  clearInterval(timer);
  return { peak, errors };
}

export const mebibyte = 2 ** 20;

/** The peak memory of each server so far, in MiB. */
export function peaks(peers: readonly Peer[]): { subject: string; values: number[] }[] {
  return peers.map((peer) => ({ subject: peer.name, values: [peer.peak() / mebibyte] }));
}

/** Resident bytes, and seconds of processor time so far, of the processes of `program` that this process started. */
export function usedBy(program: string): { resident: number; cpu: number } {
  const pids = processesBelow(process.pid).filter((pid) => nameOf(pid) === program);
  return {
    resident: pids.reduce((sum, pid) => sum + residentOf(pid), 0),
    cpu: pids.reduce((sum, pid) => sum + cpuOf(pid), 0),
  };
}

/** The process and those that it started, and so on. */
function processesBelow(first: number): number[] {
  const parents = new Map<number, number>();
  for (const entry of readdirSync('/proc')) {
    const fields = /^\d+$/.test(entry) ? statOf(Number(entry)) : undefined;
    if (fields) parents.set(Number(entry), Number(fields[1]));
  }
  const found = [first];
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

function nameOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return undefined;
  }
}

/** Resident bytes, now or at most so far. */
function residentOf(pid: number, field: 'VmRSS' | 'VmHWM' = 'VmRSS'): number {
  try {
    const found = new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return Number(found?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
