import type { Change } from './change.ts';
import type { Recorded, Source } from './coverage.ts';
import { placeOfChange } from './places.ts';

/**
 * The test files that reach the place of a change, those that most likely notice it first. By turns, those that reach places
 * of the same source that few others reach; and those of its folder, of which the ones first that reach little: they look
 * at what all servers make when they start. A place that is reached while modules load counts as reached, because some
 * test files load the modules later, and only they would be tried. A constant of a module is used by the functions beside it.
 */
export function pick(source: Source, change: Change, records: readonly Recorded[]): Recorded[] {
  const index = placeOfChange(source.places, change);
  const number = source.first + index;
  const reaching = records.filter(({ reached }) => reached.has(number));
  const loading = index < 0 ? [...records] : records.filter(({ loaded }) => loaded.has(number));
  const folder = `test/${source.file.split('/')[1]}/`;
  const isNear = ({ test }: Recorded): number => (test.startsWith(folder) ? 1 : 0);
  const all = [...new Set([...reaching, ...loading])];
  const near = all.toSorted((one, other) => isNear(other) - isNear(one) || one.reached.size - other.reached.size);
  const reachedBy = source.places.map(
    (_, place) => records.filter(({ reached }) => reached.has(source.first + place)).length,
  );
  const rank = ({ reached }: Recorded): number =>
    reachedBy.reduce((sum, many, place) => (reached.has(source.first + place) ? sum + 1 / many : sum), 0);
  const ranks = new Map(all.map((each) => [each, rank(each)]));
  const using = all
    .filter((each) => ranks.get(each)! > 0)
    .sort((one, other) => ranks.get(other)! - ranks.get(one)! || one.reached.size - other.reached.size);
  return [...new Set(near.flatMap((each, at) => [...using.slice(at, at + 1), each]))];
}
