import test from 'ava';
import { UpstreamCounts } from '../../src/upstream/counts.ts';
import { PrivateHosts } from '../../src/upstream/private-hosts.ts';
import { minSpeed } from '../../src/upstream/slow-body.ts';
import { withoutUser } from '../../src/upstream/url.ts';
import { decode } from '../../src/upstream/body.ts';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';

test('a private host is allowed by its name, its address or its network, and no setting allows metadata services', (t) => {
  const hosts = new PrivateHosts(
    ['Inside.test', '10.1.0.0/16', '10.2.0.7', 'fd12::/16', 'fd34::1', '169.254.0.0/16', '127.0.0.0/8', 'evil.test'],
    'only the operator may allow this',
  );
  const allows = (address: string, host: string) => {
    try {
      hosts.check(address, host);
      return true;
    } catch (error) {
      t.is((error as Error).message, 'only the operator may allow this', 'it does not name the address');
      return false;
    }
  };
  for (const [address, host] of [
    ['93.184.216.34', 'any.test'],
    ['10.9.9.9', 'inside.TEST'],
    ['10.1.255.255', 'any.test'],
    ['::ffff:10.1.2.3', 'any.test'],
    ['10.2.0.7', 'any.test'],
    ['fd12::5', 'any.test'],
    ['fd34::1', 'any.test'],
    ['127.0.0.1', 'any.test'],
  ] as const)
    t.true(allows(address, host), `${address} of ${host}`);
  for (const [address, host] of [
    ['10.9.9.9', 'any.test'],
    ['10.9.9.9', 'sub.inside.test'],
    ['10.2.0.8', 'any.test'],
    ['fd34::2', 'any.test'],
    ['192.168.0.1', 'any.test'],
    ['169.254.169.254', 'any.test'],
    ['169.254.169.254', 'evil.test'],
    ['100.100.100.200', 'evil.test'],
    ['::', 'evil.test'],
    ['no address', 'evil.test'],
  ] as const)
    t.false(allows(address, host), `${address} of ${host}`);
});

test('an announced rate limit counts until the end of its window', (t) => {
  const counts = new UpstreamCounts();
  t.is(counts.rateLimit(0), undefined);
  counts.noteLimit('76;w=21600', '100;w=21600', 1000);
  const limit = { remaining: 76, limit: 100, until: 21_601_000 };
  t.deepEqual(counts.rateLimit(21_600_999), limit);
  t.is(counts.rateLimit(21_601_000), undefined);
  counts.noteLimit('none', '100', 2000);
  t.deepEqual(counts.rateLimit(3000), limit, 'a header that is no number changes nothing');
  counts.noteLimit(' 5', '', 2000);
  t.deepEqual(counts.rateLimit(3000), { remaining: 5, limit: undefined, until: 3_602_000 }, 'an hour by default');
});

test('the figures of an upstream tell its failures since the last success', async (t) => {
  const counts = new UpstreamCounts();
  const failure = { at: 1, subject: 's', reason: 'r', isRefusal: false };
  counts.failed(failure);
  counts.failed({ ...failure, at: 2 });
  t.deepEqual([counts.failures, counts.lastFailure?.at, counts.succeededAt], [2, 2, null]);
  counts.succeeded(3);
  t.deepEqual([counts.failures, counts.lastFailure?.at, counts.succeededAt], [0, 2, 3]);
  for (const status of [200, 599, 600, 199, 999]) await counts.request(undefined, () => Promise.resolve({ status }));
  const requests: [error: object, signal?: AbortSignal][] = [
    [{ code: 'ETIMEDOUT' }],
    [{ code: 'ECONNRESET' }],
    [{ code: 'ETIMEDOUT' }, AbortSignal.abort()],
  ];
  for (const [error, signal] of requests)
    await t.throwsAsync(counts.request(signal, () => Promise.reject(Object.assign(new Error('x'), error))));
  t.deepEqual(Object.fromEntries(counts.statuses), {
    '200': 1,
    '429': 0,
    '500': 0,
    '503': 0,
    '599': 1,
    other: 3,
    timeout: 1,
    error: 1,
    cancelled: 1,
  });
});

test('a document and a small body must come in one time-out, a larger one in pieces of a few', (t) => {
  const whole = { bytes: 65_536, within: 30_000 };
  t.deepEqual(minSpeed(65_536, false, 30_000), whole);
  t.deepEqual(minSpeed(undefined, true, 30_000), whole);
  t.deepEqual(minSpeed(2 ** 30, true, 30_000), whole);
  const slowest = { bytes: 92_160, within: 90_000 };
  t.deepEqual(minSpeed(65_537, false, 30_000), slowest);
  t.deepEqual(minSpeed(undefined, false, 30_000), slowest);
});

test('an address is used without its user and password', (t) => {
  t.is(withoutUser(new URL('https://me:secret@up.test/a?b#c')).href, 'https://up.test/a?b#c');
  t.is(withoutUser(new URL('https://me@up.test/')).href, 'https://up.test/');
  t.is(withoutUser(new URL('https://:secret@up.test/')).href, 'https://up.test/');
});

const body = () => Readable.from([gzipSync('text')]);

test('a body is decoded by its coding, and an unknown coding is refused', async (t) => {
  for (const coding of [undefined, '', ' Identity ']) t.is(decode(body(), coding), undefined);
  for (const coding of ['gzip', ' X-GZip']) t.is(await text(decode(body(), coding)!), 'text');
  const refused = body();
  t.throws(() => decode(refused, 'zstd'), { message: /^uses the content coding zstd, which was not requested$/ });
  t.true(refused.destroyed);
});
