import test from 'ava';
import { S3Counts } from '../../../src/storage/drivers/counts.ts';

test('requests to S3 are counted by operation and result, and timed by operation', (t) => {
  const counts = new S3Counts();
  for (const seconds of [0.005, 0.006, 31]) counts.count('get', 'ok', seconds);
  counts.count('get', 'missing', 0.3);
  const all = counts.requests();
  t.is(all.length, 45);
  t.deepEqual(
    all.filter(([, count]) => count !== 0),
    [
      [{ operation: 'get', result: 'ok' }, 3],
      [{ operation: 'get', result: 'missing' }, 1],
    ],
  );
  t.deepEqual(all[0], [{ operation: 'put', result: 'ok' }, 0]);
  const times = counts.times.get('get')!;
  t.deepEqual(times.bounds, [0.005, 0.02, 0.05, 0.1, 0.25, 1, 5, 30]);
  t.deepEqual(times.counts, [1, 1, 0, 0, 0, 1, 0, 0, 1]);
  t.is(counts.times.get('copy')!.sum, 0);
  t.is(counts.times.size, 9);
});
