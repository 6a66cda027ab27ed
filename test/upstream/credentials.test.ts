import test from 'ava';
import { assert, property, string } from 'fast-check';
import type { DomainError } from '../../src/runtime/errors.ts';
import type { Resolve } from '../../src/upstream/addresses.ts';
import { belongsTo, Credentials, parseChallenges, type UpstreamAuth } from '../../src/upstream/credentials.ts';
import { Cache } from '../../src/cache/cache.ts';
import {
  answer,
  startFaultyUpstream,
  type Behaviour,
  type FaultyUpstream,
  held,
} from '../support/upstreams/faulty-upstream.ts';
import { testClock } from '../support/clock.ts';
import { openUpstream } from '../support/mirror.ts';
import { until } from '../support/until.ts';

const me = { username: 'me', password: 'secret' };
const basic = `Basic ${Buffer.from('me:secret').toString('base64')}`;
const scope = 'repository:library/alpine:pull';

const belongs: [realm: string, base: string, name: string, belongs: boolean][] = [
  ['https://auth.docker.io/token', 'https://registry-1.docker.io', 'docker.io', true],
  ['https://ghcr.io/token', 'https://ghcr.io', 'ghcr.io', true],
  ['https://quay.io/v2/auth', 'https://quay.io', 'quay.io', true],
  ['https://gitlab.com/jwt/auth', 'https://registry.gitlab.com', 'registry.gitlab.com', true],
  ['https://auth.corp.example/t', 'https://registry.corp.example', 'corp.example', true],
  ['https://corp.example/t', 'https://registry.elsewhere.example', 'corp.example', true],
  ['https://auth.corp.example/t', 'https://registry.elsewhere.example', 'corp.example:5000', true],
  ['http://127.0.0.1:5000/token', 'http://127.0.0.1:5000', 'up.test', true],
  ['http://[fd00::1]:5001/token', 'http://[fd00::1]:5000', '[fd00::1]:5000', true],
  ['https://auth.corp.example/t', 'http://registry.corp.example', 'corp.example', true],
  ['https://evil.example/token', 'https://registry-1.docker.io', 'docker.io', false],
  ['https://docker.io.evil.example/token', 'https://registry-1.docker.io', 'docker.io', false],
  ['https://notdocker.io/token', 'https://registry-1.docker.io', 'docker.io', false],
  ['http://auth.docker.io/token', 'https://registry-1.docker.io', 'docker.io', false],
  ['http://127.0.0.1:5001/token', 'http://127.0.0.1:5000', 'up.test', false],
  ['https://other.azurecr.io/token', 'https://mine.azurecr.io', 'mine.azurecr.io', false],
  ['https://io/token', 'https://ghcr.io', 'ghcr.io', false],
];
for (const [realm, base, name, expected] of belongs) {
  test(`credentials of ${name} at ${base} ${expected ? 'go' : 'do not go'} to ${realm}`, (t) => {
    t.is(belongsTo(new URL(realm), new URL(base), name), expected);
  });
}

test('credentialHosts are compared with host and port, and never allow http for https', (t) => {
  const base = new URL('https://registry.corp:5000');
  const goesTo = (realm: string, ...hosts: string[]) => belongsTo(new URL(realm), base, 'registry.corp', hosts);
  t.true(goesTo('https://gitlab.corp/jwt/auth', 'gitlab.corp'));
  t.true(goesTo('https://gitlab.corp/jwt/auth', 'gitlab.corp:443'));
  t.true(goesTo('https://gitlab.corp/jwt/auth', 'no host', 'gitlab.corp'));
  t.true(goesTo('https://gitlab.corp:8443/jwt/auth', 'other.corp', 'gitlab.corp:8443'));
  t.false(goesTo('https://gitlab.corp:8443/jwt/auth', 'gitlab.corp'));
  t.false(goesTo('http://gitlab.corp/jwt/auth', 'gitlab.corp'));
  t.false(goesTo('https://evil.gitlab.corp/jwt/auth', 'gitlab.corp'));
  t.false(goesTo('https://gitlab.corp.evil.test/jwt/auth', 'gitlab.corp'));
});

test('the challenges of known registries are parsed', (t) => {
  t.deepEqual(
    parseChallenges('Bearer realm="https://a.test/token",service="reg \\"x\\"",scope="repository:a/b:pull,push"'),
    [
      {
        scheme: 'bearer',
        parameters: { realm: 'https://a.test/token', service: 'reg "x"', scope: 'repository:a/b:pull,push' },
      },
    ],
  );
  t.deepEqual(parseChallenges('Basic realm=x, BEARER Realm = "y" , Negotiate'), [
    { scheme: 'basic', parameters: { realm: 'x' } },
    { scheme: 'bearer', parameters: { realm: 'y' } },
    { scheme: 'negotiate', parameters: {} },
  ]);
  t.deepEqual(parseChallenges(undefined), []);
});

test('credentials say where they go, are renewed once after a refusal, and are closed', async (t) => {
  const withheld: string[] = [];
  let [renewals, closed] = [0, 0];
  const renewed: UpstreamAuth = { bearer: 'two' };
  let current: UpstreamAuth = { bearer: 'one' };
  const source = {
    isBearer: true,
    get: () => current,
    renew: () => {
      renewals += 1;
      return (current = renewed);
    },
    close: () => {
      closed += 1;
    },
  };
  const parts = {
    base: new URL('https://registry.corp'),
    name: 'registry.corp',
    hosts: ['gitlab.corp'],
    onWithheld: (host: string) => withheld.push(host),
  };
  const none = new Credentials({ ...parts, source: undefined });
  t.deepEqual([none.isConfigured, none.isBearer, none.sent, await none.send()], [false, false, false, undefined]);
  t.is(await none.renew('Bearer one'), undefined);
  t.is(await none.sendTo(new URL('https://evil.corp')), undefined);
  t.deepEqual([withheld, none.withheldFrom], [[], []], 'there is nothing to withhold');
  none.close();
  const some = new Credentials({ ...parts, source });
  t.deepEqual([some.isConfigured, some.isBearer, some.sent], [true, true, false]);
  for (const [address, isListed] of [
    ['https://gitlab.corp/x', true],
    ['http://gitlab.corp/x', false],
    ['https://registry.corp/x', false],
  ] as const)
    t.is(some.isListed(new URL(address)), isListed, address);
  t.is(await some.sendTo(new URL('https://evil.corp')), undefined);
  t.deepEqual([withheld, some.withheldFrom, some.sent], [['evil.corp'], ['evil.corp'], false]);
  t.is(await some.sendTo(new URL('https://gitlab.corp')), 'Bearer one');
  t.true(some.sent);
  t.is(await some.renew('Bearer zero'), 'Bearer one', 'another one was refused');
  t.is(renewals, 0);
  t.is(await some.renew('Bearer one'), 'Bearer two');
  t.is(await some.renew('Bearer two'), undefined, 'there is no newer one');
  t.is(renewals, 2);
  t.is(closed, 0);
  some.close();
  t.is(closed, 1);
});

test('any challenge is parsed quickly and without an error', (t) => {
  const started = process.threadCpuUsage();
  for (const header of [
    'a'.repeat(16_000),
    `${'a'.repeat(4000)}!`,
    '"'.repeat(4000),
    'a='.repeat(2000),
    `Bearer ${' '.repeat(4000)}!`,
  ]) {
    t.notThrows(() => parseChallenges(header));
  }
  assert(property(string(), (header) => Array.isArray(parseChallenges(header))));
  const { user, system } = process.threadCpuUsage(started);
  t.true(user + system < 1_500_000, `${user + system} µs`);
});

/** A registry that requires a token from `realm`. */
function registry(server: FaultyUpstream, realm: URL, accepts: () => string): void {
  const challenge = `Bearer realm="${realm.href}",service="registry.test",scope="${scope}"`;
  server.on('/v2/thing', (request, response) => {
    const granted = request.headers.authorization === `Bearer ${accepts()}`;
    const behaviour = granted ? answer(200, {}, 'content') : answer(401, { 'www-authenticate': challenge }, 'no');
    behaviour(request, response);
  });
}

const grant = (token: string, more: object = {}): Behaviour => answer(200, {}, JSON.stringify({ token, ...more }));
const tokenPath = `/token?service=registry.test&scope=${encodeURIComponent(scope)}`;

async function setUp(t: Parameters<typeof startFaultyUpstream>[0], setup: Parameters<typeof openUpstream>[2] = {}) {
  const server = await startFaultyUpstream(t);
  const clock = testClock();
  const made = await openUpstream(t, server.url, { now: clock.time, ...setup });
  const url = new URL('/v2/thing', server.url);
  const read = async () => (await (await made.upstream.send({ subject: 'thing', url, scope })).body.toArray()).join('');
  return { server, ...made, clock, read, realm: new URL('/token', server.url) };
}

test('after a 401 the registry gets the token that its realm gives for the credentials', async (t) => {
  const { server, read, realm } = await setUp(t, { auth: me });
  registry(server, realm, () => 'one');
  server.on('/token', grant('one', { expires_in: 300 }));
  t.is(await read(), 'content');
  t.deepEqual(
    server.asked.map(({ path, headers }) => [path, headers.authorization]),
    [
      ['/v2/thing', undefined],
      [tokenPath, basic],
      ['/v2/thing', 'Bearer one'],
    ],
  );
});

test('a token is cached by realm, service and scope, and sent with the first request', async (t) => {
  const { server, read, realm, upstream } = await setUp(t);
  registry(server, realm, () => 'one');
  server.on('/token', grant('one'));
  await read();
  await read();
  t.is(server.count(tokenPath), 1);
  t.is(server.count('/v2/thing'), 3);
  await upstream.send({ subject: 'thing', url: new URL('/v2/thing', server.url), scope: 'repository:other:pull' });
  t.is(server.count('/token?service=registry.test&scope=repository%3Aother%3Apull'), 1, 'another scope, another token');
});

test('many requests that need the same token fetch it once', async (t) => {
  const { server, read, realm } = await setUp(t);
  registry(server, realm, () => 'one');
  const { behaviour, release } = held(grant('one'));
  server.on('/token', behaviour);
  const reads = Array.from({ length: 20 }, read);
  await until(() => server.count('/v2/thing') === 20);
  release();
  t.deepEqual(new Set(await Promise.all(reads)), new Set(['content']));
  t.is(server.count(tokenPath), 1);
});

test('a refused token is renewed; an expired one is not sent', async (t) => {
  const { server, read, realm, clock } = await setUp(t);
  clock.now = 1_000_000;
  let current = 'one';
  registry(server, realm, () => current);
  server.on('/token', grant('one', { expires_in: 300 }), grant('two', { expires_in: 300 }), grant('three'));
  await read();
  current = 'two';
  t.is(await read(), 'content');
  t.is(server.count(tokenPath), 2);
  current = 'three';
  clock.now += 300_000;
  const before = server.count('/v2/thing');
  t.is(await read(), 'content');
  t.is(server.count(tokenPath), 3);
  t.is(server.count('/v2/thing'), before + 1, 'the old token was not even tried');
});

for (const [expires, seconds] of [
  [{ expires_in: 1 }, 45],
  [{}, 45],
  [{ expires_in: 300 }, 261],
  [{ expires_in: 30 * 86_400 }, 3231],
] as const) {
  test(`a token that expires ${JSON.stringify(expires)} is used for ${seconds} s`, async (t) => {
    const { server, read, realm, clock } = await setUp(t);
    clock.now = 1_000_000;
    registry(server, realm, () => 'one');
    server.on('/token', grant('one', expires));
    await read();
    clock.now += seconds * 1000 - 1;
    await read();
    t.is(server.count(tokenPath), 1);
    clock.now += 1;
    await read();
    t.is(server.count(tokenPath), 2);
  });
}

test('many requests whose token is refused renew it once', async (t) => {
  const { server, read, realm } = await setUp(t);
  let current = 'one';
  registry(server, realm, () => current);
  server.on('/token', grant('one'), grant('two'));
  await read();
  current = 'two';
  await Promise.all(Array.from({ length: 10 }, read));
  t.is(server.count(tokenPath), 2);
});

test('a registry with its own form of scope causes one 401, not one for each request', async (t) => {
  const { server, upstream, realm } = await setUp(t);
  registry(server, realm, () => 'one');
  server.on('/token', grant('one'));
  const send = () =>
    upstream.send({ subject: 'thing', url: new URL('/v2/thing', server.url), scope: 'repository:alpine:pull' });
  await send();
  await send();
  t.is(server.count('/v2/thing'), 3);
  t.is(server.asked.filter(({ path }) => path.startsWith('/token')).length, 1);
});

test('instances that share a cache share tokens, but not those of other credentials', async (t) => {
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const first = await setUp(t, { cache, auth: me });
  registry(first.server, first.realm, () => 'one');
  first.server.on('/token', grant('one'));
  await first.read();
  const url = new URL('/v2/thing', first.server.url);
  for (const [auth, exchanges] of [
    [me, 1],
    [{ username: 'me', password: 'new' }, 2],
    [undefined, 3],
  ] as const) {
    const { upstream } = await openUpstream(t, first.server.url, { cache, ...(auth && { auth }) });
    await upstream.send({ subject: 'thing', url, scope });
    t.is(first.server.count(tokenPath), exchanges);
  }
});

test('a realm on a foreign host gets no credentials; its anonymous token is used', async (t) => {
  const { server, read } = await setUp(t, { auth: me });
  const foreign = await startFaultyUpstream(t);
  const byName = new URL('/token', `http://localhost:${foreign.url.port}`);
  for (const realm of [new URL('/token', foreign.url), byName]) {
    registry(server, realm, () => 'anonymous');
    foreign.on('/token', grant('anonymous'));
    t.is(await read(), 'content');
  }
  t.true(foreign.asked.length > 0);
  for (const { headers } of foreign.asked) t.is(headers.authorization, undefined);
  t.false(server.asked.some(({ headers }) => headers.authorization === basic));
});

const loopback: Resolve = (_name, _options, done) => done(null, [{ address: '127.0.0.1', family: 4 }]);

test('the log says which host gets no credentials, and how to allow it', async (t) => {
  const { server, read, lines } = await setUp(t, { auth: me });
  const foreign = await startFaultyUpstream(t);
  registry(server, new URL('/token', foreign.url), () => 'anonymous');
  foreign.on('/token', grant('anonymous'));
  await read();
  const { host } = foreign.url;
  const line = lines.find((each) => each.includes('credentials'))!;
  t.regex(line, new RegExp(`add ${host} to credentialHosts`));
  t.notRegex(lines.join(''), /secret/);
});

test('the log names at most 20 hosts that get no credentials, each once', async (t) => {
  const { server, upstream, lines } = await setUp(t, { auth: me, resolve: loopback });
  const foreign = await startFaultyUpstream(t);
  foreign.on('/token', grant('anonymous'));
  for (let number = 0; number < 60; number += 1) {
    const realm = `http://host${number % 30}.test:${foreign.url.port}/token`;
    server.on('/v2/thing', answer(401, { 'www-authenticate': `Bearer realm="${realm}"` }));
    const url = new URL('/v2/thing', server.url);
    await t.throwsAsync(upstream.send({ subject: 'thing', url, scope: `repository:a${number}:pull` }));
  }
  t.is(lines.filter((each) => each.includes('credentialHosts')).length, 20);
});

test('a realm on a host in credentialHosts gets the credentials', async (t) => {
  const foreign = await startFaultyUpstream(t);
  const settings = { credentialHosts: [foreign.url.host] };
  const { server, read, lines } = await setUp(t, { auth: me, settings });
  registry(server, new URL('/token', foreign.url), () => 'one');
  foreign.on('/token', grant('one'));
  t.is(await read(), 'content');
  t.is(foreign.asked[0]!.headers.authorization, basic);
  t.notRegex(lines.join(''), /credentialHosts/);
});

test('a feed’s address on another host gets the credentials only if credentialHosts names it', async (t) => {
  const other = await startFaultyUpstream(t);
  other.on('/flat', answer(401, { 'www-authenticate': 'Basic realm="x"' }));
  const url = new URL('/flat', other.url);
  const { upstream, lines } = await setUp(t, { auth: me, settings: { kind: 'nuget' } });
  await t.throwsAsync(upstream.send({ subject: 'thing', url }), { message: /refused access/ });
  t.is(other.asked[0]!.headers.authorization, undefined);
  t.regex(lines.join(''), new RegExp(`add ${other.url.host} to credentialHosts`));
  const listed = await setUp(t, { auth: me, settings: { kind: 'nuget', credentialHosts: [other.url.host] } });
  other.on('/flat', answer(200));
  await listed.upstream.send({ subject: 'thing', url });
  t.is(other.asked[1]!.headers.authorization, basic);
});

test('a realm in the domain that the upstream is named after gets the credentials', async (t) => {
  const auth = await startFaultyUpstream(t);
  const { server, read } = await setUp(t, { auth: me, settings: { name: 'hub.test' }, resolve: loopback });
  registry(server, new URL('/token', `http://auth.hub.test:${auth.url.port}`), () => 'one');
  auth.on('/token', grant('one'));
  t.is(await read(), 'content');
  t.is(auth.asked[0]!.headers.authorization, basic);
});

test('a registry that always answers 401 gets a few requests, and the error says so', async (t) => {
  const { server, upstream, realm } = await setUp(t, { auth: me });
  registry(server, realm, () => 'never given');
  server.on('/token', grant('one'));
  const send = () => upstream.send({ subject: 'thing', url: new URL('/v2/thing', server.url), scope });
  await t.throwsAsync(send(), { name: 'UpstreamUnavailable', message: /refused access; check its credentials/ });
  t.is(server.count('/v2/thing'), 2);
  t.is(server.count(tokenPath), 1);
  await t.throwsAsync(send(), { message: /refused access/ });
  t.true(server.asked.length <= 6);
  t.is(upstream.unavailable(), undefined, 'other repositories may still be asked');
});

for (const [what, behaviour, message] of [
  ['refuses', answer(403), /gave no token \(403\)/],
  ['answers HTML', answer(200, {}, '<html></html>'), /without a token/],
  ['answers JSON without one', answer(200, {}, '{"token":7}'), /without a token/],
  ['answers one that is no header value', answer(200, {}, JSON.stringify({ token: 'a\r\nx: y' })), /without a token/],
  ['redirects', answer(302, { location: '/elsewhere' }), /gave no token \(302\)/],
  ['does not end', (_: unknown, response: import('node:http').ServerResponse) => void response.write('{'), /in time/],
  ['answers too much', answer(200, {}, Buffer.alloc(2 ** 20 + 1, ' ')), /more than/],
] as const) {
  test(`a realm that ${what} is a refusal`, async (t) => {
    const { server, read, realm } = await setUp(t, { settings: { timeout: what === 'does not end' ? '1s' : '60s' } });
    registry(server, realm, () => 'one');
    server.on('/token', behaviour);
    await t.throwsAsync(read(), { message });
    t.is(server.count('/v2/thing'), 1);
  });
}

test('a 429 from the upstream’s own realm pauses the upstream for that time', async (t) => {
  const { server, read, realm } = await setUp(t);
  registry(server, realm, () => 'one');
  server.on('/token', answer(429, { 'retry-after': '30' }));
  await t.throwsAsync(read(), { message: /gave no token \(429\)/ });
  await t.throwsAsync(read(), { message: /a moment ago/ });
  t.is(server.count('/v2/thing'), 1);
});

test('a 429 from a realm on a foreign host does not pause the upstream', async (t) => {
  const { server, read, upstream } = await setUp(t);
  const foreign = await startFaultyUpstream(t);
  registry(server, new URL('/token', foreign.url), () => 'one');
  foreign.on('/token', answer(429, { 'retry-after': '86400' }));
  const error = await t.throwsAsync<DomainError>(read(), { message: /gave no token \(429\)/ });
  t.is(error.detail?.['retryAfter'], 300);
  const { status } = await upstream.send({ subject: 'other', url: new URL('/v2/other', server.url) });
  t.is(status, 404);
});

test('a failed token exchange has its own pause, for all addresses that need the token', async (t) => {
  const { server, upstream, realm, clock } = await setUp(t);
  clock.now = 1_000_000;
  const challenge = `Bearer realm="${realm.href}",service="registry.test",scope="${scope}"`;
  const names = ['1', '2', '3', '4', '5'];
  for (const name of names) server.on(`/v2/${name}`, answer(401, { 'www-authenticate': challenge }));
  const send = (name: string) => upstream.send({ subject: 'thing', url: new URL(`/v2/${name}`, server.url), scope });
  server.on('/token', answer(502));
  await t.throwsAsync(send('1'), { message: /up\.test gave no token \(502\)/ });
  t.is(server.count(tokenPath), 3, 'three attempts');
  const next = await t.throwsAsync<DomainError>(send('2'), {
    message: /failed a moment ago to give a token: it gave no token \(502\)/,
  });
  t.is(next.detail?.['retryAfter'], 1);
  t.is(server.count(tokenPath), 3);
  clock.now += 1000;
  const both = [send('3'), send('4')].map((each) => t.throwsAsync<DomainError>(each, { message: /502/ }));
  await Promise.all(both);
  t.is(server.count(tokenPath), 6);
  t.is((await t.throwsAsync<DomainError>(send('5'))).detail?.['retryAfter'], 2);
});

test('after a realm that cannot be used, the next request follows a new challenge', async (t) => {
  const { server, read, realm, clock } = await setUp(t);
  clock.now = 1_000_000;
  registry(server, new URL('http://169.254.169.254/token'), () => 'one');
  await t.throwsAsync(read(), { message: /address that is refused/ });
  registry(server, realm, () => 'one');
  server.on('/token', grant('one'));
  clock.now += 60_000;
  t.is(await read(), 'content');
});

test('a realm that stops working is forgotten', async (t) => {
  const { server, read, realm, clock } = await setUp(t);
  clock.now = 1_000_000;
  const first = await startFaultyUpstream(t);
  registry(server, new URL('/token', first.url), () => 'one');
  first.on('/token', grant('one'));
  t.is(await read(), 'content');
  await first.stop();
  registry(server, realm, () => 'two');
  server.on('/token', grant('two'));
  clock.now += 3_600_000;
  await t.throwsAsync(read(), { message: /cannot be reached/ });
  clock.now += 60_000;
  t.is(await read(), 'content');
});

test('a realm that cannot be used does not replace the realm of other repositories', async (t) => {
  const { server, read, realm, upstream } = await setUp(t);
  registry(server, realm, () => 'one');
  server.on('/token', grant('one'));
  await read();
  const bad = 'Bearer realm="http://169.254.169.254/token",service="registry.test"';
  server.on('/v2/bad', answer(401, { 'www-authenticate': bad }));
  const url = new URL('/v2/bad', server.url);
  await t.throwsAsync(upstream.send({ subject: 'bad', url, scope: 'repository:bad:pull' }), { message: /refused/ });
  const before = server.count('/v2/thing');
  t.is(await read(), 'content');
  t.is(server.count('/v2/thing'), before + 1, 'the token was sent with the first request');
});

test('the number of remembered failed exchanges is bounded', async (t) => {
  const { server, upstream, realm, clock } = await setUp(t);
  clock.now = 1_000_000;
  server.on('/v2/thing', answer(401, { 'www-authenticate': `Bearer realm="${realm.href}",service="s"` }));
  server.on('/token', answer(503, { 'retry-after': '60' }));
  let number = 0;
  const send = async (scoped = (number += 1)) => {
    // A new address each time, so that only the exchange is paused.
    const url = new URL(`/v2/thing?${(number += 1)}`, server.url);
    await t.throwsAsync(upstream.send({ subject: 'thing', url, scope: `repository:a${scoped}:pull` }));
  };
  const exchanges = () => server.asked.filter(({ path }) => path.endsWith('repository%3Aa0%3Apull')).length;
  await send(0);
  await send(0);
  t.is(exchanges(), 1);
  for (let round = 0; round < 32; round += 1) await Promise.all(Array.from({ length: 32 }, () => send()));
  await send(0);
  t.is(exchanges(), 2);
});

test('a registry that asks for Basic gets it after the first 401, and then with each request', async (t) => {
  const { server, read } = await setUp(t, { auth: me });
  server.on('/v2/thing', (request, response) => {
    const behaviour =
      request.headers.authorization === basic
        ? answer(200, {}, 'content')
        : answer(401, { 'www-authenticate': 'Basic realm="x"' });
    behaviour(request, response);
  });
  await read();
  await read();
  t.deepEqual(
    server.asked.map(({ headers }) => headers.authorization),
    [undefined, basic, basic],
  );
});

test('parallel requests to a registry that asks for Basic are all answered', async (t) => {
  const server = await startFaultyUpstream(t);
  server.on('/thing', (request, response) => {
    const isKnown = request.headers.authorization === basic;
    (isKnown ? answer(200) : answer(401, { 'www-authenticate': 'Basic realm="x"' }))(request, response);
  });
  const { upstream } = await openUpstream(t, server.url, { auth: me, settings: { timeout: '60s' } });
  const url = new URL('/thing', server.url);
  const answers = await Promise.all(Array.from({ length: 5 }, () => upstream.send({ subject: 'thing', url })));
  t.deepEqual(
    answers.map(({ status }) => status),
    [200, 200, 200, 200, 200],
  );
});

test('a feed gets its credentials with the first request, and not again after a 401', async (t) => {
  const { server, upstream } = await setUp(t, { auth: me, settings: { kind: 'nuget' } });
  server.on('/index.json', answer(401, { 'www-authenticate': 'Basic realm="x"' }));
  await t.throwsAsync(upstream.send({ subject: 'thing', url: new URL('/index.json', server.url) }), {
    message: /credentials/,
  });
  t.deepEqual(
    server.asked.map(({ headers }) => headers.authorization),
    [basic],
  );
});

test('a configured bearer token is sent with the first request, and exchanged if the registry asks for that', async (t) => {
  const { server, read, realm } = await setUp(t, { auth: { bearer: 'pat' } });
  registry(server, realm, () => 'one');
  server.on('/token', grant('one'));
  t.is(await read(), 'content');
  t.deepEqual(
    server.asked.map(({ headers }) => headers.authorization),
    ['Bearer pat', 'Bearer pat', 'Bearer one'],
  );
});

test('the challenge of a host that the upstream redirects to is ignored', async (t) => {
  const { server, upstream } = await setUp(t, { auth: me });
  const other = await startFaultyUpstream(t);
  server.on('/v2/thing', answer(302, { location: new URL('/blob', other.url).href }));
  other.on('/blob', answer(401, { 'www-authenticate': 'Basic realm="give me"' }));
  await t.throwsAsync(upstream.send({ subject: 'thing', url: new URL('/v2/thing', server.url), scope }), {
    message: /refused access/,
  });
  t.is(server.asked.length, 1);
  t.is(other.asked.length, 1);
  t.is(other.asked[0]!.headers.authorization, undefined);
});

for (const [what, sent, auth, behaviour, message, isWithheld] of [
  ['401 of another host', 'there', me, answer(401), /got no credentials; to send them there/, true],
  ['401 of another host, without credentials', 'there', undefined, answer(401), /refused access; check/, false],
  ['403 of another host', 'there', me, answer(403), /refused access; check/, false],
  ['418 of another host', 'there', me, answer(418), /answered 418/, false],
  ['401 of a host that the upstream redirects to', 'by redirect', me, answer(401), /refused access; check/, false],
  ['418 of a host that the upstream redirects to', 'by redirect', me, answer(418), /answered 418/, false],
  ['418 of its own host', 'to itself', me, answer(418), /answered 418/, false],
] as const) {
  test(`${what} ${isWithheld ? 'is' : 'is not'} told as a lack of credentialHosts`, async (t) => {
    const { server, upstream } = await setUp(t, { ...(auth && { auth }), settings: { kind: 'nuget' } });
    const other = await startFaultyUpstream(t);
    const there = new URL('/there', other.url);
    for (const each of [server, other]) each.on('/there', behaviour);
    server.on('/start', answer(302, { location: there.href }));
    const urls = { there, 'by redirect': new URL('/start', server.url), 'to itself': new URL('/there', server.url) };
    await t.throwsAsync(upstream.send({ subject: 'thing', url: urls[sent] }), { message });
    t.deepEqual(upstream.credentials.withheldFrom, isWithheld ? [other.url.host] : []);
  });
}

test('an upstream that asks for another kind of credentials does not get those that are configured', async (t) => {
  const { server, upstream } = await setUp(t, { auth: me });
  const send = () => upstream.send({ subject: 'thing', url: new URL('/v2/thing', server.url), scope });
  for (const headers of [{}, { 'www-authenticate': 'Negotiate' }, { 'www-authenticate': 'Bearer realm="ftp://x/"' }]) {
    server.on('/v2/thing', answer(401, headers));
    await t.throwsAsync(send(), { message: /refused access; check its credentials/ });
  }
  t.deepEqual(
    server.asked.map(({ headers }) => headers.authorization),
    [undefined, undefined, undefined],
  );
  t.false(upstream.credentials.sent);
});
