import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { Samples } from '../../src/metrics/samples.ts';
import { Times } from '../../src/metrics/times.ts';

const now = performance.now.bind(performance);

test.serial('a value is measured once in its interval, and one that fails is measured again in the next', async (t) => {
  let time = 1000;
  performance.now = () => time;
  t.teardown(() => (performance.now = now));
  const samples = new Samples();
  await samples.refresh();
  const measured: string[] = [];
  samples.add(100, () => Promise.resolve(void measured.push('often')));
  samples.add(1000, () => {
    measured.push('seldom');
    return Promise.reject(new Error('no database'));
  });
  await samples.refresh();
  await samples.refresh();
  t.deepEqual(measured.splice(0), ['often', 'seldom']);
  time += 99;
  await samples.refresh();
  t.deepEqual(measured, []);
  time += 1;
  await samples.refresh();
  t.deepEqual(measured.splice(0), ['often']);
  time += 900;
  await samples.refresh();
  t.deepEqual(measured.splice(0), ['often', 'seldom']);
});

test.serial('readers wait for a measurement that runs, which is not begun again', async (t) => {
  let time = 1000;
  performance.now = () => time;
  t.teardown(() => (performance.now = now));
  const samples = new Samples();
  const runs: PromiseWithResolvers<void>[] = [];
  samples.add(100, () => {
    runs.push(Promise.withResolvers<void>());
    return runs.at(-1)!.promise;
  });
  const ended: string[] = [];
  const first = samples.refresh().then(() => ended.push('first'));
  time += 500;
  const second = samples.refresh().then(() => ended.push('second'));
  for (let each = 0; each < 5; each += 1) await turn();
  t.deepEqual([ended, runs.length], [[], 1]);
  runs[0]!.resolve();
  await Promise.all([first, second]);
  t.deepEqual(ended.toSorted(), ['first', 'second']);
  const third = samples.refresh();
  t.is(runs.length, 2);
  runs[1]!.resolve();
  await third;
});

test.serial('durations are counted up to each bound, and those above all of them in the last bucket', (t) => {
  const times = new Times([0.1, 0.5, 2]);
  t.deepEqual([times.bounds, times.counts, times.sum], [[0.1, 0.5, 2], [0, 0, 0, 0], 0]);
  for (const seconds of [0, 0.1, 0.25, 0.5, 1, 2, 2.5, 100]) times.observe(seconds);
  t.deepEqual([times.counts, times.sum], [[2, 2, 2, 2], 106.35]);
  performance.now = () => 3000;
  t.teardown(() => (performance.now = now));
  const since = new Times([0.1, 0.5, 2]);
  since.since(2750);
  t.deepEqual([since.counts, since.sum], [[0, 1, 0, 0], 0.25]);
});
