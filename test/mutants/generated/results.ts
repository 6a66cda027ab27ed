import { createHash } from 'node:crypto';
import { appendFile, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { root } from '../checkout.ts';
import type { Change } from './change.ts';
import { cache } from './coverage.ts';

/** `missed`: the tests passed. `hung`: they did not end in time. `unreached`: no test runs it. `refused`: by the type check. */
export interface Result {
  outcome: 'noticed' | 'hung' | 'missed' | 'unreached' | 'refused';
  /** How many test files were run, and how many reach the change. */
  tried: number;
  of: number;
}

/** The results of changes that were tried before, with the same source and the same tests. */
export interface KeptResults {
  find(change: Change): Result | undefined;
  keep(change: Change, result: Result): Promise<void>;
}

/**
 * A run that was interrupted goes on with them, and runs that draw the same changes share them. `digest` names the source,
 * `tests` are the test files that can be run.
 */
export async function keptResults(digest: string, tests: readonly string[]): Promise<KeptResults> {
  const hash = createHash('sha256');
  for (const each of tests) hash.update(`${each}\0${await readFile(join(root, each), 'utf8')}\0`);
  const path = join(cache, digest, `results-${hash.digest('hex').slice(0, 12)}`);
  await mkdir(join(cache, digest), { recursive: true });
  const found = new Map<string, Result>();
  // An interrupted run can leave a part of a line.
  for (const line of (await readFile(path, 'utf8').catch(() => '')).split('\n').filter((each) => each.endsWith('}'))) {
    const { key, ...result } = JSON.parse(line) as Result & { key: string };
    found.set(key, result);
  }
  return {
    find: (change) => found.get(keyOf(change)),
    keep: (change, result) => appendFile(path, `\n${JSON.stringify({ key: keyOf(change), ...result })}`),
  };
}

function keyOf({ file, start, end, text }: Change): string {
  return [file, start, end, text].join(' ');
}
