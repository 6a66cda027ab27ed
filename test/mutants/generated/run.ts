import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { copyCheckout, hasTypes, root, runTests, withChange } from '../checkout.ts';
import { apply, changedLines, lineOf, type Change } from './change.ts';
import { changeableFiles, changesOfText, leftOut } from './changes.ts';
import { cache, digestOf, instrument, keptRecords, readSources, record, testFiles } from './coverage.ts';
import type { Recorded, Source } from './coverage.ts';
import { equivalent } from './equivalent.ts';
import { pick } from './pick.ts';
import { keptResults, type Result } from './results.ts';
import { draw, folderOf, intervalOf } from './sample.ts';

export interface Options {
  count: number;
  seed: string;
  /** Folders or files of src; undefined: all. */
  only: readonly string[] | undefined;
  workers: number;
  /** Whether test files are run of which nothing is recorded; without them, the changes that only they reach are missed. */
  records: boolean;
  /** The most test files that are tried for one change. */
  tests: number;
  /** Milliseconds after which no further test file is tried for a change. */
  limit: number;
}

interface Tried extends Result {
  change: Change;
}

/** Changes the source at places that a seed draws, and reports how many of the changes the tests notice. */
export async function runGenerated(options: Options): Promise<number> {
  // Of all tests that this process starts.
  process.env['ENTREPOT_TEST_MEASURES'] = 'no';
  console.log(`No change is made in:\n${leftOut.map((each) => `  ${each}`).join('\n')}`);
  const sources = await readSources(await changeableFiles(root));
  const digest = await digestOf(sources);
  const all = await timed('made the changes', () => allChanges(sources, digest));
  const bySource = new Map(sources.map((each) => [each.file, each]));
  const nameOf = (change: Change): string => nameOfChange(bySource.get(change.file)!.text, change);
  const known = new Set(all.map(nameOf));
  const named = new Set(equivalent.map((each) => [each.file, each.was, each.becomes].join('\n')));
  const unknown = [...named].filter((each) => !known.has(each));
  for (const each of unknown) console.error(`No change is this one of test/mutants/generated/equivalent.ts:\n${each}`);
  if (unknown.length > 0) return 1;

  const counted = all.filter((each) => isIn(options.only, each.file) && !named.has(nameOf(each)));
  if (counted.length === 0) {
    console.error(`No source in ${options.only?.join(' or ')} can be changed. Name folders or files below src.`);
    return 1;
  }
  const drawn = draw(counted, counted.length, options.seed, nameOf);
  console.log(`${all.length} changes, ${named.size} of them equivalent; drawn of ${counted.length}`);

  const folders = await Promise.all(Array.from({ length: options.workers }, (_, index) => copyCheckout(index)));
  const records = await timed('recorded what tests reach', () => recordAll(folders, sources, digest, options));
  const usable = records.filter(({ isPassed }) => isPassed);
  const kept = await keptResults(digest, (await testFiles()).picked);
  const results = new Map<Change, Result>();
  let [ended, refused] = [0, 0];
  await timed('tried the changes', () =>
    inFolders(folders, drawn, async (folder, change) => {
      // The ones that are running end, too: a slow one would be left out more often than a fast one.
      if (ended >= options.count) return;
      const source = bySource.get(change.file)!;
      const startedAt = performance.now();
      const known = kept.find(change);
      const mayGoOn = known?.outcome === 'missed' && known.tried < Math.min(options.tests, known.of);
      const result =
        known && !mayGoOn
          ? known
          : await withChange(
              join(folder, change.file),
              (text) => apply(text, change),
              () => tryChange(folder, source, change, usable, options, known?.tried),
            );
      if (result !== known) await kept.keep(change, result);
      results.set(change, result);
      const { outcome, tried, of } = result;
      if (outcome === 'refused') {
        refused += 1;
        return;
      }
      ended += 1;
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
      const where = `${change.file}:${lineOf(source.text, change.start)} ${change.rule}`;
      console.log(`${outcome.padEnd(9)} ${seconds.padStart(6)} s  ${where} (${tried} of ${of} test files)`);
      if (outcome === 'missed' || outcome === 'unreached') console.log(differenceOf(source.text, change));
    }),
  );
  console.log(
    `\n${refused} further changes were refused by the type check. Nobody can hand them in, so they do not count.`,
  );
  const tried = drawn.flatMap((change) => {
    const result = results.get(change);
    return result && result.outcome !== 'refused' ? [{ change, ...result }] : [];
  });
  report(tried.slice(0, options.count));
  return 0;
}

async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now();
  const result = await work();
  console.log(`${what} in ${((performance.now() - startedAt) / 1000).toFixed(0)} s`);
  return result;
}

function isIn(only: readonly string[] | undefined, file: string): boolean {
  return only?.some((each) => `${file}/`.startsWith(`${each.replace(/^(?!src)/, 'src/').replace(/\/$/, '')}/`)) ?? true;
}

function nameOfChange(source: string, change: Change): string {
  const { was, becomes } = changedLines(source, change);
  return [change.file, was.join('\n'), becomes.join('\n')].join('\n');
}

async function allChanges(sources: readonly Source[], digest: string): Promise<Change[]> {
  const path = join(cache, `${digest}.json`);
  const kept = await readFile(path, 'utf8').catch(() => undefined);
  if (kept !== undefined) return JSON.parse(kept) as Change[];
  const changes: Change[] = [];
  for (const { file, text } of sources) changes.push(...(await changesOfText(file, text)));
  await mkdir(cache, { recursive: true });
  await writeFile(path, JSON.stringify(changes));
  return changes;
}

/** Does `work` for each item, in the order of the items, with one item at a time in each folder. */
async function inFolders<T>(
  folders: readonly string[],
  items: readonly T[],
  work: (folder: string, item: T) => Promise<void>,
): Promise<void> {
  const queue = items.values();
  await Promise.all(
    folders.map(async (folder) => {
      for (const item of queue) await work(folder, item);
    }),
  );
}

/** What each test file reaches. Copies of which the tests were recorded have their own source again. */
async function recordAll(
  folders: readonly string[],
  sources: readonly Source[],
  digest: string,
  { only, records: isRecording }: Options,
): Promise<Recorded[]> {
  const { picked, others } = await testFiles();
  console.log(`${others.length} test files are not used, because they read the source or measure memory:`);
  for (const each of others) console.log(`  ${each}`);
  const { records, earlier } = await keptRecords(digest, sources, picked);
  if (earlier > 0) console.log(`${earlier} records are of earlier sources`);
  const kept = new Set(records.map(({ test }) => test));
  const missing = first(picked, only).filter((test) => !kept.has(test));
  if (missing.length > 0 && !isRecording) console.log(`${missing.length} test files are not recorded`);
  if (missing.length > 0 && isRecording) {
    console.log(`recording what ${missing.length} of ${picked.length} test files reach`);
    for (const folder of folders) await instrument(folder, sources);
    const last = sources.at(-1)!;
    await inFolders(folders, missing, async (folder, test) => {
      const found = await record(folder, digest, test, last.first + last.places.length);
      records.push(found);
      const seconds = (found.milliseconds / 1000).toFixed(1);
      console.log(`${seconds.padStart(6)} s  ${test}: ${found.reached.size} places`);
      if (!found.isPassed)
        console.log(`${found.output.slice(0, 2000)}\nThis test file fails without a change, and is not used.`);
    });
    for (const folder of folders) for (const { file, text } of sources) await writeFile(join(folder, file), text);
  }
  return records;
}

/** The test files, those of the same folders first: a run that is interrupted has recorded what is needed most. */
function first(tests: readonly string[], only: readonly string[] = []): string[] {
  const folders = only.map((each) => `test/${each.replace(/^src\//, '')}`);
  const rank = (test: string): number => folders.findIndex((each) => test.startsWith(each)) + 1 || Infinity;
  return tests.toSorted((one, other) => Math.sign(rank(one) - rank(other)) || 0);
}

/** Checks the types of a copy of the checkout that has a change, and runs the test files that reach it, after the first `tried`. */
async function tryChange(
  folder: string,
  source: Source,
  change: Change,
  records: readonly Recorded[],
  { tests: most, limit }: Options,
  tried = 0,
): Promise<Result> {
  const found = pick(source, change, records);
  const of = found.length;
  if (!(await hasTypes(folder))) return { outcome: 'refused', tried: 0, of };
  if (of === 0) return { outcome: 'unreached', tried: 0, of };
  const until = performance.now() + limit;
  // The first one alone, because it most often notices the change; then some at once, which starts faster.
  for (let size = 1; tried < Math.min(most, of) && performance.now() < until; size = 4) {
    const some = found.slice(tried, Math.min(tried + size, most));
    tried += some.length;
    const outcome = await runTwice(folder, some);
    if (outcome !== 'missed') return { outcome, tried, of };
  }
  return { outcome: 'missed', tried, of };
}

/** A test that fails only once has not noticed the change. */
async function runTwice(folder: string, some: readonly Recorded[]): Promise<'noticed' | 'hung' | 'missed'> {
  const usual = some.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  const tests = some.map(({ test }) => test);
  const first = await runTests(folder, tests, 60_000 + 5 * usual);
  if (first.outcome !== 'noticed') return first.outcome;
  return (await runTests(folder, tests, 60_000 + 5 * usual)).outcome;
}

function differenceOf(source: string, change: Change): string {
  const { was, becomes } = changedLines(source, change);
  const lines = [...was.map((line) => `- ${line}`), ...becomes.map((line) => `+ ${line}`)];
  const shown = lines.length > 24 ? [...lines.slice(0, 12), '…', ...lines.slice(-8)] : lines;
  return shown.map((line) => `    ${line}`).join('\n');
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)}%`;
}

function report(results: readonly Tried[]): void {
  const line = (name: string, some: readonly Tried[]): void => {
    const noticed = some.filter(({ outcome }) => outcome === 'noticed' || outcome === 'hung').length;
    const [low, high] = intervalOf(noticed, some.length).map(percent);
    const numbers = `${noticed} of ${some.length}`.padStart(10);
    console.log(
      `  ${name.padEnd(16)} ${numbers}  ${percent(noticed / some.length).padStart(4)}  (95%: ${low} to ${high})`,
    );
  };
  console.log('\nChanges that the tests notice:');
  const folders = Map.groupBy(results, ({ change }) => folderOf(change.file));
  for (const [folder, some] of [...folders].sort(([one], [other]) => (one < other ? -1 : 1))) line(folder, some);
  line('all', results);
  const count = (some: Result['outcome']): number => results.filter(({ outcome }) => outcome === some).length;
  console.log(
    `Only by a time limit: ${count('hung')}. Missed: ${count('missed')}. No test reaches: ${count('unreached')}.`,
  );
}
