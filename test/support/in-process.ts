import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { run } from '../../src/cli/commands.ts';

export interface Heard {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs a command in this process. */
export async function entrepot(environment: Record<string, string>, ...words: string[]): Promise<Heard> {
  const heard = { stdout: '', stderr: '' };
  const code = await run(words, environment, {
    stdout: { write: (text: string) => (heard.stdout += text) },
    stderr: { write: (text: string) => (heard.stderr += text) },
    once: () => {},
  });
  return { code, ...heard };
}

/** A folder that goes when the test ends. */
export async function folder(t: ExecutionContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'entrepot-test-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}
