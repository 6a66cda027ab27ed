/** What follows when work takes too long. */
interface Late<T> {
  /** The result then, or the error. Rejects with a general error by default. */
  late?: () => T;
  /** Whether the limit keeps the process running until it is over. True by default. */
  ref?: boolean;
}

/**
 * The result of `work`; after `milliseconds` that of `late`. The work then continues, and its result is ignored.
 * An answer that arrived while the process was busy is read first: it is not late.
 */
export function inTime<T, L = never>(
  work: () => Promise<T>,
  milliseconds: number,
  { late, ref = true }: Late<L> = {},
): Promise<T | L> {
  return new Promise((resolve, reject) => {
    const end = async () => {
      if (late) return late();
      throw new Error(`not done within ${Math.round(milliseconds)} ms`);
    };
    let last: NodeJS.Immediate | undefined;
    const timer = setTimeout(() => (last = setImmediate(() => void end().then(resolve, reject))), milliseconds);
    if (!ref) timer.unref();
    void Promise.resolve()
      .then(work)
      .then(resolve, reject)
      .finally(() => {
        clearTimeout(timer);
        clearImmediate(last);
      });
  });
}
