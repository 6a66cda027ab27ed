import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { inTurn, inTurnShared } from '../../src/runtime/in-turn.ts';

/** Work that ends when a test lets it; `begun` is how many runs began. */
function controlled() {
  const runs: PromiseWithResolvers<number>[] = [];
  const work = () => {
    runs.push(Promise.withResolvers<number>());
    return runs.at(-1)!.promise;
  };
  return { runs, work };
}

test('runs follow one another, each call has its own, and a failure stops none', async (t) => {
  const { runs, work } = controlled();
  const run = inTurn(async () => void (await work()));
  const ended: string[] = [];
  const calls = ['first', 'second', 'third'].map((name) =>
    run().then(
      () => ended.push(name),
      (error: Error) => ended.push(`${name} ${error.message}`),
    ),
  );
  await turn();
  t.is(runs.length, 1);
  runs[0]!.reject(new Error('failed'));
  await turn();
  t.deepEqual([ended, runs.length], [['first failed'], 2]);
  runs[1]!.resolve(2);
  await turn();
  t.deepEqual([ended, runs.length], [['first failed', 'second'], 3]);
  runs[2]!.resolve(3);
  await Promise.all(calls);
  t.deepEqual(ended, ['first failed', 'second', 'third']);
});

test('calls that wait share the next run, and none gets a run that began before it', async (t) => {
  const { runs, work } = controlled();
  const run = inTurnShared(work);
  const first = run();
  await turn();
  const [second, third] = [run(), run()];
  t.is(second, third);
  t.not(first, second);
  await turn();
  t.is(runs.length, 1);
  runs[0]!.reject(new Error('failed'));
  await t.throwsAsync(first, { message: 'failed' });
  await turn();
  t.is(runs.length, 2);
  const fourth = run();
  t.not(fourth, second);
  runs[1]!.resolve(2);
  t.deepEqual(await Promise.all([second, third]), [2, 2]);
  await turn();
  runs[2]!.resolve(3);
  t.is(await fourth, 3);
});

test('shared runs begin with a pause between them, and the first one at once', async (t) => {
  const begun: number[] = [];
  const run = inTurnShared(() => Promise.resolve(begun.push(performance.now())), 60);
  const startedAt = performance.now();
  await run();
  t.true(begun[0]! - startedAt < 600);
  await run();
  await Promise.all([run(), run()]);
  t.is(begun.length, 3);
  // A timer may end a moment early.
  t.true(begun[1]! - begun[0]! >= 58 && begun[2]! - begun[1]! >= 58, begun.join(' '));
});
