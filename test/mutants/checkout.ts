import { spawn } from 'node:child_process';
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Copies of the checkout, in which tests run with one changed source.

export const root = join(import.meta.dirname, '../..');
const attempts = 3;
/** A test file without progress for this long fails. */
const idle = '45s';
/** Names in the checkout that no test needs. */
const left = new Set(['node_modules', '.git', 'data', 'dist', '.cache']);

/** `missed`: the test files passed. `hung`: they did not end in time. */
export type Outcome = 'noticed' | 'hung' | 'missed';

/** Process groups of running tests. They would outlive this process. */
const groups = new Set<number>();

/** Ends the running tests together with this process. */
export function endTestsOnSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => {
      for (const each of groups) killGroup(each);
      process.exit(130);
    });
}

/** Copies the checkout into a temporary folder of this run; resolves to its path. */
export async function copyCheckout(index: number): Promise<string> {
  const folder = join(tmpdir(), `checkout-${index}`);
  await copyFiles(folder);
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}

/** Copies the checkout without packages into the new folder `folder`. */
export async function copyFiles(folder: string): Promise<void> {
  await mkdir(folder);
  await cp(root, folder, { recursive: true, filter: (path) => !left.has(path.slice(root.length + 1)) });
}

/** Does `work` while a file of the copy has the text that `change` makes of it. */
export async function withChange<T>(
  path: string,
  change: (text: string) => string,
  work: () => Promise<T>,
): Promise<T> {
  const text = await readFile(path, 'utf8');
  await writeFile(path, change(text));
  try {
    return await work();
  } finally {
    await writeFile(path, text);
  }
}

/** The output from the first failure on. */
export function failuresIn(output: string): string {
  return output.slice(output.search(/✘|^ {2}─/m));
}

/** Runs test files in a copy of the checkout, one after another, until one fails. */
export async function runTests(
  folder: string,
  tests: readonly string[],
  milliseconds: number,
): Promise<{ outcome: Outcome; output: string }> {
  for (let attempt = 1; ; attempt += 1) {
    const result = await runOnce(folder, tests, milliseconds);
    // On a machine that is too busy, a connection to MariaDB can fail. That says nothing about the mutant.
    if (attempt === attempts || !/connect ETIMEDOUT|write ECONNRESET/.test(result.output)) return result;
  }
}

async function runOnce(
  folder: string,
  tests: readonly string[],
  milliseconds: number,
): Promise<{ outcome: Outcome; output: string }> {
  const entry = join(root, 'node_modules', '.bin', 'ava');
  // A process group of its own, so that the time limit also ends what the tests have started.
  const child = spawn(process.execPath, [entry, '--fail-fast', '--concurrency=1', `--timeout=${idle}`, ...tests], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const group = child.pid!;
  groups.add(group);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    killGroup(group);
  }, milliseconds);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', resolve);
  });
  clearTimeout(timer);
  killGroup(group);
  groups.delete(group);
  const hung = late || output.includes('Timed out while running tests');
  return { outcome: code === 0 ? 'missed' : hung ? 'hung' : 'noticed', output };
}

function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch {
    // All of its processes have ended.
  }
}
