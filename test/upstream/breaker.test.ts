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
