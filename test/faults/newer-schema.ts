import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import type { Fault, FaultResult } from './fault.ts';
import { resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

export const fault: Fault = { name: 'a database of a newer, incompatible version', run: startOnNewerSchema };

async function startOnNewerSchema(): Promise<FaultResult> {
  await using t = new Teardown();
  const line = await CommandLine.create(t, settings, inMemory);
  const server = await line.serve();
  const pushes = new Pushes();
  await pushes.push(server.url, 2);
  await server.stop();
  const path = join(line.data, 'entrepot.db');
  const oldest = write(path, '99.1.0');
  await assert.rejects(line.serve(), /needs Entrepot 99\.1\.0 or later, and this is Entrepot \d+\.\d+\.\d+/);
  const restoredAt = performance.now();
  write(path, oldest);
  const again = await line.serve();
  const recoveryMs = performance.now() - restoredAt;
  return await resultOf(again.url, pushes, { tries: 1, recoveryMs, notes: 'refused at the start' });
}

/** Sets the oldest program that can use the database; returns the one before. */
function write(path: string, oldest: string): string {
  const database = new DatabaseSync(path);
  try {
    const row = database.prepare('SELECT oldest_program FROM schema_version').get() as { oldest_program: string };
    database.prepare('UPDATE schema_version SET oldest_program = ?').run(oldest);
    return row.oldest_program;
  } finally {
    database.close();
  }
}
