import cluster, { type Worker } from 'node:cluster';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { WorkerExchange, WorkerReports, type Channel } from '../metrics/exchange.ts';

/** Times in milliseconds. */
interface WorkerTimes {
  /** The first pause before a worker that exited unexpectedly is replaced; it doubles with each further exit. */
  firstPause: number;
  maxPause: number;
  /** A worker that ran for this long is replaced after the first pause again. */
  stable: number;
}

const defaultTimes: WorkerTimes = { firstPause: 1000, maxPause: 30_000, stable: 60_000 };

/** Whether this process is a worker. */
export function isWorker(): boolean {
  return cluster.isWorker;
}

/** The exchange of metrics with the other workers; undefined in a process that is no worker. */
export function openExchange(): WorkerExchange | undefined {
  return cluster.worker && new WorkerExchange(channelOf(cluster.worker));
}

/** Closes the channel to the first process, which would keep a closed worker running. */
export function leaveWorkers(): void {
  cluster.worker?.disconnect();
}

function channelOf(worker: Worker): Channel {
  return {
    send: (message) => {
      if (worker.isConnected()) worker.send(message, () => undefined);
    },
    onMessage: (listener) => void worker.on('message', listener),
  };
}

/**
 * Runs `count` server processes on one port, and replaces a process that exits unexpectedly, after a pause that grows while
 * it exits again and again. After `stop` is aborted, sends SIGTERM to all of them, and SIGKILL to those that run for `bound`
 * milliseconds after it. Resolves, when all have exited, to whether they exited in time.
 */
export async function runWorkers(
  count: number,
  stop: AbortSignal,
  bound: number,
  log: Logger,
  times: WorkerTimes = defaultTimes,
): Promise<boolean> {
  const running = new Set<Worker>();
  const reports = new WorkerReports();
  let inTime = true;
  const kill = (signal: NodeJS.Signals) => {
    for (const worker of running) worker.process.kill(signal);
  };
  const limit = Promise.withResolvers<void>();
  stop.addEventListener('abort', () => {
    kill('SIGTERM');
    const timer = setTimeout(() => {
      inTime = false;
      log.error({ workers: running.size }, 'workers did not exit in time and are killed');
      kill('SIGKILL');
    }, bound);
    void limit.promise.then(() => clearTimeout(timer));
  });
  const keepRunning = async () => {
    for (let pause = times.firstPause; !stop.aborted; pause = Math.min(times.maxPause, pause * 2)) {
      const startedAt = performance.now();
      const worker = cluster.fork();
      running.add(worker);
      const ended = reports.add(channelOf(worker));
      // A fork that fails also emits `exit`.
      worker.on('error', () => undefined);
      const [code, signal] = await new Promise<[number, string]>((resolve) =>
        worker.once('exit', (...end: [number, string]) => resolve(end)),
      );
      running.delete(worker);
      ended();
      if (stop.aborted) return;
      if (performance.now() - startedAt >= times.stable) pause = times.firstPause;
      log.error({ worker: worker.id, code, signal, pause }, 'a worker exited unexpectedly; starting a new one');
      await sleep(pause, undefined, { signal: stop }).catch(() => undefined);
    }
  };
  await Promise.all(Array.from({ length: count }, keepRunning));
  limit.resolve();
  return inTime;
}
