import assert from 'node:assert/strict';
import { inMemory } from '../support/folder.ts';
import { CommandLine, type Serving } from '../support/processes/command.ts';
import { within } from '../support/until.ts';
import type { FaultOptions, FaultResult } from './fault.ts';
import { countedRequests, resultOf, seconds } from './probes.ts';
import { Pushes, settings as usual } from './pushes.ts';
import { Teardown } from './teardown.ts';

const grace = 1000;
/** The promise for the exit, and a second for a slow machine. */
const bound = grace + 5000 + 1000;
const most = 3;

export interface Ending {
  settings?: Record<string, string>;
  /** Causes the fault; resolves to how many further requests of the account the server may count. */
  cause: (server: Serving, pushes: Pushes) => Promise<number | void> | number | void;
  /** Ends the fault. */
  end?: () => Promise<void> | void;
}

/**
 * Pushes, causes a fault and sends SIGTERM. Fails if the process does not exit in time, or if the usage of before is not
 * counted after the next start.
 */
export async function endServers(
  { tries: wanted }: FaultOptions,
  prepare: (t: Teardown) => Ending | Promise<Ending>,
): Promise<FaultResult> {
  await using t = new Teardown();
  const { settings, cause, end } = await prepare(t);
  const all = { ...usual, ENTREPOT_SHUTDOWN_GRACE: `${grace}ms`, ...settings };
  const line = await CommandLine.create(t, all, inMemory);
  const pushes = new Pushes();
  const tries = Math.min(wanted, most);
  let [longestExit, recoveryMs] = [0, 0];
  let result: FaultResult | undefined;
  for (let each = 0; each < tries; each += 1) {
    const server = await line.serve();
    // The answer does not count its own request.
    const counted = (await countedRequests(server.url)) + 1;
    const earlier = pushes.requests;
    await pushes.push(server.url, 3);
    const expected = counted + pushes.requests - earlier;
    const extra = (await cause(server, pushes)) ?? 0;
    const stoppedAt = performance.now();
    const { code, stderr } = await within(server.stop(), bound);
    longestExit = Math.max(longestExit, performance.now() - stoppedAt);
    assert.notEqual(code, null, `killed: ${stderr}`);
    await end?.();
    const again = await line.serve();
    recoveryMs = Math.max(recoveryMs, performance.now() - stoppedAt);
    const found = await countedRequests(again.url);
    assert.ok(
      found >= expected && found <= expected + extra,
      `${found} requests are counted, not ${expected} to ${expected + extra}`,
    );
    result = await resultOf(again.url, pushes, {
      tries,
      recoveryMs,
      notes: `exit within ${seconds(longestExit)}, all requests counted`,
    });
    if (result.lost + result.halfVisible > 0) break;
    await again.stop();
  }
  return result!;
}
