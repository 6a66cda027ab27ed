import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A function that runs `work` once for each call, one after another: when a call has ended, so have those before it. A run that
 * fails does not stop the next.
 */
export function inTurn(work: () => Promise<void>): () => Promise<void> {
  let last: Promise<void> = Promise.resolve();
  return () => {
    last = last.catch(() => undefined).then(work);
    return last;
  };
}

/**
 * As `inTurn`, but calls that wait for the run before them share the next run, which begins at least `pause` milliseconds after the
 * one before began. A call never gets the result of a run that began before it.
 */
export function inTurnShared<T>(work: () => Promise<T>, pause = 0): () => Promise<T> {
  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<T> | undefined;
  let beganAt = Number.NEGATIVE_INFINITY;
  const begin = async () => {
    await running.catch(() => undefined);
    const rest = beganAt + pause - performance.now();
    if (rest > 0) await sleep(rest);
    next = undefined;
    beganAt = performance.now();
    const run = work();
    running = run;
    return run;
  };
  return () => (next ??= begin());
}
