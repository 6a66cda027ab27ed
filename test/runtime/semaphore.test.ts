import test from 'ava';
import { Semaphore } from '../../src/runtime/semaphore.ts';

const isFree = (taken: unknown) => typeof taken === 'function';
const waits = (taken: unknown) => Promise.race([taken, Promise.resolve('waits')]);

test('a place goes to the one that has waited longest; one that gave up or left gets none', async (t) => {
  const semaphore = new Semaphore({ max: 1, maxWaiting: 3 });
  const first = semaphore.take('a') as () => void;
  t.true(isFree(first));
  const leaving: ((error: Error) => void)[] = [];
  let listening = 0;
  const whenLeft = (leave: (error: Error) => void) => {
    listening += 1;
    leaving.push(leave);
    return () => void (listening -= 1);
  };
  const left = Promise.resolve(semaphore.take('a', { patience: 60_000, whenLeft }));
  t.is(await semaphore.take('a', { patience: 1 }), undefined, 'it gave up');
  const next = Promise.resolve(semaphore.take('a', { patience: 60_000, whenLeft }));
  const last = Promise.resolve(semaphore.take('a'));
  t.is(semaphore.take('a', { patience: 60_000 }), undefined, 'the line is full');
  t.true(isFree(semaphore.take('b')), 'another key has another line');
  leaving[0]!(new Error('it left'));
  await t.throwsAsync(left, { message: 'it left' });
  first();
  const release = await next;
  t.is(listening, 0);
  first();
  t.is(await waits(last), 'waits', 'a place is released once');
  release!();
  (await last)!();
  t.true(isFree(semaphore.take('a')));
});

test('a group that may run no more does not stop the others under its key, and gets its place in its turn', async (t) => {
  const semaphore = new Semaphore({ max: 3, maxOfGroup: () => 2 });
  const take = (group: string) => semaphore.take('host', { group });
  const running = [take('one'), take('one')] as (() => void)[];
  const waiting = Promise.resolve(take('one'));
  t.is(semaphore.waiting('one'), 1);
  const other = take('two') as () => void;
  t.true(isFree(other));
  const late = Promise.resolve(take('two'));
  other();
  t.true(isFree(await late), 'the first that may run, not the first of all');
  t.is(await waits(waiting), 'waits');
  running[0]!();
  t.true(isFree(await waiting));
  t.is(semaphore.waiting('one'), 0);
});

test('work that fails releases its place', async (t) => {
  const semaphore = new Semaphore({ max: 1 });
  await t.throwsAsync(
    semaphore.run(() => Promise.reject(new Error('failed'))),
    { message: 'failed' },
  );
  const order: number[] = [];
  const run = (each: number) =>
    semaphore.run(async () => {
      order.push(each);
      await Promise.resolve();
      order.push(each);
      return each;
    });
  t.deepEqual(await Promise.all([run(1), run(2), run(3)]), [1, 2, 3]);
  t.deepEqual(order, [1, 1, 2, 2, 3, 3]);
});
