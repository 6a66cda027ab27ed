import test from 'ava';
import { pino } from 'pino';
import { Closing } from '../../src/runtime/closing.ts';
import { within } from '../support/until.ts';

// In a process of its own: it measures the process.

const timers = () => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length;

test.serial('parts that fail or hang are logged by name, and the next part closes all the same', async (t) => {
  const lines: string[] = [];
  const closing = new Closing(pino({}, { write: (line: string) => void lines.push(line) }), { part: 3000, all: 200 });
  const closed: string[] = [];
  const stack = new AsyncDisposableStack();
  stack.defer(closing.part('the first', () => closed.push('the first')));
  stack.defer(closing.part('the failing', () => Promise.reject(new Error('broken'))));
  stack.defer(closing.part('the throwing', () => closing.part.call(undefined as never, '', () => undefined)));
  stack.defer(closing.part('the hanging', () => new Promise(() => undefined)));
  stack.defer(closing.part('the last', () => closed.push('the last')));
  t.deepEqual(closing.unclosed, ['the first', 'the failing', 'the throwing', 'the hanging', 'the last']);
  closing.limit(0);
  const startedAt = performance.now();
  await within(stack.disposeAsync());
  t.true(performance.now() - startedAt >= 25, 'the hanging one had its share');
  t.deepEqual(closed, ['the last', 'the first']);
  t.deepEqual(closing.unclosed, ['the hanging', 'the throwing', 'the failing']);
  const logged = lines.map((line) => JSON.parse(line) as { part: string; msg: string });
  t.deepEqual(
    logged.map(({ msg }) => msg),
    ['the hanging', 'the throwing', 'the failing'].map((part) => `closing: ${part} did not close`),
  );
});

test.serial('all parts together get the limit, also when each of them hangs', async (t) => {
  const closing = new Closing(pino({ level: 'silent' }), { part: 3000, all: 1500 });
  const times: number[] = [];
  const stack = new AsyncDisposableStack();
  for (let part = 0; part < 10; part += 1) {
    const hang = (milliseconds: number) => {
      times.push(milliseconds);
      return new Promise(() => undefined);
    };
    stack.defer(closing.part(`part ${part}`, hang));
  }
  closing.limit(500);
  await within(stack.disposeAsync());
  t.is(closing.unclosed.length, 10);
  // A timer can end a millisecond early, which leaves more for the rest.
  t.true(times.reduce((sum, each) => sum + each) <= 2020, times.join());
  t.true(times[0]! <= 200 && times[0]! > 100, `${times[0]} ms, a tenth, for the first`);
});

test.serial(
  'without a limit for all, one part gets at most 3 seconds; a part that closes in time leaves no timer',
  async (t) => {
    const closing = new Closing(pino({ level: 'silent' }));
    const before = timers();
    let time: number | undefined;
    await closing.part('the only', (milliseconds) => (time = milliseconds))();
    t.is(time, 3000);
    t.is(timers(), before);
    t.deepEqual(closing.unclosed, []);
  },
);
