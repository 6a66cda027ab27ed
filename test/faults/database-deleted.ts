import assert from 'node:assert/strict';
import { link, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { readiness, resultOf, seconds } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const clients = 4;
const most = 3;

export const fault: Fault = {
  name: 'the database file is deleted while the server runs, SQLite',
  run: deleteDatabase,
};

/** The recovery is from the moment when the operator has put the files back, and starts the server again. */
async function deleteDatabase({ tries: wanted }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const line = await CommandLine.create(t, settings, inMemory);
  const pushes = new Pushes();
  let [recoveryMs, noticedIn] = [0, 0];
  let server = await line.serve();
  for (let each = 0; each < tries; each += 1) {
    const { url } = server;
    const stop = new AbortController();
    const pushing = pushes.run([url], clients, stop.signal);
    const before = pushes.acknowledged;
    await until(() => pushes.acknowledged >= before + clients, 60_000);
    // What was acknowledged is in these files.
    const kept = await folderUntilEnd(t, inMemory);
    const names = (await readdir(line.data)).filter((name) => name.startsWith('entrepot.db'));
    for (const name of names) await link(join(line.data, name), join(kept, name));
    for (const name of names) await rm(join(line.data, name), { force: true });
    const deletedAt = performance.now();
    stop.abort();
    await pushing;
    for (let push = 0; push < 3; push += 1) assert.equal((await pushes.attempt(url)).status, 503);
    assert.equal((await readiness(url)).status, 503);
    noticedIn = Math.max(noticedIn, performance.now() - deletedAt);
    assert.ok(!(await readdir(line.data)).includes('entrepot.db'), 'no new database is created');
    await server.stop();
    for (const name of await readdir(kept)) await rename(join(kept, name), join(line.data, name));
    const restoredAt = performance.now();
    server = await line.serve();
    recoveryMs = Math.max(recoveryMs, performance.now() - restoredAt);
  }
  const notes = `pushes and readiness 503 within ${seconds(noticedIn)}`;
  return await resultOf(server.url, pushes, { tries, recoveryMs, notes });
}
