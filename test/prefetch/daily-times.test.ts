import test from 'ava';
import { parseWindow, untilOpen } from '../../src/prefetch/daily-times.ts';

const at = (hour: number, minute = 0, second = 0) => new Date(2026, 5, 15, hour, minute, second).getTime();
const hours = 3_600_000;

test('a window is two times of day', (t) => {
  t.deepEqual(parseWindow('22:00-06:30'), { from: 1320, to: 390 });
  t.deepEqual(parseWindow(' 1:05 - 24:00 '), { from: 65, to: 1440 });
  for (const text of ['', '22-6', '22:00', '22:60-23:00', '25:00-01:00', '24:30-01:00', '10:00-10:00', '0:00-24:00']) {
    t.is(parseWindow(text), undefined, text);
  }
});

test('the wait for a window ends when it opens', (t) => {
  const night = parseWindow('22:00-06:00')!;
  t.is(untilOpen(night, at(22)), 0);
  t.is(untilOpen(night, at(2, 30)), 0);
  t.is(untilOpen(night, at(5, 59, 59)), 0);
  t.is(untilOpen(night, at(6)), 16 * hours);
  t.is(untilOpen(night, at(21, 59, 30)), 30_000);
  const day = parseWindow('09:00-24:00')!;
  t.is(untilOpen(day, at(23, 59)), 0);
  t.is(untilOpen(day, at(0)), 9 * hours);
});
