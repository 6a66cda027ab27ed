import { setTimeout as sleep } from 'node:timers/promises';
import test from 'ava';
import type { Database } from '../../src/database/database.ts';
import { HostedBytes } from '../../src/usage/hosted.ts';

/** A database whose every look takes `clock.cost` milliseconds and finds one byte more. */
function slowDatabase(clock: { now: number; cost: number }): { database: Database; looks: () => number } {
  let looks = 0;
  const get = async () => {
    looks += 1;
    const bytes = looks;
    await sleep(1);
    clock.now += clock.cost;
    return { blobs: 1, last: 'sha256:00', bytes };
  };
  return { database: { get } as unknown as Database, looks: () => looks };
}

test('quick measurements are made each time, long ones are shared for a while', async (t) => {
  const clock = { now: 1_000_000, cost: 2 };
  const { database, looks } = slowDatabase(clock);
  const hosted = new HostedBytes(database, () => clock.now);
  await hosted.of(1);
  await hosted.of(1);
  t.is(looks(), 2);
  clock.cost = 1000;
  const startedAt = clock.now;
  t.deepEqual(await hosted.of(1), { bytes: 3, asOf: startedAt });
  clock.now = startedAt + 19_999;
  t.deepEqual(await hosted.of(1), { bytes: 3, asOf: startedAt });
  t.is((await hosted.of(2)).bytes, 4, 'another account has its own');
  clock.now = startedAt + 20_000;
  t.is((await hosted.of(1)).bytes, 5);
});

test('who asks while a long measurement is under way waits for it; one that fails is forgotten', async (t) => {
  const clock = { now: 1_000_000, cost: 0 };
  let answer = Promise.withResolvers<{ blobs: number; last: string; bytes: number }>();
  let looks = 0;
  const get = () => {
    looks += 1;
    return answer.promise;
  };
  const hosted = new HostedBytes({ get } as unknown as Database, () => clock.now);
  const first = hosted.of(1);
  clock.now += 251;
  const second = hosted.of(1);
  t.is(looks, 1);
  answer.reject(new Error('gone'));
  await t.throwsAsync(first, { message: 'gone' });
  await t.throwsAsync(second, { message: 'gone' });
  answer = Promise.withResolvers();
  answer.resolve({ blobs: 1, last: 'sha256:00', bytes: 7 });
  t.is((await hosted.of(1)).bytes, 7);
});
