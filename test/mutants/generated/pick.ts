import type { Change } from './change.ts';
import type { Recorded, Source } from './coverage.ts';
import { placeOfChange } from './places.ts';

/**
 * The test files that reach the place of a change, those that most likely notice it first: those that reach places of the
 * same source that few others reach. If a place is reached only while modules load, these are all that load it, those
 * of its folder first, and of these the ones that reach little: they look at what was made while modules loaded.
 */
export function pick(source: Source, change: Change, records: readonly Recorded[]): Recorded[] {
  const index = placeOfChange(source.places, change);
  const number = source.first + index;
  const reaching = records.filter(({ reached }) => reached.has(number));
  const loading = index < 0 ? [...records] : records.filter(({ loaded }) => loaded.has(number));
  if (reaching.length === 0) {
    const folder = `test/${source.file.split('/')[1]}/`;
    const isNear = ({ test }: Recorded): number => (test.startsWith(folder) ? 1 : 0);
    return loading.sort((one, other) => isNear(other) - isNear(one) || one.reached.size - other.reached.size);
  }
  const reachedBy = source.places.map(
    (_, place) => records.filter(({ reached }) => reached.has(source.first + place)).length,
  );
  const rank = ({ reached }: Recorded): number =>
    reachedBy.reduce((sum, many, place) => (reached.has(source.first + place) ? sum + 1 / many : sum), 0);
  const ranks = new Map(reaching.map((each) => [each, rank(each)]));
  return reaching.sort((one, other) => ranks.get(other)! - ranks.get(one)! || one.reached.size - other.reached.size);
}
