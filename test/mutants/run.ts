import { spawn } from 'node:child_process';
import { cp, mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { mutants } from './all.ts';
import type { Mutant } from './mutant.ts';

// `npm run test:mutants`. Applies one mutant at a time to a copy of the checkout, and runs the test files that must notice
// it. `--only TEXT` selects the mutants whose name or file contains TEXT; it may be repeated. `--workers N` runs N mutants at
// the same time. `--skip-check` does not run the tests without a change first.

const root = join(import.meta.dirname, '../..');
/** The share of mutants that the tests must notice. */
const wanted = 0.95;
/** Milliseconds for the test files of one mutant, and for those of all mutants without a change. */
const limit = 180_000;
const baselineLimit = 1_800_000;
const attempts = 3;
/** A test file without progress for this long fails. */
const idle = '45s';
/** Names in the checkout that no test needs. */
const left = new Set(['node_modules', '.git', 'data']);

type Outcome = 'noticed' | 'hung' | 'missed';

interface Result {
  mutant: Mutant;
  outcome: Outcome;
}

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    workers: { type: 'string', default: '2' },
    'skip-check': { type: 'boolean', default: false },
  },
});
const selected = mutants.filter(
  ({ name, file }) => options.only?.some((text) => `${name}\n${file}`.includes(text)) ?? true,
);
/** Process groups of running tests. They would outlive this process. */
const groups = new Set<number>();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(signal, () => {
    for (const each of groups) killGroup(each);
    process.exit(130);
  });
process.exitCode = await main();

async function main(): Promise<number> {
  if (selected.length === 0) {
    console.error(`No mutant has ${options.only?.join(' or ')} in its name or file.`);
    return 1;
  }
  const unusable = (await Promise.all(selected.map(problemOf))).filter((each) => each !== undefined);
  for (const each of unusable) console.error(each);
  if (unusable.length > 0) return 1;

  const first = await copyCheckout(0);
  if (!options['skip-check'] && !(await passUnchanged(first))) return 1;
  const queue = [...selected];
  const results: Result[] = [];
  const work = async (folder: string): Promise<void> => {
    for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
      const startedAt = performance.now();
      const outcome = await tryMutant(folder, mutant);
      results.push({ mutant, outcome });
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
      console.log(`${outcome.padEnd(7)} ${seconds.padStart(6)} s  ${mutant.file}: ${mutant.name}`);
    }
  };
  const others = Array.from({ length: Number(options.workers) - 1 }, (_, index) => copyCheckout(index + 1));
  await Promise.all([work(first), ...others.map(async (folder) => work(await folder))]);
  return report(results);
}

/** Whether all test files pass without a mutant. */
async function passUnchanged(folder: string): Promise<boolean> {
  const tests = [...new Set(selected.flatMap((each) => each.tests))];
  console.log(`${selected.length} mutants; first their ${tests.length} test files without a change`);
  const { outcome, output } = await runTests(folder, tests, baselineLimit);
  if (outcome === 'missed') return true;
  console.error(`${failuresIn(output)}\nThese tests fail without a mutant.`);
  return false;
}

function report(results: readonly Result[]): number {
  const those = (outcome: Outcome) => results.filter((each) => each.outcome === outcome);
  const list = (title: string, some: readonly Result[]) => {
    if (some.length === 0) return;
    console.log(`\n${title}:`);
    for (const { mutant } of some) console.log(`  ${mutant.file}: ${mutant.name} (${mutant.tests.join(' ')})`);
  };
  list('Noticed only by a time limit', those('hung'));
  list('Missed', those('missed'));
  const noticed = results.length - those('missed').length;
  const score = noticed / results.length;
  console.log(
    `\n${noticed} of ${results.length} mutants noticed: ${(score * 100).toFixed(1)}%, ${wanted * 100}% wanted`,
  );
  return score < wanted ? 1 : 0;
}

/** Why the mutant cannot be applied; undefined if it can. */
async function problemOf({ name, file, find }: Mutant): Promise<string | undefined> {
  const found = (await readFile(join(root, file), 'utf8')).split(find).length - 1;
  return found === 1 ? undefined : `${file}: the text of the mutant "${name}" occurs ${found} times: ${find}`;
}

async function copyCheckout(index: number): Promise<string> {
  const folder = join(tmpdir(), `checkout-${index}`);
  await mkdir(folder);
  await cp(root, folder, {
    recursive: true,
    filter: (path) => !left.has(path.slice(root.length + 1)),
  });
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}

async function tryMutant(folder: string, { file, find, replace, tests }: Mutant): Promise<Outcome> {
  const path = join(folder, file);
  const text = await readFile(path, 'utf8');
  // A function, because `$` in a replacement text has a meaning.
  await writeFile(
    path,
    text.replace(find, () => replace),
  );
  try {
    return (await runTests(folder, tests, limit)).outcome;
  } finally {
    await writeFile(path, text);
  }
}

/** The output from the first failure on. */
function failuresIn(output: string): string {
  return output.slice(output.search(/✘|^ {2}─/m));
}

/** Runs test files in a copy of the checkout. `missed`: they all passed. */
async function runTests(
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
