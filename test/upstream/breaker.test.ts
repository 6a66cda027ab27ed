import test from 'ava';
import { Breaker, type Attempt, type BreakerRequest, type Failure } from '../../src/upstream/breaker.ts';

// The order of requests that overlap, without any request.

/** The subject is the first segment of the path. */
function request(path: string): BreakerRequest {
  return { subject: path.split('/', 2)[1]!, url: new URL(path, 'http://up.test/') };
}

function setUp() {
  const clock = { now: 1_000_000 };
  const changes: string[] = [];
  const breaker = new Breaker(
    () => clock.now,
    (state, reason) => changes.push(`${state}: ${reason}`),
  );
  const begin = (path: string) => breaker.begin(request(path));
  return {
    breaker,
    clock,
    changes,
    begin,
    refusal: (path: string) => breaker.refusal(request(path)),
    fail: (attempt: Attempt | string, kind: Failure, retryAfter?: number) =>
      breaker.failed(typeof attempt === 'string' ? begin(attempt) : attempt, kind, kind, retryAfter),
  };
}

test('a probe that is cancelled after another one failed does not end the new pause', (t) => {
  const { breaker, clock, begin, refusal, fail } = setUp();
  fail('/a/1', 'connection');
  clock.now += 1000;
  const first = begin('/b/1');
  clock.now += 1000;
  t.is(refusal('/c/1'), undefined);
  fail('/c/1', 'connection');
  breaker.abandoned(first);
  t.like(refusal('/d/1'), { wait: 2000 });
});

test('a cancelled request that is not the probe leaves the probe alone', (t) => {
  const { breaker, clock, begin, refusal, fail } = setUp();
  fail('/a/1', 'resource');
  fail('/b/1', 'connection');
  clock.now += 1000;
  const other = begin('/a/1');
  const probe = begin('/c/1');
  t.deepEqual([other.isProbe, probe.isProbe], [false, true]);
  breaker.abandoned(other);
  t.like(refusal('/d/1'), { wait: 1000, own: false });
  breaker.abandoned(probe);
  t.is(refusal('/d/1'), undefined);
});

test('an answer to a request that began before its address failed does not end the pause of the address', (t) => {
  const { breaker, clock, begin, refusal, fail } = setUp();
  const early = begin('/a/1');
  fail('/a/1', 'resource');
  breaker.succeeded(early);
  t.like(refusal('/a/1'), { wait: 1000, own: true });
  fail('/b/1', 'connection');
  clock.now += 1000;
  t.false(begin('/a/2').isProbe, 'the subject still fails');
});

test('the longer one of the pauses of an address and of its upstream counts', (t) => {
  const { clock, refusal, fail } = setUp();
  fail('/a/1', 'resource', 5000);
  fail('/b/1', 'connection');
  t.deepEqual(refusal('/a/1'), { reason: 'resource', wait: 5000, own: true });
  t.deepEqual(refusal('/c/1'), { reason: 'connection', wait: 1000, own: false });
  clock.now += 1000;
  fail('/c/1', 'limit', 60_000);
  t.deepEqual(refusal('/a/1'), { reason: 'limit', wait: 60_000, own: false });
});

test('a probe after a long pause lets the other requests wait for a second, and hangs no longer than the pause', (t) => {
  const { clock, begin, refusal, fail } = setUp();
  fail('/a/1', 'limit', 60_000);
  t.like(refusal('/b/1'), { wait: 60_000 });
  clock.now += 60_000;
  begin('/b/1');
  t.like(refusal('/c/1'), { wait: 1000 });
  clock.now += 59_999;
  t.like(refusal('/c/1'), { wait: 1 });
  clock.now += 1;
  t.is(refusal('/c/1'), undefined);
});

test('a connection that fails after the pause of a 429 begins an ordinary pause', (t) => {
  const { breaker, clock, refusal, fail } = setUp();
  fail('/a/1', 'limit', 60_000);
  t.like(breaker.limit, { reason: 'limit' });
  clock.now += 60_000;
  fail('/b/1', 'connection');
  t.is(breaker.limit, undefined);
  t.like(refusal('/c/1'), { reason: 'connection' });
});

test('an early probe that fails late does not shorten the pause of a later one', (t) => {
  const { breaker, clock, begin, fail } = setUp();
  fail('/a/1', 'connection');
  clock.now += 1000;
  const hanging = begin('/b/1');
  clock.now += 1000;
  fail('/c/1', 'connection');
  fail(hanging, 'resource');
  t.like(breaker.refusal(), { reason: 'connection', wait: 2000 });
});

test('an operator ends the pause of a subject, too', (t) => {
  const { breaker, begin, refusal, fail } = setUp();
  fail('/a/1', 'resource', 200_000);
  fail('/b/1', 'connection');
  breaker.tryNow();
  t.is(refusal('/a/2'), undefined);
  t.true(begin('/a/2').isProbe);
});

test('requests that overlap keep the longest pause that was asked for, unless the clock was set back', (t) => {
  const { clock, begin, fail } = setUp();
  const [second, third] = [begin('/a/1'), begin('/a/1')];
  t.is(fail('/a/1', 'resource', 60_000), 60_000);
  t.is(fail(second, 'resource', 5000), 60_000);
  clock.now -= 500_000;
  t.is(fail(third, 'resource', 5000), 5000);
});

test('a request that fails later than an overlapping one does not extend the pause', (t) => {
  const { clock, begin, fail } = setUp();
  const late = begin('/a/1');
  t.is(fail('/a/1', 'resource'), 1000);
  clock.now += 900;
  t.is(fail(late, 'resource'), 100);
});

test('a breaker that stays open keeps the time of its first failure, and tells each change once', (t) => {
  const { breaker, clock, changes, begin, fail } = setUp();
  fail('/a/1', 'connection');
  clock.now += 1000;
  fail('/b/1', 'limit', 7000);
  t.deepEqual(breaker.pause, { reason: 'limit', since: 1_000_000, until: 1_008_000 });
  clock.now += 7000;
  breaker.succeeded(begin('/c/1'));
  t.is(breaker.pause, undefined);
  t.deepEqual(changes, ['opened: connection', 'closed: limit']);
});

test('the fifth subject that fails without an answer in between pauses the upstream for a second, which is no limit', (t) => {
  const { breaker, clock, changes, begin, refusal, fail } = setUp();
  const early = begin('/early/1');
  for (const each of ['a', 'b', 'c', 'd', 'd']) fail(`/${each}/1`, 'resource', 5000);
  breaker.succeeded(begin('/fine/1'));
  fail(early, 'resource');
  for (const each of ['e', 'f', 'g', 'h']) fail(`/${each}/1`, 'resource', 5000);
  t.deepEqual([breaker.isOpen, refusal('/fine/1')], [false, undefined]);
  fail('/i/1', 'resource', 5000);
  t.deepEqual(refusal('/fine/1'), { reason: 'resource', wait: 1000, own: false });
  t.deepEqual([breaker.isOpen, breaker.limit], [true, undefined]);
  clock.now += 1000;
  t.deepEqual(refusal('/i/2'), { reason: 'resource', wait: 4000, own: false }, 'it is not the probe');
  fail('/i/2', 'resource');
  t.is(refusal('/fine/1'), undefined, 'its failure says nothing of the upstream');
  const probe = begin('/other/1');
  clock.now += 600;
  fail(probe, 'resource');
  t.like(refusal('/fine/1'), { wait: 1000 }, 'that of the probe does');
  clock.now += 1000;
  breaker.succeeded(begin('/fine/1'));
  t.false(breaker.isOpen);
  fail('/j/1', 'resource');
  t.is(refusal('/fine/1'), undefined);
  t.deepEqual(changes, ['opened: resource', 'closed: resource']);
});

test('a connection that fails after other answers stops one address, and a 429 stops all of them', (t) => {
  const { breaker, begin, refusal, fail } = setUp();
  const [one, other] = [begin('/a/1'), begin('/b/1')];
  breaker.succeeded(begin('/c/1'));
  fail(one, 'connection');
  t.like(refusal('/a/1'), { reason: 'connection', own: true });
  t.is(refusal('/c/1'), undefined);
  fail(other, 'limit', 5000);
  t.deepEqual(refusal('/c/1'), { reason: 'limit', wait: 5000, own: false });
});

test('a connection that fails during a pause does not change whether the upstream asked for it', (t) => {
  for (const kind of ['limit', 'connection'] as const) {
    const { breaker, begin, fail } = setUp();
    const during = begin('/a/1');
    fail('/b/1', kind, 60_000);
    fail(during, 'connection');
    t.is(breaker.limit?.wait, kind === 'limit' ? 60_000 : undefined, kind);
  }
});

test('an answer ends the pause of its address, and the next failure is a first one', (t) => {
  const { breaker, clock, begin, refusal, fail } = setUp();
  t.is(fail('/a/1', 'resource'), 1000);
  clock.now += 1000;
  t.is(fail('/a/1', 'resource'), 2000);
  clock.now += 2000;
  breaker.succeeded(begin('/a/1'));
  t.is(fail('/a/1', 'resource'), 1000);
  clock.now += 1000;
  breaker.succeeded(begin('/a/1'));
  fail('/b/1', 'connection');
  clock.now += 1000;
  t.true(begin('/a/2').isProbe);
  fail('/c/1', 'resource', 9000);
  breaker.tryNow();
  t.is(refusal('/c/1'), undefined);
});

test('of two equal pauses the one of the upstream is told', (t) => {
  const { refusal, fail } = setUp();
  fail('/a/1', 'resource');
  fail('/b/1', 'connection');
  t.deepEqual(refusal('/a/1'), { reason: 'connection', wait: 1000, own: false });
});

test('a long pause is tested after five minutes, then after twice the time each, up to 1024 times', (t) => {
  const { clock, fail } = setUp();
  const minutes: number[] = [];
  for (let times = 0; times < 13; times += 1) {
    const wait = fail('/a/1', 'limit', 30 * 86_400_000);
    minutes.push(wait / 60_000);
    clock.now += wait;
  }
  t.deepEqual(minutes, [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 5120, 5120]);
});
