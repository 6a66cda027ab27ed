import test from 'ava';
import { deletionClock } from '../../src/runtime/clock.ts';

const day = 86_400_000;

test('the clock for deletions is never ahead of the system, and follows it by a tenth of the time that passes', (t) => {
  const wall = { now: 100 * day };
  const watch = { now: 0 };
  const time = deletionClock(
    () => wall.now,
    () => watch.now,
  );
  const pass = (milliseconds: number) => {
    wall.now += milliseconds;
    watch.now += milliseconds;
  };
  t.is(time(), wall.now);
  pass(day);
  t.is(time(), wall.now, 'without a jump both are equal');
  wall.now += day;
  t.is(time(), 101 * day, 'a jump changes nothing');
  pass(day);
  t.is(time(), 102.1 * day);
  pass(9 * day);
  t.is(time(), wall.now, 'it has caught up');
  pass(day);
  t.is(time(), wall.now, 'and goes no further');
  wall.now -= 5 * day;
  t.is(time(), wall.now, 'set back');
  pass(day);
  t.is(time(), wall.now);
  wall.now += 5 * day;
  t.is(time(), wall.now, 'a correction of the jump back');
});
