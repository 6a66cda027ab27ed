import assert from 'node:assert/strict';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execute } from '../support/clients/clients.ts';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const script = join(import.meta.dirname, '../../scripts/copy-sqlite.ts');
const clients = 6;
const most = 4;

export const fault: Fault = {
  name: 'a copy of a running server by scripts/copy-sqlite.ts, under pushes',
  run: copyServers,
};

/** The recovery is the time in which a server starts on the copy. */
async function copyServers({ tries: wanted, short }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const line = await CommandLine.create(t, settings, inMemory);
  const server = await line.serve();
  const pushes = new Pushes();
  const total: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  for (let each = 0; each < tries; each += 1) {
    const stop = new AbortController();
    const pushing = pushes.run([server.url], clients, stop.signal);
    const earlier = pushes.acknowledged;
    await until(() => pushes.acknowledged >= earlier + clients, 60_000);
    await sleep(short ? 0 : 1000);
    const before = pushes.before();
    const target = join(await folderUntilEnd(t, inMemory), 'copy');
    const env = { PATH: process.env.PATH, ENTREPOT_DATA: line.data };
    const { code, stderr } = await execute(process.execPath, [script, target], { env });
    stop.abort();
    await pushing;
    assert.equal(code, 0, stderr);
    const copy = await line.serve({ ENTREPOT_DATA: target });
    const { lost, halfVisible, acknowledged, notes } = await resultOf(copy.url, before, { tries, recoveryMs: 0 });
    await copy.stop();
    // The pushes of earlier tries are among them.
    total.acknowledged = acknowledged;
    total.lost = Math.max(total.lost, lost);
    total.halfVisible = Math.max(total.halfVisible, halfVisible);
    total.recoveryMs = Math.max(total.recoveryMs, copy.startedIn);
    if (notes !== undefined) total.notes = notes;
  }
  return total;
}
