import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import {
  currentCaller,
  currentOrigin,
  endingWait,
  runFor,
  runForSystem,
  systemOrigin,
  untilCallerLeaves,
  type Caller,
  type Origin,
} from '../../src/runtime/caller.ts';
import { Semaphore } from '../../src/runtime/semaphore.ts';

const left = 'The client closed the connection before the answer was complete.';

/** A caller that leaves when a test says so; `listening` is how many want to know. */
function visitor(more: Partial<Caller> = {}) {
  const listeners = new Set<() => void>();
  const caller: Caller = {
    account: 'team',
    gone: false,
    whenGone: (then) => {
      listeners.add(then);
      return () => void listeners.delete(then);
    },
    ...more,
  };
  return { caller, leave: () => listeners.forEach((each) => each()), listening: () => listeners.size };
}

test('what a caller waits for ends when it leaves, and its listener with the work', async (t) => {
  const { caller, leave, listening } = visitor();
  const work = Promise.withResolvers<string>();
  const waiting = runFor(caller, () => untilCallerLeaves(work.promise));
  t.is(listening(), 1);
  leave();
  await t.throwsAsync(waiting, { name: 'Aborted', message: left });
  work.resolve('too late');
  await turn();
  t.is(listening(), 0);

  t.is(await runFor(caller, () => untilCallerLeaves(Promise.resolve('done'))), 'done');
  await t.throwsAsync(
    runFor(caller, () => untilCallerLeaves(Promise.reject(new Error('failed')))),
    { message: 'failed' },
  );
  await turn();
  t.is(listening(), 0);

  const gone = visitor({ gone: true });
  // A failure that nobody waits for any more must not end the process.
  const failing = Promise.reject<string>(new Error('failed'));
  await t.throwsAsync(
    runFor(gone.caller, () => untilCallerLeaves(failing)),
    { name: 'Aborted', message: left },
  );
  t.is(gone.listening(), 0);
  const alone = Promise.resolve('alone');
  t.is(untilCallerLeaves(alone), alone, 'without a caller nothing is added');
});

test('a wait for a place ends when the caller leaves', async (t) => {
  const { caller, leave, listening } = visitor();
  const semaphore = new Semaphore({ max: 1 });
  const first = semaphore.take('key') as () => void;
  const waiting = Promise.resolve(semaphore.take('key', { whenLeft: endingWait(caller) }));
  t.is(listening(), 1);
  leave();
  await t.throwsAsync(waiting, { name: 'Aborted', message: left });
  const next = Promise.resolve(semaphore.take('key', { whenLeft: endingWait(caller) }));
  first();
  t.is(typeof (await next), 'function');
  t.is(listening(), 0);
});

test('a change comes from the caller that began the work, or from the system', async (t) => {
  const none = { actor: { kind: 'system', id: null, name: null }, address: null, requestId: null };
  t.deepEqual(currentOrigin(), none as Origin);
  t.is(currentCaller(), undefined);
  const origin: Origin = {
    actor: { kind: 'token', id: 'x', name: 'ci' },
    address: '192.0.2.1',
    requestId: 'r',
  };
  const client = visitor({ origin }).caller;
  const shared = visitor({ startedBy: visitor({ startedBy: client }).caller }).caller;
  t.is(runFor(shared, currentOrigin), origin);
  t.is(runFor(client, currentCaller), client);
  t.deepEqual(runFor(visitor().caller, currentOrigin), none as Origin);
  const system = runForSystem('gc', () => currentCaller()!);
  t.deepEqual([system.account, system.gone, system.origin], [undefined, false, systemOrigin('gc')]);
  t.deepEqual(systemOrigin('gc'), { ...none, actor: { kind: 'system', id: null, name: 'gc' } } as Origin);
  t.notThrows(() => system.whenGone(() => t.fail('it never leaves'))());
  const later = await runForSystem('command', async () => {
    await turn();
    return currentOrigin();
  });
  t.is(later.actor.name, 'command');
});
