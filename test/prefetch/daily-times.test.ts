import test from 'ava';
import { parseWindow, untilOpen } from '../../src/prefetch/daily-times.ts';

const at = (hour: number, minute = 0, second = 0) => new Date(2026, 5, 15, hour, minute, second).getTime();
const hours = 3_600_000;

test('a window is two times of day', (t) => {
  t.deepEqual(parseWindow('22:00-06:30'), { from: 1320, to: 390 });
  t.deepEqual(parseWindow(' 1:05 - 24:00 '), { from: 65, to: 1440 });
  t.deepEqual(parseWindow('24:00-06:00'), { from: 1440, to: 360 });
  t.deepEqual(parseWindow('2:00-19:59'), { from: 120, to: 1199 });
  t.deepEqual(parseWindow('22:00-6:00'), { from: 1320, to: 360 });
  for (const text of ['x22:00-23:00', '22:00-23:00x', '22:60-23:00', '22:00-01:60', '22:00-25:00', '22:00-24:30']) {
    t.is(parseWindow(text), undefined, text);
  }
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
  t.is(untilOpen(day, at(8, 59, 59) + 999), 1);
  t.is(untilOpen(day, at(9)), 0);
  const work = parseWindow('09:00-17:00')!;
  t.is(untilOpen(work, at(16, 59, 59) + 999), 0);
  t.is(untilOpen(work, at(17)), 16 * hours);
  const morning = parseWindow('24:00-06:30')!;
  t.is(untilOpen(morning, at(0)), 0);
  t.is(untilOpen(morning, at(6, 30)), 17.5 * hours);
});
