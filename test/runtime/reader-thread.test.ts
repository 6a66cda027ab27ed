import test from 'ava';
import { ReaderThread } from '../../src/runtime/reader-thread.ts';

/** Reads a text as it is. */
const echo = 'data:text/javascript,export default (bytes) => bytes.toString()';
/** Never ends for a text. */
const hanging = 'data:text/javascript,export default () => { for (;;); }';

test('groups take turns, however many readings of one of them wait', async (t) => {
  const thread = new ReaderThread(echo);
  const order: string[] = [];
  const read = async (text: string, group: string) => {
    order.push(...(await thread.read(Buffer.from(text), {}, group)));
  };
  const many = Array.from({ length: 10 }, (_, each) => read(`many ${each}`, 'many'));
  await Promise.all([...many, read('one', 'one'), read('other', 'other')]);
  t.deepEqual(order.slice(0, 4), ['many 0', 'one', 'other', 'many 1']);
  t.is(order.length, 12);
});

test('of a group only so many readings wait, and others are not refused', async (t) => {
  const thread = new ReaderThread(echo, { maxWaiting: 1 });
  const read = (group: string) => thread.read(Buffer.from('x'), {}, group);
  const results = await Promise.allSettled([read('a'), read('a'), read('a'), read('b'), read('b')]);
  t.deepEqual(
    results.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected', 'fulfilled', 'fulfilled'],
  );
  t.like((results[2] as PromiseRejectedResult).reason, { name: 'TooManyRequests', retryAfter: 15 });
  t.deepEqual(await read('a'), ['x']);
});

test('the start of the thread does not count for the time of a reading', async (t) => {
  const wait = 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3000)';
  const slow = `data:text/javascript,${wait}; export default () => 'x'`;
  const thread = new ReaderThread(slow, { longest: 2000 });
  t.deepEqual(await thread.read(Buffer.from('x'), {}), ['x']);
});

test('a reading that takes too long is ended', async (t) => {
  const thread = new ReaderThread(hanging, { longest: 300 });
  const reading = thread.read(Buffer.from('x'), {});
  await t.throwsAsync(reading, { name: 'TooManyRequests', message: /cannot be read within 0\.3 seconds/ });
});
