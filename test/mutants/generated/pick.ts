import type { Change } from './change.ts';
import type { Recorded, Source } from './coverage.ts';
import { placeOfChange } from './places.ts';

/**
 * The test files that reach the place of a change, those that most likely notice it first: those that import the source
 * themselves; then by turns, those that reach places of the same source that few others reach; and those with the same words in
 * their path, of which the ones first that reach little: they look at what all servers make when they start. A place that is reached while modules load counts as reached, because some
 * test files load the modules later, and only they would be tried. A constant of a module is used by the functions beside it.
 */
export function pick(source: Source, change: Change, records: readonly Recorded[]): Recorded[] {
  const index = placeOfChange(source.places, change);
  const number = source.first + index;
  const reaching = records.filter(({ reached }) => reached.has(number));
  const loading = index < 0 ? [...records] : records.filter(({ loaded }) => loaded.has(number));
  const words = wordsOf(source.file);
  const near = new Map(records.map((each) => [each, [...wordsOf(each.test)].filter((word) => words.has(word)).length]));
  const all = [...new Set([...reaching, ...loading])];
  const nearest = all.toSorted(
    (one, other) => near.get(other)! - near.get(one)! || one.reached.size - other.reached.size,
  );
  const reachedBy = source.places.map(
    (_, place) => records.filter(({ reached }) => reached.has(source.first + place)).length,
  );
  const rank = ({ reached }: Recorded): number =>
    reachedBy.reduce((sum, many, place) => (reached.has(source.first + place) ? sum + 1 / many : sum), 0);
  const ranks = new Map(all.map((each) => [each, rank(each)]));
  const using = all
    .filter((each) => ranks.get(each)! > 0)
    .sort((one, other) => ranks.get(other)! - ranks.get(one)! || one.reached.size - other.reached.size);
  const importing = nearest.filter(({ imports }) => imports.has(source.file));
  return [...new Set([...importing, ...nearest.flatMap((each, at) => [...using.slice(at, at + 1), each])])];
}

/** The words of the folders and of the file, in the singular: `test/nuget/searches.test.ts` is about `src/nuget/search.ts`. */
function wordsOf(path: string): Set<string> {
  const [, ...parts] = path.replace(/(?:\.long)?(?:\.test)?\.ts$/, '').split(/[/-]/);
  return new Set(parts.map((part) => part.replace(/(?:(?<=ch|s)e)?s$/, '')));
}
