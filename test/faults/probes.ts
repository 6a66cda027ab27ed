import assert from 'node:assert/strict';
import type { FaultResult } from './fault.ts';
import { authorization, type Attempt, type Pushes } from './pushes.ts';

/** The longest time of an answer of readiness, in milliseconds. */
const readinessBound = 3000;
/** Longest wait for a recovery, in milliseconds. */
const longestRecovery = 90_000;

/** One answer of `/readyz`; status 0 if no server listens. Rejects if the answer takes too long. */
export async function readiness(url: string): Promise<Attempt & { state: string }> {
  const startedAt = performance.now();
  let [status, state] = [0, ''];
  try {
    const response = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(10_000) });
    const body = (await response.json()) as { status: unknown };
    [status, state] = [response.status, String(body.status)];
  } catch (error) {
    if ((error as Error).name === 'TimeoutError') throw error;
  }
  const took = performance.now() - startedAt;
  assert.ok(took < readinessBound, `readiness took ${Math.round(took)} ms`);
  return { status, took, state };
}

/** Waits until the server is ready and has accepted a push; resolves to the milliseconds since `from`. */
export async function recovered(url: string, pushes: Pushes, from: number): Promise<number> {
  for (let last = ''; ;) {
    const { status } = await readiness(url);
    if (status === 200) {
      const pushed = await pushes.attempt(url).catch((error: Error) => ({ status: error.message }));
      if (pushed.status === 201) return performance.now() - from;
      last = `a push answered ${pushed.status}`;
    } else last = `/readyz answered ${status}`;
    assert.ok(performance.now() - from < longestRecovery, `not recovered: ${last}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Requests of the account that the database has counted. */
export async function countedRequests(url: string): Promise<number> {
  const response = await fetch(`${url}/v1/account/usage`, { headers: { authorization } });
  assert.equal(response.status, 200);
  return ((await response.json()) as { requests: { total: number } }).requests.total;
}

/** The result after everything was read from `url`. */
export async function resultOf(
  url: string,
  pushes: Pushes,
  result: Pick<FaultResult, 'tries' | 'recoveryMs' | 'notes'>,
): Promise<FaultResult> {
  const { lost, halfVisible, defects } = await pushes.check(url);
  const notes = [...(result.notes === undefined ? [] : [result.notes]), ...defects.slice(0, 3)].join('; ');
  return { ...result, acknowledged: pushes.acknowledged, lost, halfVisible, ...(notes !== '' && { notes }) };
}

/** Milliseconds as seconds, for notes. */
export function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}
