import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

/** Waits before a condition is asked again: a twentieth of the time so far, because most conditions are requests, which other tests pay for. */
function waitToAsk(startedAt: number): Promise<void> {
  return sleep(Math.min(50, Math.max(2, (performance.now() - startedAt) / 20)));
}

/**
 * Waits until `condition` is true. Fails with the source of the condition if it is not true within `milliseconds`, so
 * that the test ends with a reason and not with the timeout of the runner.
 */
export async function until(condition: () => boolean | Promise<boolean>, milliseconds = 60_000): Promise<void> {
  const startedAt = performance.now();
  while (!(await condition())) {
    if (performance.now() - startedAt > milliseconds)
      throw new Error(`not true within ${milliseconds} ms: ${String(condition)}`);
    await waitToAsk(startedAt);
  }
}

/**
 * Repeats `ask` until `check` is true. Resolves to that answer. Fails with the last answer if `check` is not true within a
 * minute.
 */
export async function eventually<T>(ask: () => Promise<T>, check: (answer: T) => boolean): Promise<T> {
  const startedAt = performance.now();
  for (;;) {
    const answer = await ask();
    if (check(answer)) return answer;
    if (performance.now() - startedAt > 60_000)
      throw new Error(`not true within 60 s: ${String(check)}, at last ${inspect(answer)}`);
    await waitToAsk(startedAt);
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
