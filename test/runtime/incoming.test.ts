import { EventEmitter } from 'node:events';
import { mock } from 'node:test';
import type { Readable } from 'node:stream';
import test from 'ava';
import { release, Throttle, whenSilent } from '../../src/runtime/incoming.ts';

test('the memory of a chunk is freed only if nothing else uses it', (t) => {
  const own = Buffer.from(new ArrayBuffer(8));
  release(own);
  t.is(own.length, 0);
  const part = Buffer.from(new ArrayBuffer(8), 0, 4);
  release(part);
  t.is(part.length, 4);
  const shared = Buffer.from(new SharedArrayBuffer(8));
  release(shared);
  t.is(shared.length, 8);
});

const source = () => {
  const state = { isPaused: false, errors: [] as Error[] };
  const emitter = Object.assign(new EventEmitter(), { isPaused: () => state.isPaused });
  const stop = whenSilent(emitter as unknown as Readable, 100, (error) => state.errors.push(error));
  return { state, emitter, stop };
};

test.serial('a source that sends nothing for its time is told once, and one that its reader has paused is not', (t) => {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  const [silent, paused, sending, stopped] = [source(), source(), source(), source()];
  paused.state.isPaused = true;
  stopped.stop();
  t.is(stopped.emitter.listenerCount('data'), 0);
  mock.timers.tick(100);
  sending.emitter.emit('data');
  t.deepEqual(silent.state.errors, []);
  mock.timers.tick(25);
  t.deepEqual(
    silent.state.errors.map(({ name, message }) => `${name}: ${message}`),
    ['Aborted: The sender stopped sending before the end of the body.'],
  );
  t.is(silent.emitter.listenerCount('data'), 0);
  mock.timers.tick(75);
  t.deepEqual(sending.state.errors, []);
  mock.timers.tick(25);
  t.is(sending.state.errors.length, 1, '125 ms after its last byte');
  mock.timers.tick(500);
  paused.state.isPaused = false;
  mock.timers.tick(100);
  t.deepEqual(paused.state.errors, [], 'its time begins when it goes on');
  mock.timers.tick(25);
  for (const { state } of [silent, paused, sending]) t.is(state.errors.length, 1);
  t.is(stopped.state.errors.length, 0);
});

test('a rate is kept over all pieces, short waits are added up, and a signal ends the wait', async (t) => {
  const controller = new AbortController();
  const throttle = new Throttle(100_000, controller.signal);
  const startedAt = performance.now();
  for (let each = 0; each < 20; each += 1) await throttle.spend(1000);
  const took = performance.now() - startedAt;
  // 200 ms of bytes; the last few milliseconds are added to the next wait.
  t.true(took >= 190, `${took} ms`);
  t.true(took < 2000, `${took} ms`);
  const waiting = throttle.spend(10_000_000);
  controller.abort(new Error('it is over'));
  await t.throwsAsync(waiting, { name: 'AbortError' });
  await t.throwsAsync(throttle.spend(1), { message: 'it is over' });
  const free = new Throttle(1_000_000, undefined);
  await free.spend(3000);
  t.pass();
});
