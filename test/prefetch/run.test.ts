import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { prefetch, type Prefetchable, type PrefetchOptions } from '../../src/prefetch/prefetch.ts';
import { PrefetchRun, type RunOptions } from '../../src/prefetch/run.ts';
import { Declined } from '../../src/prefetch/gate.ts';
import { Queue } from '../../src/prefetch/queue.ts';
import { BackgroundTask } from '../../src/runtime/background-task.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import type { UnclearItem } from '../../src/prefetch/item.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import { prefetchOptions } from '../support/prefetch.ts';

const location = { file: 'list.txt', line: 3 };

function runOf(more: Partial<RunOptions> = {}) {
  const said: (string | undefined)[] = [];
  const run = new PrefetchRun({
    concurrency: 2,
    dryRun: false,
    collect: false,
    upstreams: [],
    signal: new AbortController().signal,
    now: () => 0,
    share: 1,
    patience: 60_000,
    waiting: (reason) => void said.push(reason),
    ...more,
  });
  return { run, said };
}

/** A failure of an upstream after a request, or a refusal without one, that may pass at once. */
const failed = (more: object = {}) =>
  new UpstreamError('UpstreamUnavailable', 'It failed.', { id: 'up', retryAfter: 0, cause: new Error('500'), ...more });
const refusal = () => failed({ cause: undefined });

/** What is asked so many times before it works, and what is told then. */
async function triedWith(error: Error, times = Infinity) {
  const { run, said } = runOf();
  let asked = 0;
  run.once('key', 'a thing', location, async () => {
    asked += 1;
    if (asked <= times) throw error;
  });
  await run.done();
  return { asked, missing: run.report.missing, progress: run.progress, said };
}

const missing = (reason: string) => [{ what: 'a thing', reason, location }];

test('work that failed is done again: four times after requests, twenty times after refusals', async (t) => {
  const progress = { known: 1, ended: 1 };
  for (const [error, times, asked, found] of [
    [failed(), Infinity, 4, missing('It failed.')],
    [failed(), 3, 4, []],
    [refusal(), Infinity, 20, missing('It failed.')],
    [refusal(), 19, 20, []],
    [failed({ retryAfter: undefined }), Infinity, 1, missing('It failed.')],
    [new Declined('It is declined.'), Infinity, 1, missing('It is declined.')],
    [new DomainError('NotFound', 'It is gone.'), Infinity, 1, missing('It is gone.')],
  ] as const) {
    const tried = await triedWith(error, times);
    t.deepEqual(tried, { asked, missing: found, progress, said: found.length > 0 ? [] : [undefined] });
  }
});

test('what is done under one key is done once, and what is not expected ends all', async (t) => {
  const { run } = runOf({ concurrency: 1 });
  const done: string[] = [];
  const work = (name: string, fails?: Error) => async () => {
    done.push(name);
    await turn();
    if (fails) throw fails;
  };
  run.once('a', 'a', location, work('a'));
  run.once('a', 'again', location, work('again'));
  run.once('b', 'b', location, work('b'));
  run.once('c', 'c', location, work('c'));
  t.deepEqual([run.progress, done], [{ known: 3, ended: 0 }, ['a']]);
  await run.done();
  t.deepEqual([run.progress, done], [{ known: 3, ended: 3 }, ['a', 'c', 'b']]);
  t.false(run.report.interrupted);
  const defect = new TypeError('a defect');
  const failing = runOf({ concurrency: 1 });
  failing.run.once('a', 'a', location, work('broken', defect));
  failing.run.once('b', 'b', location, work('never'));
  t.is(await t.throwsAsync(failing.run.done()), defect);
  t.false(done.includes('never'));
});

test('work that waits for its next attempt does not hold other work, and none begins after the end', async (t) => {
  const controller = new AbortController();
  const { run } = runOf({ concurrency: 1, signal: controller.signal });
  const done: string[] = [];
  run.once('slow', 'slow', location, async () => {
    done.push('slow');
    throw failed({ retryAfter: 100 });
  });
  await turn();
  run.once('other', 'other', location, async () => {
    done.push('other');
    controller.abort();
    throw failed();
  });
  run.once('late', 'late', location, async () => void done.push('late'));
  await run.done();
  t.deepEqual(done, ['slow', 'other']);
  t.deepEqual([run.report.missing, run.report.interrupted, run.progress], [[], true, { known: 3, ended: 3 }]);
});

test('entries that clients need are kept only if they are collected', (t) => {
  const key = { upstream: 'up', kind: 'nupkg', name: 'a', reference: '1.0.0' };
  const metadata = { size: 5 } as never;
  for (const collect of [true, false]) {
    const { run } = runOf({ collect });
    run.needed(key, metadata);
    run.needed({ ...key }, metadata);
    run.found('package', 'present', 5);
    t.deepEqual([...run.report.needed.values()], collect ? [{ key, metadata }] : []);
    t.deepEqual([run.collects, run.report.present.package], [collect, { count: 1, bytes: 5 }]);
  }
});

test('a queue runs so many pieces at a time, the newest first, and ends when all are done or one fails', async (t) => {
  const queue = new Queue(2);
  await queue.done();
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const piece = (name: string) => () => {
    begun.push(name);
    return new Promise<void>((resolve) => ends.set(name, resolve));
  };
  for (const each of ['a', 'b', 'c', 'd']) queue.add(piece(each));
  t.deepEqual(begun, ['a', 'b']);
  let isDone = false;
  const done = queue.done().then(() => (isDone = true));
  for (const [ended, next] of [
    ['a', 'd'],
    ['d', 'c'],
    ['b', undefined],
  ] as const) {
    ends.get(ended)!();
    await turn();
    t.deepEqual([begun.at(-1), isDone], [next ?? 'c', false]);
  }
  ends.get('c')!();
  await done;
  t.deepEqual(begun, ['a', 'b', 'd', 'c']);
  const failing = new Queue(2);
  const error = new Error('it broke');
  failing.add(piece('running'));
  failing.add(() => Promise.reject(error));
  failing.add(piece('never'));
  failing.addLater(piece('later'), 3_600_000, new AbortController().signal);
  let isOver = false;
  const over = t.throwsAsync(failing.done()).then((found) => {
    isOver = true;
    return found;
  });
  await turn();
  t.deepEqual([begun.at(-1), isOver], ['running', false], 'what runs is waited for');
  ends.get('running')!();
  t.is(await over, error);
  t.false(begun.includes('never') || begun.includes('later'));
});

test('a prefetch tells what is unclear, its progress and its bytes, with the work of each protocol in turn', async (t) => {
  const shown: unknown[] = [];
  const order: string[] = [];
  const upstream = { id: 'up', name: 'up', unavailable: () => undefined, counts: { rateLimit: () => undefined } };
  const controller = new AbortController();
  const stop = new AbortController();
  const given: PrefetchOptions[] = [];
  const protocol = (name: string): Prefetchable => ({
    prefetch: async (run, options) => {
      order.push(`${name} begins`);
      given.push(options);
      await turn();
      run.once(name, name, location, async () => {
        await run.gate.pass(upstream as unknown as Upstream);
        t.is(BackgroundTask.current?.signal, controller.signal, 'only the end of all ends what is being fetched');
        run.found('blob', 'fetched', 7);
      });
      order.push(`${name} ends`);
    },
  });
  const unclear: UnclearItem = { kind: 'unclear', what: 'a', reason: 'it has no value', location };
  const options = prefetchOptions(1, {
    items: [unclear, { kind: 'other', location }],
    referrers: true,
    dryRun: true,
    concurrency: 2,
    signal: controller.signal,
    stop: stop.signal,
    watch: (progress) => shown.push(progress),
  });
  const parts = { upstreams: [], protocols: [protocol('one'), protocol('two')] };
  const report = await prefetch(parts, options);
  t.deepEqual(order, ['one begins', 'one ends', 'two begins', 'two ends']);
  t.deepEqual(report.missing, [{ what: 'a', reason: 'it has no value', location }]);
  t.deepEqual([report.fetched.blob, report.received, report.interrupted], [{ count: 2, bytes: 14 }, 0, false]);
  t.deepEqual(shown.at(-1), { known: 2, ended: 2, received: 0, waiting: undefined });
  for (const each of given) t.like(each, { accountId: 1, dryRun: true, referrers: true });
  t.false(given[0]!.signal.aborted);
  stop.abort();
  t.true(given[0]!.signal.aborted, 'it begins nothing more after it was stopped');
  const stopped = await prefetch(parts, options);
  t.deepEqual([stopped.interrupted, stopped.fetched.blob], [true, { count: 0, bytes: 0 }]);
  const defect = new TypeError('a defect');
  shown.length = 0;
  const broken = { prefetch: () => Promise.reject(defect) };
  t.is(await t.throwsAsync(prefetch({ upstreams: [], protocols: [broken] }, options)), defect);
  t.is(shown.length, 1);
});
