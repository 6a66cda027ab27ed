import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';

/** In memory if the system supports it (Linux): for tests of time, which must not wait for a disk. */
export const inMemory = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

/** A folder that is removed when the test ends. */
export async function folderUntilEnd(t: Pick<ExecutionContext, 'teardown'>, parent = tmpdir()): Promise<string> {
  const path = await mkdtemp(join(parent, 'entrepot-test-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}
