import cluster, { type Worker } from 'node:cluster';
import type { Logger } from 'pino';
import type { Terminal } from './with-installation.ts';

/** A worker that exits unexpectedly is replaced after this many milliseconds. */
const replaceAfter = 1000;

/** Whether this process is a worker. */
export function isWorker(): boolean {
  return cluster.isWorker;
}

/** Closes the channel to the first process, which would keep a closed worker running. */
export function leaveWorkers(): void {
  cluster.worker?.disconnect();
}

/**
 * Runs `count` server processes on one port and replaces a process that exits unexpectedly. After SIGTERM or SIGINT, stops
 * all of them and resolves when they have exited.
 */
export async function runWorkers(count: number, terminal: Terminal, log: Logger): Promise<void> {
  let closing = false;
  const exits: Promise<void>[] = [];
  const fork = () => {
    const worker: Worker = cluster.fork();
    exits.push(
      new Promise((resolve) =>
        worker.once('exit', (code, signal) => {
          if (!closing) {
            log.error({ worker: worker.id, code, signal }, 'a worker exited unexpectedly; starting a new one');
            setTimeout(() => !closing && fork(), replaceAfter).unref();
          }
          resolve();
        }),
      ),
    );
  };
  for (let index = 0; index < count; index += 1) fork();
  await new Promise<void>((resolve) => {
    terminal.once('SIGTERM', resolve);
    terminal.once('SIGINT', resolve);
  });
  closing = true;
  for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGTERM');
  await Promise.all(exits);
}
