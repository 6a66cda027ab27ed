import assert from 'node:assert/strict';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const clients = 6;
const most = 3;

export const fault: Fault = { name: 'a backup under load and under collection, restored', run: backUpServers };

/** The recovery is the time in which a server starts on the restored place. */
async function backUpServers({ tries: wanted, short }: FaultOptions): Promise<FaultResult> {
  const tries = short ? 1 : Math.min(wanted, most);
  await using t = new Teardown();
  const line = await CommandLine.create(t, { ...settings, ENTREPOT_GC_GRACE: '0s' }, inMemory);
  const server = await line.serve();
  const pushes = new Pushes(true);
  const total: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  const folder = await folderUntilEnd(t, inMemory);
  for (let each = 0; each < tries; each += 1) {
    const stop = new AbortController();
    const pushing = pushes.run([server.url], clients, stop.signal);
    const collecting = (async () => {
      while (!stop.signal.aborted) await line.run('gc');
    })();
    const earlier = pushes.acknowledged;
    await until(() => pushes.acknowledged >= earlier + clients, 60_000);
    await sleep(short ? 0 : 1000);
    const before = pushes.before();
    const target = join(folder, each % 2 === 0 ? `backup-${each}.tar` : 'backup');
    const made = await line.run('backup', target);
    stop.abort();
    await Promise.all([pushing, collecting]);
    assert.equal(made.code, 0, made.stderr);
    const copy = await CommandLine.create(t, settings, inMemory);
    const restored = await copy.run('restore', target);
    assert.equal(restored.code, 0, restored.stderr);
    const started = await copy.serve();
    const { lost, halfVisible, acknowledged, notes } = await resultOf(started.url, before, { tries, recoveryMs: 0 });
    await started.stop();
    // The pushes of earlier tries are among them.
    total.acknowledged = acknowledged;
    total.lost = Math.max(total.lost, lost);
    total.halfVisible = Math.max(total.halfVisible, halfVisible);
    total.recoveryMs = Math.max(total.recoveryMs, started.startedIn);
    if (notes !== undefined) total.notes = notes;
  }
  return total;
}
