import { spawn } from 'node:child_process';
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Copies of the checkout, in which tests run with one changed source.

export const root = join(import.meta.dirname, '../..');
const attempts = 3;
/** A test file without progress for this long fails. */
const idle = '45s';
/** Milliseconds for a type check of the source. */
const typeLimit = 120_000;
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

/** Whether the source of a copy passes the type check. Names that nothing uses do not count. */
export async function hasTypes(folder: string): Promise<boolean> {
  const config = join(folder, 'tsconfig.src.json');
  const options = { noUnusedLocals: false, noUnusedParameters: false };
  await writeFile(config, JSON.stringify({ extends: './tsconfig.json', compilerOptions: options, include: ['src'] }));
  const compiler = join(root, 'node_modules', '.bin', 'tsc');
  const { code, output } = await run(compiler, ['--project', config], folder, typeLimit);
  if (code === 0 || /error TS/.test(output)) return code === 0;
  throw new Error(`the type check did not run: ${output}`);
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
  const flags = ['--fail-fast', '--concurrency=1', `--timeout=${idle}`];
  const { code, isLate, output } = await run(process.execPath, [entry, ...flags, ...tests], folder, milliseconds);
  const hung = isLate || output.includes('Timed out while running tests');
  return { outcome: code === 0 ? 'missed' : hung ? 'hung' : 'noticed', output };
}

/** Runs a command in a process group of its own, so that its end also ends what it has started. */
async function run(
  command: string,
  args: readonly string[],
  cwd: string,
  milliseconds: number,
): Promise<{ code: number | null; isLate: boolean; output: string }> {
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const group = child.pid!;
  groups.add(group);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    killGroup(group);
  }, milliseconds);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', resolve);
  });
  clearTimeout(timer);
  killGroup(group);
  groups.delete(group);
  return { code, isLate, output };
}

function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch {
    // All of its processes have ended.
  }
}
