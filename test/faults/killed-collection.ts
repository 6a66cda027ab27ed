import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { join } from 'node:path';
import { digestOf } from '../../src/runtime/digest.ts';
import { openDatabase } from '../../src/database/database.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { authorization, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

/** Blobs that the killed collection was to delete. */
const blobs = 300;
const most = 3;
const program = join(import.meta.dirname, '../../bin/entrepot.js');

export const fault: Fault = { name: 'kill -9 of a garbage collection, its content pushed again', run: killCollection };

/** The recovery is the longest time of a push of content that the killed collection was deleting, and of a next collection. */
async function killCollection({ tries: wanted }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  // On a disk, so that the deletions take a while.
  const line = await CommandLine.create(t, { ...settings, ENTREPOT_GC_GRACE: '0s' }, await folderUntilEnd(t));
  const result: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  const database = { url: `sqlite:${join(line.data, 'entrepot.db')}` };
  let left = 0;
  for (let each = 0; each < tries; each += 1) {
    const server = await line.serve();
    const texts = Array.from({ length: blobs }, (_, index) => `blob ${each} ${index}`);
    for (const text of texts) await push(server.url, text);
    await using reader = { db: await openDatabase(database.url), [Symbol.asyncDispose]: async () => reader.db.close() };
    // Nothing refers to them any more.
    await reader.db.transaction((tx) => tx.run('DELETE FROM repository_blobs'));
    const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('ENTREPOT_'));
    const env = { ...Object.fromEntries(kept), ...settings, ENTREPOT_GC_GRACE: '0s', ENTREPOT_DATA: line.data };
    const child = spawn(process.execPath, [program, 'jobs', 'run', 'gc'], { env, stdio: 'ignore' });
    const ended = once(child, 'exit');
    const deleting = () => reader.db.select<{ digest: string }>("SELECT digest FROM blobs WHERE state = 'deleting'");
    while (child.exitCode === null && (await deleting()).length === 0) await sleep(0);
    child.kill('SIGKILL');
    await ended;
    const unfinished = new Set((await deleting()).map(({ digest }) => digest));
    left += unfinished.size;
    const again = texts.filter((text) => unfinished.has(digestOf(text))).slice(0, 5);
    const startedAt = performance.now();
    for (const text of again) {
      await push(server.url, text);
      result.acknowledged += 1;
      if ((await pull(server.url, text)) !== text) result.lost += 1;
    }
    const next = await line.run('jobs', 'run', 'gc');
    assert.equal(next.code, 0, next.stderr);
    result.recoveryMs = Math.max(result.recoveryMs, performance.now() - startedAt);
    await server.stop();
  }
  return { ...result, notes: `${left} blobs were being deleted` };
}

async function push(url: string, text: string): Promise<void> {
  const path = `/v2/team/app/blobs/uploads/?digest=${digestOf(text)}`;
  const response = await fetch(url + path, { method: 'POST', headers: { authorization }, body: text });
  assert.equal(response.status, 201, await response.text());
}

async function pull(url: string, text: string): Promise<string> {
  return (await fetch(`${url}/v2/team/app/blobs/${digestOf(text)}`, { headers: { authorization } })).text();
}
