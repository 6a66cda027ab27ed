import type { Change } from './change.ts';
import type { Recorded, Source } from './coverage.ts';
import { placeOfChange } from './places.ts';

/**
 * The test files that reach the place of a change, those that most likely notice it first: those that reach places of the
 * same source that few others reach. If a place is reached only while modules load, these are all that load it.
 */
export function pick(source: Source, change: Change, records: readonly Recorded[]): Recorded[] {
  const index = placeOfChange(source.places, change);
  const number = source.first + index;
  const reaching = records.filter(({ reached }) => reached.has(number));
  const loading = index < 0 ? [...records] : records.filter(({ loaded }) => loaded.has(number));
  const candidates = reaching.length > 0 ? reaching : loading;
  const reachedBy = source.places.map(
    (_, place) => records.filter(({ reached }) => reached.has(source.first + place)).length,
  );
  const rank = ({ reached }: Recorded): number =>
    reachedBy.reduce((sum, many, place) => (reached.has(source.first + place) ? sum + 1 / many : sum), 0);
  const ranks = new Map(candidates.map((each) => [each, rank(each)]));
  return candidates.sort((one, other) => ranks.get(other)! - ranks.get(one)! || one.reached.size - other.reached.size);
}
