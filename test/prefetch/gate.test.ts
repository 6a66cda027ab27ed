import { setTimeout as sleep } from 'node:timers/promises';
import test from 'ava';
import { Declined, Gate, type GateOptions } from '../../src/prefetch/gate.ts';
import { parseWindow } from '../../src/prefetch/daily-times.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';

/** An upstream that refuses requests with the errors of `refusals`, one each time that it is asked, and then accepts them. */
function upstreamOf({ refusals = [], rate }: { refusals?: UpstreamError[]; rate?: object } = {}) {
  const left = [...refusals];
  const fake = {
    id: 'up',
    name: 'up.test',
    unavailable: () => left.shift(),
    counts: { rateLimit: () => rate },
  };
  return fake as unknown as Upstream;
}

function gateOf(upstream: Upstream, more: Partial<GateOptions> = {}) {
  const said: (string | undefined)[] = [];
  const gate = new Gate({
    upstreams: [upstream],
    signal: new AbortController().signal,
    now: () => new Date(2026, 5, 15, 12).getTime(),
    share: 0.5,
    patience: 60_000,
    waiting: (reason) => said.push(reason),
    ...more,
  });
  return { gate, said };
}

const refusal = (retryAfter: number | undefined, more: object = {}) =>
  new UpstreamError('UpstreamUnavailable', 'up.test does not answer.', { retryAfter, ...more });

test('an upstream that is paused for a short time is waited for, others are given up', async (t) => {
  const upstream = upstreamOf({ refusals: [refusal(0), refusal(0)] });
  const short = gateOf(upstream);
  await short.gate.pass(upstream);
  t.deepEqual(short.said, ['up.test is unavailable', 'up.test is unavailable']);
  for (const [error, patience] of [
    [refusal(121), 60_000],
    [refusal(0, { offline: true }), 60_000],
    [refusal(0), -1],
  ] as const) {
    const upstream = upstreamOf({ refusals: [error] });
    const { gate, said } = gateOf(upstream, { patience });
    await t.throwsAsync(gate.pass(upstream), { instanceOf: Declined, message: 'up.test does not answer.' });
    await t.throwsAsync(gate.pass(upstream), { instanceOf: Declined }, 'it is not asked again');
    t.deepEqual(said, []);
    const offline = upstreamOf({ refusals: [error] });
    await gateOf(offline, { isOffline: true, patience }).gate.pass(offline);
  }
});

test('a paused upstream is not asked before its pause is over', async (t) => {
  const upstream = upstreamOf({ refusals: [refusal(120)] });
  const controller = new AbortController();
  const passing = gateOf(upstream, { signal: controller.signal }).gate.pass(upstream);
  // A timer that ends long before the pause.
  t.is(await Promise.race([passing, sleep(50, 'a timer')]), 'a timer');
  controller.abort();
  await t.throwsAsync(passing, { name: 'Aborted' });
});

test('an upstream that refuses for longer than the patience is given up', async (t) => {
  const upstream = upstreamOf({ refusals: [refusal(0), refusal(0)] });
  const { gate } = gateOf(upstream, { patience: 0.5 });
  await t.throwsAsync(gate.pass(upstream), { instanceOf: Declined });
});

test('a prefetch uses its share of the rate limit of an upstream, apart from blobs', async (t) => {
  for (const [rate, isReached] of [
    [undefined, false],
    [{ limit: 0, remaining: 0 }, false],
    [{ limit: 100, remaining: 51 }, false],
    [{ limit: 100, remaining: 50 }, true],
    [{ limit: 100 }, true],
  ] as const) {
    const upstream = upstreamOf(rate && { rate });
    const { gate } = gateOf(upstream);
    await gate.pass(upstream, false);
    if (!isReached) await gate.pass(upstream);
    else {
      const left = 'remaining' in rate ? rate.remaining : 0;
      await t.throwsAsync(gate.pass(upstream), {
        instanceOf: Declined,
        message: `up.test has ${left} of 100 requests left in its rate limit, of which a prefetch uses at most 50%`,
      });
    }
  }
});

test('outside its window a prefetch waits, until it is cancelled', async (t) => {
  const upstream = upstreamOf();
  const open = gateOf(upstream, { window: parseWindow('11:00-13:00')! });
  await open.gate.pass(upstream);
  t.deepEqual(open.said, []);
  const controller = new AbortController();
  const cancelled = { name: 'Aborted', message: 'The prefetch was cancelled.' };
  const closed = gateOf(upstream, { window: parseWindow('22:00-06:00')!, signal: controller.signal });
  const passing = t.throwsAsync(closed.gate.pass(upstream), cancelled);
  t.deepEqual(closed.said, ['outside the time window']);
  controller.abort();
  await passing;
  await t.throwsAsync(gateOf(upstream, { signal: controller.signal }).gate.open(), cancelled);
});

test('the wait before a failed request is sent again', (t) => {
  const failed = (more: object) => refusal(undefined, { id: 'up', ...more });
  const after = (error: UpstreamError, upstream = upstreamOf()) => gateOf(upstream).gate.pauseAfter(error);
  t.is(after(failed({ retryAfter: 3 })), 3000);
  t.is(after(failed({ retryAfter: 120 })), 120_000);
  t.is(after(failed({ retryAfter: 121 })), undefined);
  t.is(after(failed({})), undefined);
  t.is(after(failed({ cause: new DomainError('Aborted', 'It broke.') })), 1000);
  t.is(after(failed({ cause: new DomainError('NotFound', 'It is gone.') })), undefined);
  t.is(after(failed({}), upstreamOf({ refusals: [refusal(5)] })), 0, 'the whole upstream is paused');
  t.is(after(failed({ id: 'other' }), upstreamOf({ refusals: [refusal(5)] })), undefined);
});
