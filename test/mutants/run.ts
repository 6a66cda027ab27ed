import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { mutants } from './all.ts';
import { copyCheckout, endTestsOnSignals, failuresIn, root, runTests, withChange, type Outcome } from './checkout.ts';
import { runGenerated, type Options } from './generated/run.ts';
import type { Mutant } from './mutant.ts';

// `npm run test:mutants`. Applies one mutant at a time to a copy of the checkout, and runs the test files that must notice
// it. `--only TEXT` selects the mutants whose name or file contains TEXT; it may be repeated. `--workers N` runs N mutants at
// the same time. `--skip-check` does not run the tests without a change first.
// `--generated N` makes N changes that nobody chose instead (test/mutants/generated), drawn by `--seed TEXT` from the source,
// or with `--only FOLDER` from folders and files of src. `--skip-check` does not record what further test files reach. For one change, `--tests N` test files are run at most, and none is
// started after `--limit SECONDS`.

/** The share of mutants that the tests must notice. */
const wanted = 0.95;
/** Milliseconds for the test files of one mutant, and for those of all mutants without a change. */
const limit = 180_000;
const baselineLimit = 1_800_000;

interface Result {
  mutant: Mutant;
  outcome: Outcome;
}

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    workers: { type: 'string', default: '2' },
    'skip-check': { type: 'boolean', default: false },
    generated: { type: 'string' },
    seed: { type: 'string', default: '1' },
    tests: { type: 'string', default: '15' },
    limit: { type: 'string', default: '240' },
  },
});
const selected = mutants.filter(
  ({ name, file }) => options.only?.some((text) => `${name}\n${file}`.includes(text)) ?? true,
);
endTestsOnSignals();
process.exitCode = options.generated === undefined ? await main() : await runGenerated(generatedOptions());

function generatedOptions(): Options {
  return {
    count: numberOf('generated'),
    seed: options.seed,
    only: options.only,
    workers: numberOf('workers'),
    records: !options['skip-check'],
    tests: numberOf('tests'),
    limit: numberOf('limit') * 1000,
  };
}

function numberOf(option: 'generated' | 'workers' | 'tests' | 'limit'): number {
  const value = Number(options[option]);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new Error(`--${option} must be a whole number above 0`);
}

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

async function tryMutant(folder: string, { file, find, replace, tests }: Mutant): Promise<Outcome> {
  // A function, because `$` in a replacement text has a meaning.
  const change = (text: string): string => text.replace(find, () => replace);
  return withChange(join(folder, file), change, async () => (await runTests(folder, tests, limit)).outcome);
}
