import { createHash } from 'node:crypto';
import { cp, glob, mkdir, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { failuresIn, root, runTests } from '../checkout.ts';
import { placesOf, withHits, type Place } from './places.ts';

// Which test file reaches which places of the source: one run of each test file on an instrumented copy. What is recorded
// is kept in the checkout, and is used again while the test file is the same. After a change of the source or of the support
// of the tests, the numbers of the places are those of the same texts.

/** Milliseconds for a test file, of which a record needs most on a busy machine. */
const limit = 600_000;
export const cache = join(root, '.cache/mutants');

/** What a run of a test file has shown. */
export interface Recorded {
  test: string;
  isPassed: boolean;
  milliseconds: number;
  /** Numbers of the places that were reached while modules loaded, and later. */
  loaded: Set<number>;
  reached: Set<number>;
  /** The sources that the test file imports itself. */
  imports: ReadonlySet<string>;
}

export interface Source {
  file: string;
  text: string;
  places: Place[];
  /** The number of the first place. */
  first: number;
}

export async function readSources(files: readonly string[]): Promise<Source[]> {
  let first = 0;
  const sources: Source[] = [];
  for (const file of files) {
    const text = await readFile(join(root, file), 'utf8');
    const places = placesOf(text);
    sources.push({ file, text, places, first });
    first += places.length;
  }
  return sources;
}

/** Tests of which a failure says nothing about a change: they read the source, or measure memory by themselves. */
export async function testFiles(): Promise<{ picked: string[]; others: string[] }> {
  const [picked, others]: string[][] = [[], []];
  for await (const file of glob('test/**/*.test.ts', { cwd: root })) {
    if (/^test\/(?:browser|clients)\//.test(file)) continue;
    const text = await readFile(join(root, file), 'utf8');
    const isOther = /^test\/(?:imports|tables|docs|mutants\/.*)\.test/.test(file) || measures.test(text);
    (isOther ? others : picked)!.push(file);
  }
  return { picked: picked!.sort(), others: others!.sort() };
}
const measures = /memoryUsage|VmHWM|'(?:\.\.\/)+src'|readFile(?:Sync)?\([^)]*src\b/;

/** Makes a copy of the checkout record what tests reach. */
export async function instrument(folder: string, sources: readonly Source[]): Promise<void> {
  const hits = join(folder, 'hits.mjs');
  await cp(join(import.meta.dirname, 'hits.mjs'), hits);
  for (const { file, text, places, first } of sources)
    await writeFile(join(folder, file), withHits(text, places, first, hits));
}

/** A name for the texts of all that a record depends on, besides the test file. */
export async function digestOf(sources: readonly Source[]): Promise<string> {
  const hash = createHash('sha256');
  for (const { file, text, places } of sources) hash.update(`${file}\0${text}\0${JSON.stringify(places)}\0`);
  const support: string[] = [];
  for await (const file of glob('test/support/**/*.ts', { cwd: root })) support.push(file);
  for (const file of [...support.sort(), 'package-lock.json'])
    hash.update(`${file}\0${await readFile(join(root, file), 'utf8')}\0`);
  return hash.digest('hex').slice(0, 20);
}

/**
 * The kept records of the test files that have not changed. `earlier` is the number of those that were made with other sources,
 * of which the newest ones are used.
 */
export async function keptRecords(
  digest: string,
  sources: readonly Source[],
  tests: readonly string[],
): Promise<{ records: Recorded[]; earlier: number }> {
  const names = namesOfPlaces(sources);
  await mkdir(join(cache, digest), { recursive: true });
  await writeFile(join(cache, digest, namesFile), JSON.stringify(names));
  const found = new Map<string, Recorded>();
  let earlier = 0;
  for (const folder of [digest, ...(await otherFolders(digest))]) {
    const old = JSON.parse(await readFile(join(cache, folder, namesFile), 'utf8')) as string[];
    for (const test of tests) {
      const path = found.has(test) ? undefined : await pathOfRecord(folder, test);
      const text = path && (await readFile(path, 'utf8').catch(() => undefined));
      if (!text) continue;
      const kept = JSON.parse(text) as Omit<Recorded, 'loaded' | 'reached'> & { loaded: number[]; reached: number[] };
      const [loaded, reached] = [kept.loaded, kept.reached].map((each) =>
        folder === digest ? new Set(each) : renumbered(new Set(each), old, names),
      );
      if (folder !== digest) earlier += 1;
      found.set(test, { ...kept, loaded: loaded!, reached: reached!, imports: await importsOf(test) });
    }
  }
  return { records: [...found.values()], earlier };
}
const namesFile = 'places';

/** The folders of records of other sources, the newest first. */
async function otherFolders(digest: string): Promise<string[]> {
  const found: { folder: string; time: number }[] = [];
  for (const folder of await readdir(cache)) {
    const names = folder === digest ? undefined : await stat(join(cache, folder, namesFile)).catch(() => undefined);
    if (names) found.push({ folder, time: names.mtimeMs });
  }
  return found.toSorted((one, other) => other.time - one.time).map(({ folder }) => folder);
}

/** Names of all places in the order of their numbers: the file, and a digest of the text. Equal texts of a file are numbered. */
export function namesOfPlaces(sources: readonly Pick<Source, 'file' | 'text' | 'places'>[]): string[] {
  return sources.flatMap(({ file, text, places }) => {
    const times = new Map<string, number>();
    return places.map(({ kind, start, end }) => {
      const own = createHash('sha256')
        .update(`${kind}\0${text.slice(start, end)}`)
        .digest('base64url')
        .slice(0, 10);
      const time = times.get(own) ?? 0;
      times.set(own, time + 1);
      return `${file} ${own} ${time}`;
    });
  });
}

function fileOf(name: string): string {
  return name.slice(0, name.indexOf(' '));
}

/** The numbers of places by their `names`, given those by the names `old`. A place that is new is as the one before it. */
export function renumbered(
  numbers: ReadonlySet<number>,
  old: readonly string[],
  names: readonly string[],
): Set<number> {
  const known = new Map(old.map((name, number) => [name, number]));
  const found = new Set<number>();
  for (const [number, name] of names.entries()) {
    const before = known.get(name);
    const isAfterReached = found.has(number - 1) && fileOf(names[number - 1]!) === fileOf(name);
    if (before === undefined ? isAfterReached : numbers.has(before)) found.add(number);
  }
  return found;
}

/** Runs a test file in an instrumented copy, and keeps what it reached; a failure is not kept. */
export async function record(
  folder: string,
  digest: string,
  test: string,
  places: number,
): Promise<Recorded & { output: string }> {
  await writeFile(join(folder, 'hits'), new Uint8Array(2 * places));
  const startedAt = performance.now();
  let milliseconds = 0;
  let isPassed = false;
  let output = '';
  // A failure may be one of a busy machine.
  for (let attempt = 0; attempt < 2 && !isPassed; attempt += 1) {
    const result = await runTests(folder, [test], limit);
    isPassed = result.outcome === 'missed';
    output = failuresIn(result.output);
    milliseconds = performance.now() - startedAt;
  }
  const hits = await readFile(join(folder, 'hits'));
  const [loaded, reached] = [new Set<number>(), new Set<number>()];
  for (const [at, byte] of hits.entries()) if (byte === 1) (at % 2 === 0 ? loaded : reached).add(at >> 1);
  const imports = await importsOf(test);
  const found = { test, isPassed, milliseconds: Math.round(milliseconds), loaded, reached, imports };
  if (!isPassed) return { ...found, output };
  const path = await pathOfRecord(digest, test);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(
    `${path}.new`,
    JSON.stringify({ ...found, loaded: [...loaded], reached: [...reached], imports: undefined }),
  );
  await rename(`${path}.new`, path);
  return { ...found, output };
}

/** The sources that a test file imports, relative to the root. */
async function importsOf(test: string): Promise<Set<string>> {
  const text = await readFile(join(root, test), 'utf8');
  const paths = [...text.matchAll(/from '((?:\.\.\/)+src\/[^']+)'/g)].map(([, path]) => join(dirname(test), path!));
  return new Set(paths);
}

async function pathOfRecord(digest: string, test: string): Promise<string> {
  const own = createHash('sha256')
    .update(await readFile(join(root, test)))
    .digest('hex')
    .slice(0, 12);
  return join(cache, digest, `${test.replaceAll('/', '+')}-${own}.json`);
}
