import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { AddressRefused, type Resolve } from '../../src/upstream/addresses.ts';
import { isAnswer, isChange, type UpstreamAnswer, type UpstreamRequest } from '../../src/upstream/answer.ts';
import { decode, discard, readUpstreamBody } from '../../src/upstream/body.ts';
import { UpstreamClient } from '../../src/upstream/client.ts';
import { FailureLog } from '../../src/upstream/failure-log.ts';
import {
  AccessRefused,
  addressRefusal,
  Busy,
  busyRefusal,
  Closed,
  isTransient,
  isUnsent,
  messageOf,
  NotConnected,
  orAbort,
  Refused,
  timedOut,
  verdictOf,
  withRetries,
} from '../../src/upstream/failures.ts';
import { othersInTurn, userNameLookup } from '../../src/upstream/name-lookup.ts';
import { pauseAfter, remaining } from '../../src/upstream/pause.ts';
import { redirectOf, tooManyRedirects } from '../../src/upstream/redirect.ts';
import { cutSlowBody, slownessIn } from '../../src/upstream/slow-body.ts';
import { UpstreamError, unlessUpstreamFails } from '../../src/upstream/upstream-error.ts';
import { testLog } from '../support/mirror.ts';
import { until, within } from '../support/until.ts';
import { answer, held, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';

// Parts of requests to upstreams, each by itself.

const url = new URL('https://up.test/a/b?c');

const answersOf = (more: Partial<UpstreamRequest>) =>
  [99, 101, 199, 200, 299, 300, 302, 304, 400, 401, 403, 404, 409, 410, 422, 429, 499, 500, 503]
    .filter((status) => isAnswer(status, { url, subject: 's', ...more }))
    .join(' ');

test('which statuses are answers for the caller, of a read and of a change', (t) => {
  const read = '200 299 304 404 410';
  const change = '200 299 304 400 404 409 410 422 499';
  t.is(answersOf({}), read);
  t.is(answersOf({ method: 'GET' }), read);
  t.is(answersOf({ method: 'HEAD' }), read);
  for (const method of ['POST', 'PUT', 'DELETE'] as const) t.is(answersOf({ method }), change, method);
  t.is(answersOf({ answers: [403, 500] }), '200 299 304 403 404 410 500');
  t.deepEqual(
    (['GET', 'HEAD', 'POST', 'PUT', 'DELETE', undefined] as const).map((method) =>
      isChange({ url, subject: 's', method: method! }),
    ),
    [false, false, true, true, true, false],
  );
});

const code = (name: string) => Object.assign(new Error('text'), { code: name });

test('each failure says what it means for the upstream, and what the operator reads', (t) => {
  const origin = 'https://up.test';
  const cases: [error: unknown, verdict: string, unsent: boolean, transient: boolean, message: string][] = [
    [new Refused('said no'), 'answered', false, false, 'said no'],
    [new Refused('answered 500', { verdict: 'resource' }), 'resource', false, true, 'answered 500'],
    [new Refused('busy', { verdict: 'resource', retryAfter: 1 }), 'resource', false, false, 'busy'],
    [new Refused('busy', { verdict: 'limit' }), 'limit', false, false, 'busy'],
    [new AccessRefused(), 'answered', false, false, 'refused access; check its credentials'],
    [new AccessRefused('other'), 'answered', false, false, 'other'],
    [new Busy(), 'unsent', true, false, 'got no request: all connections to it are in use'],
    [new Closed(), 'unsent', true, false, 'got no request: this server is stopping'],
    [new NotConnected(origin, code('ECONNREFUSED')), 'connection', false, false, 'cannot be reached (ECONNREFUSED)'],
    [new NotConnected('https://cdn.test', code('ETIMEDOUT')), 'resource', false, false, 'did not answer in time'],
    [new NotConnected(origin, code('ECONNRESET')), 'connection', false, true, 'cannot be reached (ECONNRESET)'],
    [code('EPIPE'), 'resource', false, true, 'cannot be reached (EPIPE)'],
    [timedOut('the body'), 'resource', false, false, 'did not answer in time'],
    [new Error('odd'), 'resource', false, false, 'failed: odd'],
  ];
  for (const [error, ...expected] of cases)
    t.deepEqual(
      [verdictOf(error, origin), isUnsent(error), isTransient(error), messageOf(error)],
      expected,
      String(error),
    );
  t.like(new Busy(), { code: 'ETIMEDOUT', retryAfter: 1000, denied: false });
  t.like(new Closed(), { retryAfter: 0, denied: false });
  t.like(new Refused('x', { denied: true }), { message: 'x', verdict: 'answered', retryAfter: 0, denied: true });
  const cause = code('ENOTFOUND');
  t.like(new NotConnected(origin, cause), { origin, code: 'ENOTFOUND', message: 'text', cause });
  t.like(timedOut('late'), { message: 'late', code: 'ETIMEDOUT' });
  const refused = new AddressRefused('10.0.0.1 is private');
  t.is(refused.code, 'ADDRESS_REFUSED');
  for (const error of [refused, new Error('of got', { cause: refused })])
    t.like(addressRefusal(error), {
      message: 'has, or redirects to, an address that is refused: 10.0.0.1 is private',
      verdict: 'unsent',
    });
  t.is(addressRefusal(new Error('other', { cause: new Error('x') })), undefined);
});

test('how long an upstream asks to be left alone is read from its answer, within bounds', (t) => {
  const date = 'Wed, 25 Nov 2026 12:00:00 GMT';
  const day = 86_400_000;
  const cases: [
    status: number,
    isOwn: boolean,
    after: string | undefined,
    date: string | undefined,
    verdict: string,
    milliseconds: number,
  ][] = [
    [429, true, undefined, undefined, 'limit', 1000],
    [429, true, '0', undefined, 'limit', 1000],
    [429, true, '7', undefined, 'limit', 7000],
    [429, true, '86400', undefined, 'limit', day],
    [429, true, '86401', undefined, 'limit', day],
    [429, true, '9'.repeat(400), undefined, 'limit', 1000],
    [429, true, 'soon', undefined, 'limit', 1000],
    [429, true, '-7', date, 'limit', 1000],
    [429, true, 'Wed, 25 Nov 2026 12:00:09 GMT', date, 'limit', 9000],
    [429, true, 'Wed, 25 Nov 2026 11:00:09 GMT', date, 'limit', 1000],
    [429, true, 'Fri, 27 Nov 2026 12:00:00 GMT', date, 'limit', day],
    [429, true, 'Thu, 01 Jan 1970 00:00:09 GMT', undefined, 'limit', 1000],
    [429, true, 'Thu, 01 Jan 1970 00:00:09 GMT', 'no date', 'limit', 1000],
    [429, false, undefined, undefined, 'resource', 1000],
    [429, false, '300', undefined, 'resource', 300_000],
    [429, false, '301', undefined, 'resource', 300_000],
    [503, true, undefined, undefined, 'resource', 0],
    [503, true, '2', undefined, 'resource', 2000],
    [503, true, '86400', undefined, 'resource', 300_000],
    [503, false, '1.5', undefined, 'resource', 0],
  ];
  for (const [status, isOwn, after, theirs, verdict, retryAfter] of cases) {
    const refusal = busyRefusal('why', status, { 'retry-after': after, date: theirs }, isOwn);
    t.deepEqual(
      [refusal.message, refusal.verdict, refusal.retryAfter],
      ['why', verdict, retryAfter],
      `${status} ${isOwn} ${after} ${theirs}`,
    );
  }
});

const attempts = async (errors: (Error | undefined)[], signal?: AbortSignal) => {
  let count = 0;
  const work = () => {
    const error = errors[count];
    count += 1;
    return error ? Promise.reject(error) : Promise.resolve('done');
  };
  const result = await withRetries(work, signal).catch((error: unknown) => (error as Error).message);
  return [count, result];
};

test('a transient failure is tried again twice, and any other not at all', async (t) => {
  const reset = Object.assign(new Error('reset'), { code: 'ECONNRESET' });
  t.deepEqual(await attempts([]), [1, 'done']);
  t.deepEqual(await attempts([reset]), [2, 'done']);
  t.deepEqual(await attempts([reset, reset]), [3, 'done']);
  t.deepEqual(await attempts([reset, reset, reset]), [3, 'reset']);
  t.deepEqual(await attempts([new Error('other')]), [1, 'other']);
  t.deepEqual(await attempts([reset, new Error('other')]), [2, 'other']);
  t.deepEqual(await attempts([reset], AbortSignal.abort()), [1, 'reset']);
  const cancel = new AbortController();
  let count = 0;
  const failing = withRetries(() => {
    count += 1;
    setImmediate(() => cancel.abort());
    return Promise.reject(reset);
  }, cancel.signal);
  await t.throwsAsync(failing, { name: 'AbortError' });
  t.is(count, 1, 'the wait ends, and nothing is tried any more');
});

test('who waits for shared work can leave it', async (t) => {
  t.is(await orAbort(Promise.resolve(1)), 1);
  const cancel = new AbortController();
  const { promise, resolve } = Promise.withResolvers<number>();
  const left = orAbort(promise, cancel.signal);
  const stayed = orAbort(promise, new AbortController().signal);
  cancel.abort(new Error('left'));
  await t.throwsAsync(within(left), { message: 'left' });
  await t.throwsAsync(within(orAbort(promise, cancel.signal)), { message: 'left' });
  resolve(2);
  t.is(await stayed, 2);
  await t.throwsAsync(orAbort(Promise.reject(new Error('failed')), new AbortController().signal), {
    message: 'failed',
  });
});

test('a pause grows with each failure that follows another, up to a minute', (t) => {
  const now = 1_000_000;
  let pause = pauseAfter(undefined, { reason: 'one', now });
  t.deepEqual(pause, { reason: 'one', failures: 1, from: now, until: now + 1000, sequence: 0 });
  const lengths: number[] = [];
  for (let failure = 2; failure <= 9; failure += 1) {
    pause = pauseAfter(pause, { reason: 'more', now });
    lengths.push((pause.until - now) / 1000);
  }
  t.deepEqual(lengths, [2, 4, 8, 16, 32, 60, 60, 60]);
  t.is(pause.failures, 9);
  t.is(pauseAfter(undefined, { reason: '', now, retryAfter: 999 }).until, now + 1000);
  t.is(pauseAfter(undefined, { reason: '', now, retryAfter: 1001 }).until, now + 1001);
  const before = { reason: 'first', failures: 3, from: now, until: now + 9000, sequence: 5 };
  t.deepEqual(pauseAfter(before, { reason: 'late', now: now + 1, began: 4, sequence: 6 }), {
    reason: 'late',
    failures: 3,
    from: now + 1,
    until: now + 9000,
    sequence: 6,
  });
  t.is(pauseAfter(before, { reason: '', now: now + 1, began: 4, retryAfter: 10_000 }).until, now + 10_001);
  t.is(pauseAfter(before, { reason: '', now: now - 1, began: 4 }).until, now - 1, 'the clock was set back');
  t.like(pauseAfter(before, { reason: '', now, began: 5, sequence: 7 }), { failures: 4, until: now + 8000 });
  t.deepEqual(
    [now - 1, now, now + 8999, now + 9000, now + 9001].map((at) => remaining(before, at)),
    [0, 9000, 1, 0, 0],
  );
  t.is(remaining(undefined, now), 0);
});

function answerOf(status: number, location?: string): UpstreamAnswer {
  return { status, headers: { location }, body: Readable.from(['rest']), decoded: false };
}

test('a redirect is followed only to http and https, and never from https to http', async (t) => {
  for (const status of [301, 302, 303, 307, 308]) {
    const moved = answerOf(status, '../x?y');
    t.is(redirectOf(moved, url)!.href, 'https://up.test/x?y');
    await once(moved.body, 'close');
  }
  for (const status of [200, 300, 304, 305, 306, 404])
    t.is(redirectOf(answerOf(status, '/x'), url), undefined, String(status));
  t.is(redirectOf(answerOf(302), url), undefined);
  t.is(redirectOf(answerOf(302, 'https://other.test/'), url)!.href, 'https://other.test/');
  t.is(redirectOf(answerOf(302, 'https://up.test/'), new URL('http://up.test/'))!.href, 'https://up.test/');
  t.is(redirectOf(answerOf(302, 'http://up.test/'), new URL('http://up.test/'))!.href, 'http://up.test/');
  const scheme = { instanceOf: Refused, message: 'redirects to an address that is neither http nor https' };
  for (const wrong of ['ftp://up.test/', 'httpx://up.test/', 'xhttp://up.test/', 'http://[', 'data:x'])
    t.throws(() => redirectOf(answerOf(302, wrong), url), scheme, wrong);
  t.throws(() => redirectOf(answerOf(302, 'http://up.test/'), url), {
    instanceOf: Refused,
    message: 'redirects from https to http',
  });
  t.is(tooManyRedirects().message, 'redirects more than 5 times');
});

const line = (subject: string, reason: string, msg = 'failed', untold?: number) => ({
  level: 40,
  upstream: 'up',
  subject,
  reason,
  ...(untold !== undefined && { untold }),
  msg,
});

test('a failure is logged once in ten seconds for its reason, and what was left out is counted', (t) => {
  const { log, lines } = testLog();
  let now = 1000;
  const failures = new FailureLog(log, 'up', () => now);
  const told = () =>
    lines.splice(0).map((line) => {
      const { level, upstream, subject, reason, untold, msg } = JSON.parse(line) as Record<string, unknown>;
      return { level, upstream, subject, reason, ...(untold !== undefined && { untold }), msg };
    });
  failures.warn('failed', 's'.repeat(201), 'one');
  failures.warn('failed', 'b', 'one');
  failures.warn('refused', 'b', 'one');
  failures.warn('failed', 'b', 'two');
  t.deepEqual(told(), [line('s'.repeat(200), 'one'), line('b', 'one', 'refused', 1), line('b', 'two')]);
  for (let reason = 0; reason < 20; reason += 1) failures.warn('failed', 'c', `more ${reason}`);
  t.deepEqual(
    told().map(({ reason }) => reason),
    Array.from({ length: 17 }, (_, at) => `more ${at}`),
    '20 reasons in all',
  );
  now += 9999;
  failures.warn('failed', 'd', 'two');
  t.deepEqual(told(), []);
  now += 1;
  failures.warn('failed', 'd', 'two');
  failures.warn('failed', 'd', 'three');
  t.deepEqual(told(), [line('d', 'two', 'failed', 4), line('d', 'three')]);
  now -= 1;
  failures.warn('failed', 'd', 'two');
  t.deepEqual(told(), [line('d', 'two')], 'the clock was set back');
});

const found = (address: string) => [{ address, family: 4 }];

test('names that an upstream leads to are looked up one after the other, each once at a time', async (t) => {
  const asked: string[] = [];
  const answers: (() => void)[] = [];
  const results: string[] = [];
  const resolve: Resolve = (hostname, options, done) => {
    asked.push(`${hostname} ${options.family ?? 'any'}`);
    answers.push(() => done(null, found(`address of ${hostname}`)));
  };
  const lookup = othersInTurn('own.test', resolve);
  const ask = (hostname: string, label: string, family?: number) =>
    lookup(
      hostname,
      { all: true, ...(family && { family }) },
      (error, addresses) => void results.push(`${label} ${error?.message ?? addresses[0]!.address}`),
    );
  ask('a.test', '1');
  ask('a.test', '2');
  ask('a.test', '3', 6);
  ask('b.test', '4');
  ask('own.test', '5');
  ask('own.test', '6');
  await until(() => asked.length === 3);
  t.deepEqual(
    asked.toSorted((one, other) => (one < other ? -1 : 1)),
    ['a.test any', 'own.test any', 'own.test any'],
  );
  for (const each of answers.splice(0)) each();
  await until(() => asked.length === 4);
  t.deepEqual(
    results.toSorted((one, other) => (one < other ? -1 : 1)),
    ['1 address of a.test', '2 address of a.test', '5 address of own.test', '6 address of own.test'],
  );
  t.is(asked[3], 'a.test 6');
  answers.pop()!();
  await until(() => asked.length === 5);
  ask('a.test', '7');
  answers.pop()!();
  await until(() => asked.length === 6);
  t.deepEqual(asked.slice(4), ['b.test any', 'a.test any'], 'it is looked up again');
  answers.pop()!();
  t.deepEqual(results.slice(4), ['3 address of a.test', '4 address of b.test', '7 address of a.test']);
});

test('names of the machine itself are looked up as the operating system does', async (t) => {
  const { promise, resolve } = Promise.withResolvers<string[]>();
  userNameLookup((hostname) => hostname === 'localhost')('localhost', { all: true }, (error, addresses) =>
    resolve(error ? [error.message] : addresses.map(({ address }) => address)),
  );
  const addresses = await promise;
  t.true(addresses.length > 0 && addresses.every((each) => each === '127.0.0.1' || each === '::1'), addresses.join());
});

test('an error of an upstream tells clients what they can use, and code the rest', async (t) => {
  const cause = new Error('inner');
  const all = new UpstreamError('UpstreamTimeout', 'text', {
    upstream: 'up',
    id: 'u1',
    retryAfter: 3,
    offline: true,
    denied: true,
    cause,
  });
  t.like(all, {
    name: 'UpstreamTimeout',
    message: 'text',
    upstream: 'up',
    id: 'u1',
    offline: true,
    denied: true,
    retryAfter: 3,
    cause,
  });
  t.deepEqual(all.detail as object, { upstream: 'up', offline: true, retryAfter: 3, denied: true });
  const plain = new UpstreamError('UpstreamUnavailable', 'text');
  t.like(plain, { upstream: undefined, id: undefined, offline: false, denied: false, retryAfter: undefined });
  t.is(plain.detail, undefined);
  t.is(await unlessUpstreamFails(() => Promise.resolve(1)), 1);
  t.is(await unlessUpstreamFails(() => Promise.reject(plain)), undefined);
  t.is(await t.throwsAsync(unlessUpstreamFails(() => Promise.reject(cause))), cause);
});

const pieces = (...texts: string[]) => Readable.from(texts.map((each) => Buffer.from(each)));

test('a body is read whole, up to its limit, while it comes in time', async (t) => {
  t.is((await readUpstreamBody(pieces('ab', 'cd'), 4, 60_000)).toString(), 'abcd');
  await t.throwsAsync(readUpstreamBody(pieces('ab', 'cde'), 4, 60_000), {
    instanceOf: Refused,
    message: 'sends more than the limit of 4 bytes',
  });
  const silent = new PassThrough();
  silent.write('a');
  await t.throwsAsync(within(readUpstreamBody(silent, 9, 10)), {
    code: 'ETIMEDOUT',
    message: 'the body did not come in time',
  });
  t.true(silent.destroyed);
  const cut = new PassThrough();
  cut.write('a');
  const reading = readUpstreamBody(cut, 9, 60_000);
  cut.destroy(new Error('cut'));
  await t.throwsAsync(within(reading), { message: 'cut' });

  const sizes: number[] = [];
  const grown = (bytes: number) => {
    sizes.push(bytes);
    return bytes > 2 ? new Promise<void>((resolve) => setTimeout(resolve, 50)) : undefined;
  };
  t.is((await readUpstreamBody(pieces('ab', 'cd', 'e'), 9, 30_000, grown)).toString(), 'abcde');
  t.deepEqual(sizes, [2, 4, 5]);
  await t.throwsAsync(
    readUpstreamBody(pieces('ab'), 9, 30_000, () => Promise.reject(new Error('no room'))),
    { message: 'no room' },
  );
});

test('the rest of a body that nobody reads is read to its end if it is short, and else cut', async (t) => {
  const short = Readable.from([Buffer.alloc(64 * 1024)]);
  let ended = false;
  short.on('end', () => (ended = true));
  discard(short);
  await within(once(short, 'close'));
  t.true(ended);
  const long = Readable.from([Buffer.alloc(64 * 1024), Buffer.alloc(1), Buffer.alloc(1)]);
  long.on('end', () => t.fail());
  discard(long);
  await within(once(long, 'close'));
  const failing = new PassThrough();
  discard(failing);
  failing.destroy(new Error('cut'));
  await within(once(failing, 'close').catch(() => undefined));
  const silent = new PassThrough();
  discard(silent);
  await within(once(silent, 'close'));
  t.true(silent.destroyed);
});

test('what is told of a coding that is not known is short', (t) => {
  const body = Readable.from(['x']);
  t.throws(() => decode(body, `${'Z'.repeat(41)} `), {
    message: `uses the content coding ${'z'.repeat(40)}, which was not requested`,
  });
});

test('a body that comes too slowly is cut, unless its reader is the slow one', async (t) => {
  const least = { bytes: 10, within: 200 };
  let cuts = 0;
  const slow = new PassThrough();
  slow.resume();
  cutSlowBody(
    slow,
    least,
    () => 9,
    () => (cuts += 1),
  );
  const [error] = (await within(once(slow, 'error'))) as [Error & { verdict: string }];
  t.deepEqual([error.message, error.verdict, cuts], ['sent fewer than 10 bytes of a body in 0.2 s', 'resource', 1]);
  t.is(slownessIn(new Error('outer', { cause: new Error('inner', { cause: error }) })), error as never);
  t.is(slownessIn(new Error('outer', { cause: 'text' })), undefined);
  t.is(slownessIn(undefined), undefined);

  let bytes = 0;
  const [fast, unread, paused] = [new PassThrough(), new PassThrough(), new PassThrough()];
  fast.resume();
  unread.write('waits for its reader');
  paused.pause();
  cutSlowBody(
    fast,
    least,
    () => (bytes += 10),
    () => t.fail(),
  );
  cutSlowBody(
    unread,
    least,
    () => 0,
    () => t.fail(),
  );
  cutSlowBody(
    paused,
    least,
    () => 0,
    () => t.fail(),
  );
  const other = new PassThrough();
  other.resume();
  cutSlowBody(
    other,
    least,
    () => 0,
    () => (cuts += 1),
  );
  await within(once(other, 'error'));
  t.deepEqual([cuts, fast.destroyed, unread.destroyed, paused.destroyed], [2, false, false, false]);
  for (const each of [fast, unread, paused]) each.destroy();
});

async function openClient(t: ExecutionContext, more: Partial<ConstructorParameters<typeof UpstreamClient>[0]> = {}) {
  const server = await startFaultyUpstream(t);
  const client = new UpstreamClient({ allowPrivate: true, proxy: {}, timeout: 60_000, connections: 1, ...more });
  t.teardown(() => client.close());
  const send = (path: string, options: Partial<Parameters<UpstreamClient['send']>[0]> = {}) =>
    client.send({ url: new URL(path, server.url), headers: {}, group: path, ...options });
  return { server, client, send };
}

test('connections are counted by host, whatever the requests are for', async (t) => {
  const { server, send } = await openClient(t);
  const other = await startFaultyUpstream(t);
  const { behaviour, release } = held(answer(200, {}, 'first'));
  server.on('/first', behaviour);
  server.on('/second', answer(200, {}, 'second'));
  other.on('/first', answer(200, {}, 'other'));
  const first = send('/first');
  await until(() => server.asked.length === 1);
  const second = send('/second');
  t.is((await send('/first', { url: new URL('/first', other.url) })).status, 200, 'another host');
  t.is(server.asked.length, 1, 'it waits');
  release();
  (await first).body.resume();
  const { body } = await within(second);
  t.is((await body.toArray()).join(''), 'second');
  t.deepEqual(
    server.asked.map(({ path }) => path),
    ['/first', '/second'],
  );
});

test('a request is sent as it is asked for, and its answer and its bytes are told', async (t) => {
  const measured: number[] = [];
  const { server, send } = await openClient(t, { meter: () => (bytes) => void measured.push(bytes) });
  const digest = `sha256:${'a'.repeat(64)}`;
  server.on('/doc', answer(299, { 'docker-content-digest': digest, 'x-a': 'b' }, 'the text'));
  const got = await send('/doc', { headers: { accept: 'text/plain' } });
  t.is((await got.body.toArray()).join(''), 'the text');
  t.like(got, { status: 299, decoded: false, digest });
  t.is(got.headers['x-a'], 'b');
  const { headers, method } = server.asked[0]!;
  t.is(method, 'GET');
  t.like(headers, {
    accept: 'text/plain',
    'user-agent': 'entrepot',
    'accept-encoding': 'identity',
    'content-length': undefined,
  });
  await until(() => measured.length === 1);
  t.deepEqual(measured, [8]);

  server.on('/none', answer(404, { 'docker-content-digest': 'sha256:short' }, 'no'));
  const none = await send('/none', { method: 'HEAD' });
  t.deepEqual([none.status, 'digest' in none, none.decoded, none.headers['content-length']], [404, false, false, '2']);
  none.body.resume();

  let received = '';
  server.on('/change', async (request, response) => {
    for await (const piece of request) received += String(piece);
    answer(201)(request, response);
  });
  const opened = Readable.from([Buffer.from('some '), Buffer.from('bytes')]);
  const changed = await send('/change', { method: 'PUT', body: { size: 10, open: () => Promise.resolve(opened) } });
  changed.body.resume();
  t.deepEqual([changed.status, received, server.asked.at(-1)!.headers['content-length']], [201, 'some bytes', '10']);
  await until(() => opened.destroyed);
  received = '';
  (await send('/change', { method: 'POST', body: 'form' })).body.resume();
  t.is(received, 'form');
  // The only connection is free again after a body that cannot be opened.
  await t.throwsAsync(
    send('/change', { method: 'PUT', body: { size: 1, open: () => Promise.reject(new Error('gone')) } }),
    { message: 'gone' },
  );
  (await within(send('/doc'))).body.resume();
});
