import assert from 'node:assert/strict';
import { mkdir, readdir, rename, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import type { Fault, FaultResult } from './fault.ts';
import { resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

export const fault: Fault = {
  name: 'a data folder with an empty database, the one of another installation, or not mounted',
  run: exchangeDatabases,
};

const refused = /belongs? to (another database|different installations)|is not here: it has no identity/;

async function exchangeDatabases(): Promise<FaultResult> {
  await using t = new Teardown();
  const other = await CommandLine.create(t, settings, inMemory);
  const line = await CommandLine.create(t, settings, inMemory);
  const pushes = new Pushes();
  await Promise.all([fill(line, pushes), fill(other, new Pushes())]);
  const files = await filesOf(line.data);
  // Older than the grace of the collection.
  const old = Date.now() / 1000 - 3 * 86_400;
  for (const path of files) await utimes(join(line.data, 'blobs', path), old, old);

  const mountPoint = `${await folderUntilEnd(t, inMemory)}/data`;
  await mkdir(mountPoint);
  const unmounted = { ENTREPOT_DATA: mountPoint, ENTREPOT_DATABASE_URL: databaseOf(line.data) };
  await Promise.all([
    assert.rejects(line.serve({ ENTREPOT_DATABASE_URL: databaseOf(other.data) }), refused, 'another database'),
    assert.rejects(line.serve(unmounted), refused, 'not mounted'),
  ]);

  const backup = await folderUntilEnd(t, inMemory);
  await move(line.data, backup);
  await assert.rejects(line.serve(), refused, 'an empty database');
  await assert.rejects(line.serve(), refused, 'the empty database that the last start has created');
  assert.deepEqual(await filesOf(line.data), files);

  // The operator means it: the files stay until "gc --files --yes".
  await adopt(line);
  const empty = await line.serve();
  assert.equal((await line.run('jobs', 'run', 'gc')).code, 0);
  await empty.stop();
  assert.deepEqual(await filesOf(line.data), files);

  await move(line.data, await folderUntilEnd(t, inMemory));
  await move(backup, line.data);
  await assert.rejects(line.serve(), refused, 'the database from before');
  const restoredAt = performance.now();
  await adopt(line);
  const server = await line.serve();
  const recoveryMs = performance.now() - restoredAt;
  return await resultOf(server.url, pushes, {
    tries: 1,
    recoveryMs,
    notes: `5 starts refused, ${files.length} files kept`,
  });
}

async function fill(line: CommandLine, pushes: Pushes): Promise<void> {
  const server = await line.serve();
  await pushes.push(server.url, 2);
  await server.stop();
}

/** Moves the files of a SQLite database to another folder. */
async function move(from: string, to: string): Promise<void> {
  const names = (await readdir(from)).filter((name) => name.startsWith('entrepot.db'));
  for (const name of names) await rename(join(from, name), join(to, name));
}

function databaseOf(data: string): string {
  return `sqlite:${join(data, 'entrepot.db')}`;
}

async function filesOf(data: string): Promise<string[]> {
  const found = await readdir(join(data, 'blobs'), { recursive: true, withFileTypes: true });
  const paths = found.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name));
  return paths.map((path) => path.slice(join(data, 'blobs').length + 1)).sort();
}

async function adopt(line: CommandLine): Promise<void> {
  const { code, stdout, stderr } = await line.run('adopt');
  assert.equal(code, 0, stderr);
  assert.match(stdout, /adopted/);
}
