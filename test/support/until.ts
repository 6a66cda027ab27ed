/**
 * Waits until `condition` holds. Fails with the text of the condition when it does not hold within `milliseconds`, so
 * that a test which waits in vain ends with a reason and not with the time-out of the runner.
 */
export async function until(condition: () => boolean | Promise<boolean>, milliseconds = 10_000): Promise<void> {
  const deadline = performance.now() + milliseconds;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not true within ${milliseconds} ms: ${String(condition)}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** Asks until `check` holds, and gives the last answer after ten seconds at the latest: the test looks at it. */
export async function eventually<T>(ask: () => Promise<T>, check: (answer: T) => boolean): Promise<T> {
  const deadline = performance.now() + 10_000;
  for (;;) {
    const answer = await ask();
    if (check(answer) || performance.now() > deadline) return answer;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** What `work` comes to; fails when that takes longer than `milliseconds`, for work that might otherwise never end. */
export async function within<T>(work: Promise<T>, milliseconds = 10_000): Promise<T> {
  const deadline = Promise.withResolvers<never>();
  const timer = setTimeout(() => deadline.reject(new Error(`not over within ${milliseconds} ms`)), milliseconds);
  try {
    return await Promise.race([work, deadline.promise]);
  } finally {
    clearTimeout(timer);
  }
}
