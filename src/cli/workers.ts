import cluster, { type Worker } from 'node:cluster';
import type { Logger } from 'pino';
import type { Terminal } from './with-installation.ts';

/** How soon a worker that ended by itself is replaced, in milliseconds. */
const replaceAfter = 1000;

/** Whether this process is one of several that serve. */
export function isWorker(): boolean {
  return cluster.isWorker;
}

/** Lets a worker that has closed come to its end: the channel to the first process would keep it. */
export function leaveWorkers(): void {
  cluster.worker?.disconnect();
}

/**
 * Runs `count` processes that serve on one port, replaces one that ends by itself, and resolves after SIGTERM or SIGINT,
 * when all have drained.
 */
export async function runWorkers(count: number, terminal: Terminal, log: Logger): Promise<void> {
  let closing = false;
  const gone: Promise<void>[] = [];
  const fork = () => {
    const worker: Worker = cluster.fork();
    gone.push(
      new Promise((resolve) =>
        worker.once('exit', (code, signal) => {
          if (!closing) {
            log.error({ worker: worker.id, code, signal }, 'a worker ended by itself and is replaced');
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
  await Promise.all(gone);
}
