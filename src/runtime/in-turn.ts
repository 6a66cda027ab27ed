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

/** As `inTurn`, but calls that wait for the run before them share the next run. */
export function inTurnShared(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> = Promise.resolve();
  let next: Promise<void> | undefined;
  return () => {
    next ??= running
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        running = work();
        return running;
      });
    return next;
  };
}
