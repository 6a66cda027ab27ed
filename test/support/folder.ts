import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';

/** A folder that goes when the test ends. */
export async function folderUntilEnd(t: Pick<ExecutionContext, 'teardown'>): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'entrepot-test-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}
