import assert from 'node:assert/strict';
import { spawn, type StdioOptions } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { endWithThisProcess } from '../support/processes/ending.ts';
import { answers, freePort } from '../support/processes/services.ts';
import { until, within } from '../support/until.ts';
import type { FaultOptions, FaultResult } from './fault.ts';
import { resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const main = join(import.meta.dirname, '../../bin/entrepot.js');
const clients = 4;
/** Milliseconds in which a server without requests ends, with room for a slow machine. */
const exitBound = 10_000;
const most = 3;

export interface LogFault {
  stdio: StdioOptions;
  /** Called when the process runs. */
  started: () => void;
  /** Causes the fault, if it is not there from the start. */
  cause?: () => void;
}

/**
 * Pushes to a server whose log cannot be written. The recovery is the longest time from the fault, or from the start of the
 * process if the fault is there before, to an acknowledged push.
 */
export async function breakLogs(
  { tries: wanted, short }: FaultOptions,
  prepare: (t: Teardown) => Promise<LogFault>,
): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  const total: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  let dropped = 0;
  for (let each = 0; each < tries; each += 1) {
    await using t = new Teardown();
    const fault = await prepare(t);
    const port = await freePort();
    const env = {
      PATH: process.env.PATH,
      ENTREPOT_DATA: join(await folderUntilEnd(t, inMemory), 'data'),
      ENTREPOT_PORT: `${port}`,
      ...settings,
    };
    let brokenAt = performance.now();
    const child = spawn(process.execPath, [main, 'serve'], { env, stdio: fault.stdio });
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
    endWithThisProcess(child);
    t.teardown(async () => {
      child.kill('SIGKILL');
      await ended;
    });
    fault.started();
    const url = `http://127.0.0.1:${port}`;
    await until(() => answers(`${url}/readyz`), 60_000);
    const pushes = new Pushes();
    if (fault.cause) {
      await pushes.push(url, 1);
      brokenAt = performance.now();
      fault.cause();
    }
    await pushes.push(url, 1);
    total.recoveryMs = Math.max(total.recoveryMs, performance.now() - brokenAt);
    // The buffers of the log are full after this.
    await fill(url);
    const stop = new AbortController();
    const pushing = pushes.run([url], clients, stop.signal);
    await sleep(short ? 1000 : 5000);
    stop.abort();
    await pushing;
    dropped += await droppedLines(url);
    const result = await resultOf(url, pushes, { tries, recoveryMs: 0 });
    total.acknowledged += result.acknowledged;
    total.lost += result.lost;
    total.halfVisible += result.halfVisible;
    child.kill('SIGTERM');
    assert.equal(await within(ended, exitBound), 0);
  }
  assert.ok(dropped > 0, 'no line was dropped: the log was not full');
  return { ...total, notes: `${dropped} lines dropped and counted` };
}

/** Sends requests with long log lines: 5 MiB, more than the log keeps in memory. */
async function fill(url: string): Promise<void> {
  const path = `${url}/v3/${'x'.repeat(8000)}`;
  for (let sent = 0; sent < 5 * 2 ** 20; sent += 20 * 8000) {
    const answered = Array.from({ length: 20 }, () => fetch(path).then((answer) => answer.arrayBuffer()));
    await within(Promise.all(answered), 30_000);
  }
}

async function droppedLines(url: string): Promise<number> {
  const metrics = await within(fetch(`${url}/metrics`).then((answer) => answer.text()));
  return Number(/^entrepot_log_lines_dropped_total (\d+)$/m.exec(metrics)![1]);
}
