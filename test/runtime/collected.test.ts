import test from 'ava';
import { runFor, untilCallerLeaves, type Caller } from '../../src/runtime/caller.ts';
import { Collected } from '../../src/runtime/collected.ts';
import { until } from '../support/until.ts';

// In a process of its own: a timer keeps it running.

// A value is at most as old as it may be, unless it takes long to collect a new one.

const never = new Promise<never>(() => undefined);
// The timers of readers do not keep the process running.
const running = setInterval(() => undefined, 1000);
test.after.always(() => clearInterval(running));

function counting(freshFor: number, work: (count: number) => Promise<unknown>) {
  let count = 0;
  const values = new Collected({
    collect: async (key: string) => {
      const value = { key, count: (count += 1) };
      await work(count);
      return value;
    },
    maxSize: 100,
    freshFor,
  });
  return { values, count: () => count };
}

test('a value is used while it is fresh, each key has its own, and later a reader gets a new one', async (t) => {
  const lasting = counting(1_000_000, async () => undefined);
  t.is(await lasting.values.of('a'), await lasting.values.of('a'));
  t.deepEqual(await lasting.values.of('b'), { key: 'b', count: 2 });
  const short = counting(1, async () => undefined);
  const first = await short.values.of('a');
  await until(async () => (await short.values.of('a')) !== first);
  // It was asked for only once more, and what it got was not an old value.
  t.deepEqual(await short.values.of('a'), { key: 'a', count: short.count() });
});

test('while a new value takes long or fails, readers get the old one', async (t) => {
  const slow = counting(1, (count) => (count > 1 ? never : Promise.resolve()));
  const first = await slow.values.of('a');
  await until(async () => {
    t.is(await slow.values.of('a'), first);
    return slow.count() > 1;
  });
  t.is(await slow.values.within(60_000, 'a'), first);
  const failing = counting(1, (count) => (count > 1 ? Promise.reject(new Error('broken')) : Promise.resolve()));
  const before = await failing.values.of('a');
  await until(async () => {
    t.is(await failing.values.of('a'), before);
    return failing.count() > 1;
  });
});

test('a reader waits for the first value, or for as long as it wants', async (t) => {
  const slow = counting(1, () => never);
  t.is(await slow.values.within(10, 'a'), undefined);
  const broken = counting(1, () => Promise.reject(new Error('broken')));
  await t.throwsAsync(broken.values.of('a'), { message: 'broken' });
});

test('a reader that leaves does not end what is collected for others', async (t) => {
  const leavers: (() => void)[] = [];
  const reader: Caller = { account: 'team', gone: false, whenGone: (then) => (leavers.push(then), () => undefined) };
  const collected = Promise.withResolvers<void>();
  const shared = counting(1_000_000, () => untilCallerLeaves(collected.promise));
  const value = runFor(reader, () => shared.values.of('a'));
  for (const leave of leavers) leave();
  collected.resolve();
  t.deepEqual(await value, { key: 'a', count: 1 });
});
