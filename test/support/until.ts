import { inspect } from 'node:util';

/**
 * Waits until `condition` is true. Fails with the source of the condition if it is not true within `milliseconds`, so
 * that the test ends with a reason and not with the timeout of the runner.
 */
export async function until(condition: () => boolean | Promise<boolean>, milliseconds = 60_000): Promise<void> {
  const deadline = performance.now() + milliseconds;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not true within ${milliseconds} ms: ${String(condition)}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/**
 * Repeats `ask` until `check` is true. Resolves to that answer. Fails with the last answer if `check` is not true within a
 * minute.
 */
export async function eventually<T>(ask: () => Promise<T>, check: (answer: T) => boolean): Promise<T> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    const answer = await ask();
    if (check(answer)) return answer;
    if (performance.now() > deadline)
      throw new Error(`not true within 60 s: ${String(check)}, at last ${inspect(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The result of `work`. Fails after `milliseconds`, for work that might never end. */
export async function within<T>(work: Promise<T>, milliseconds = 60_000): Promise<T> {
  const deadline = Promise.withResolvers<never>();
  const timer = setTimeout(() => deadline.reject(new Error(`not over within ${milliseconds} ms`)), milliseconds);
  try {
    return await Promise.race([work, deadline.promise]);
  } finally {
    clearTimeout(timer);
  }
}
