import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import type { UpstreamAnswer } from '../../src/upstream/answer.ts';
import { fixedCredentials, type CredentialSource } from '../../src/upstream/credential-source.ts';
import {
  belongsTo,
  Credentials,
  parseChallenges,
  withheldFrom,
  type UpstreamAuth,
} from '../../src/upstream/credentials.ts';
import { NotConnected, Refused } from '../../src/upstream/failures.ts';
import { RegistryTokens, type TokenRequest } from '../../src/upstream/tokens.ts';

// Credentials and tokens of a registry, without any request.

const base = new URL('https://up.test/');
const realm = new URL('https://up.test/token?a=b');
const wanted: TokenRequest = {
  realm,
  service: 'the registry',
  scope: 'repository:app:pull',
  keptAs: 'repository:app:pull',
};
const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
const me = { username: 'me', password: 'pass:word' };

function credentialsOf(source: CredentialSource | undefined, hosts: readonly string[] = []) {
  const withheld: string[] = [];
  const credentials = new Credentials({
    source,
    base,
    name: 'up.test',
    hosts,
    onWithheld: (host) => void withheld.push(host),
  });
  return { credentials, withheld };
}

function reply(status: number, body: unknown = '', headers = {}): UpstreamAnswer {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return { status, headers, body: Readable.from([Buffer.from(text)]), decoded: false };
}

async function openTokens(t: ExecutionContext, source?: CredentialSource) {
  const clock = { now: 1_000_000 };
  const cache = await Cache.open(
    undefined,
    () => clock.now,
    () => undefined,
  );
  const asked: string[] = [];
  const script: (() => UpstreamAnswer | Promise<UpstreamAnswer>)[] = [];
  const { credentials, withheld } = credentialsOf(source);
  const tokens = new RegistryTokens({
    cache,
    id: 'up',
    base,
    credentials,
    timeout: 60_000,
    now: () => clock.now,
    ask: async (url, { authorization = 'nobody', ...others }) => {
      asked.push([url.href, authorization, ...Object.keys(others)].join(' '));
      return (script.length > 1 ? script.shift()! : script[0]!)();
    },
  });
  t.teardown(() => cache.close());
  const answer = (...answers: typeof script) => void script.splice(0, script.length, ...answers);
  const give = (token: string, more: object = {}) => answer(() => reply(200, { token, ...more }));
  return { tokens, clock, asked, withheld, answer, give };
}

const query = 'service=the+registry&scope=repository%3Aapp%3Apull';

test('a token is asked for with the credentials of the upstream, once, until it has almost expired', async (t) => {
  const { tokens, clock, asked, give } = await openTokens(t, fixedCredentials(me));
  give('one', { expires_in: 300 });
  const both = await Promise.all([tokens.authorization(wanted), tokens.authorization(wanted)]);
  t.deepEqual(
    [both, asked],
    [['Bearer one', 'Bearer one'], [`https://up.test/token?a=b&${query} ${basic('me:pass:word')}`]],
  );
  give('two');
  clock.now += 290_000 * 0.9 - 1;
  t.is(await tokens.authorization(wanted), 'Bearer one');
  clock.now += 1;
  t.is(await tokens.authorization(wanted), 'Bearer two');
  t.is(asked.length, 2);
  t.is(await tokens.authorization(wanted, 'Bearer other'), 'Bearer two');
  give('three');
  t.is(await tokens.authorization(wanted, 'Bearer two'), 'Bearer three', 'one that was refused is not used again');
  t.is(await tokens.authorization(wanted), 'Bearer three');
  t.is(asked.length, 3);
});

test('a token is kept by its realm, its service, its use and the credentials', async (t) => {
  const { tokens, asked, give } = await openTokens(t);
  give('any');
  for (const changes of [{}, { service: 'other' }, { keptAs: 'other' }, { realm: new URL('https://up.test/other') }])
    await tokens.authorization({ ...wanted, ...changes });
  t.is(asked.length, 4);
  await tokens.authorization({ ...wanted, scope: 'what the registry asked for' });
  t.is(asked.length, 4, 'the scope that the next request knows');
  await tokens.authorization({ ...wanted, service: '', scope: '', keptAs: 'none' });
  t.is(asked[4], 'https://up.test/token?a=b nobody');
});

test('how long a token is valid has bounds', async (t) => {
  for (const [expires, seconds] of [
    [undefined, 45],
    [1, 45],
    ['300', 45],
    [60, 45],
    [61, 45.9],
    [3600, 3231],
    [86_400, 3231],
  ] as const) {
    const { tokens, clock, asked, give } = await openTokens(t);
    give('one', { expires_in: expires });
    await tokens.authorization(wanted);
    clock.now += seconds * 1000 - 1;
    await tokens.authorization(wanted);
    t.is(asked.length, 1, `${expires}`);
    clock.now += 1;
    await tokens.authorization(wanted);
    t.is(asked.length, 2, `${expires}`);
  }
});

test('a token has one of two names, and an answer without one is refused', async (t) => {
  const { tokens, answer, clock } = await openTokens(t);
  answer(() => reply(200, { access_token: 'second' }));
  t.is(await tokens.authorization({ ...wanted, keptAs: 'a' }), 'Bearer second');
  answer(() => reply(200, { access_token: 'second', token: 'first' }));
  t.is(await tokens.authorization({ ...wanted, keptAs: 'b' }), 'Bearer first');
  for (const body of [
    '',
    'null',
    '[]',
    '{',
    { token: '' },
    { token: 7 },
    { token: 'a b' },
    { token: 'a\n' },
    { token: 'é' },
  ]) {
    answer(() => reply(200, body));
    clock.now += 3_600_000;
    await t.throwsAsync(tokens.authorization({ ...wanted, keptAs: JSON.stringify(body) }), {
      instanceOf: Refused,
      message: 'gave an answer without a token',
    });
  }
  answer(() => reply(200, `"${'x'.repeat(64 * 1024)}"`));
  await t.throwsAsync(tokens.authorization({ ...wanted, keptAs: 'long' }), {
    message: 'sends more than the limit of 65536 bytes',
  });
});

test('a realm that refuses the credentials gets newer ones once, if there are any', async (t) => {
  let password = 'one';
  const source = {
    isBearer: false,
    get: () => ({ username: 'me', password }),
    renew: () => ({ username: 'me', password: (password = 'two') }),
  };
  const { tokens, asked, answer } = await openTokens(t, source);
  answer(
    () => reply(401),
    () => reply(200, { token: 'good' }),
  );
  t.is(await tokens.authorization(wanted), 'Bearer good');
  t.deepEqual(
    asked.map((each) => each.split(' ').slice(1).join(' ')),
    [basic('me:one'), basic('me:two')],
  );
  answer(() => reply(401));
  const other = { ...wanted, keptAs: 'other' };
  await t.throwsAsync(tokens.authorization(other), { message: 'gave no token (401)' });
  t.is(asked.length, 3, 'there are none');
  const open = await openTokens(t);
  open.answer(() => reply(401));
  await t.throwsAsync(open.tokens.authorization(wanted), { message: 'gave no token (401)' });
  t.is(open.asked.length, 1);
});

test('a realm on another host is asked without credentials', async (t) => {
  const { tokens, asked, withheld, give } = await openTokens(t, fixedCredentials(me));
  give('public');
  const foreign = { ...wanted, realm: new URL('https://auth.other/token') };
  t.is(await tokens.authorization(foreign), 'Bearer public');
  t.deepEqual([asked, withheld], [[`https://auth.other/token?${query} nobody`], ['auth.other']]);
});

test('an exchange that fails is not tried again before its pause is over, whatever needs the token', async (t) => {
  const { tokens, clock, asked, answer, give } = await openTokens(t);
  answer(() => reply(500));
  const failed = await t.throwsAsync<Refused>(tokens.authorization(wanted), { message: 'gave no token (500)' });
  t.deepEqual([asked.length, failed.verdict, failed.retryAfter], [3, 'resource', 1000]);
  const paused = await t.throwsAsync<Refused>(tokens.authorization(wanted), {
    message: 'failed a moment ago to give a token: it gave no token (500)',
  });
  t.deepEqual([asked.length, paused.verdict, paused.retryAfter], [3, 'unsent', 1000]);
  clock.now += 400;
  t.like(await t.throwsAsync<Refused>(tokens.authorization(wanted)), { retryAfter: 600 });
  clock.now += 600;
  t.like(await t.throwsAsync<Refused>(tokens.authorization(wanted)), { retryAfter: 2000 }, 'the pause grows');
  t.is(asked.length, 6);
  give('last');
  t.is(await tokens.authorization({ ...wanted, keptAs: 'other' }), 'Bearer last', 'another token');
  tokens.tryNow();
  t.is(await tokens.authorization(wanted), 'Bearer last');

  answer(() => reply(503, '', { 'retry-after': '9' }));
  const third = { ...wanted, keptAs: 'third' };
  t.like(await t.throwsAsync<Refused>(tokens.authorization(third)), { verdict: 'resource', retryAfter: 9000 });
  t.is(asked.length, 9, 'it asked for a pause');
  t.like(await t.throwsAsync<Refused>(tokens.authorization(third)), { verdict: 'unsent', retryAfter: 9000 });
});

test('what concerns the whole upstream, or is no failure, begins no pause of the exchange', async (t) => {
  const { tokens, asked, answer, give } = await openTokens(t);
  const failures: [() => UpstreamAnswer | Promise<UpstreamAnswer>, object][] = [
    [
      () => reply(429, '', { 'retry-after': '5' }),
      { verdict: 'limit', retryAfter: 5000, message: 'gave no token (429)' },
    ],
    [() => reply(403), { verdict: 'answered', message: 'gave no token (403)' }],
    [() => Promise.reject(new NotConnected(base.origin, new Error('no way'))), { message: 'no way' }],
  ];
  for (const [failure, expected] of failures) {
    answer(failure);
    t.like(await t.throwsAsync(tokens.authorization(wanted)), expected);
  }
  t.is(asked.length, 3);
  give('now');
  t.is(await tokens.authorization(wanted), 'Bearer now');
  answer(() => reply(429, '', { 'retry-after': '5' }));
  const foreign = { ...wanted, realm: new URL('https://auth.other/token') };
  t.like(await t.throwsAsync<Refused>(tokens.authorization(foreign)), { verdict: 'resource', retryAfter: 5000 });
});

test('challenges are read with their parameters, and what is none is left out', (t) => {
  for (const [header, challenges] of [
    [
      'Bearer realm="https://a.test/t?x=1,2",Service=reg , scope="a b"',
      ['bearer realm=https://a.test/t?x=1,2 service=reg scope=a b'],
    ],
    ['Basic realm="say \\"hi\\" \\\\", BEARER realm=r', ['basic realm=say "hi" \\', 'bearer realm=r']],
    ['Basic', ['basic']],
    ['Negotiate, Basic realm=""', ['negotiate', 'basic realm=']],
    ['realm="x"', []],
    ['"', []],
    ['', []],
    [`Basic a="${'x'.repeat(4086)}"`, [`basic a=${'x'.repeat(4086)}`]],
    [`Basic a="${'x'.repeat(4087)}"`, []],
    [undefined, []],
  ] as const)
    t.deepEqual(
      parseChallenges(header).map(({ scheme, parameters }) =>
        [scheme, ...Object.entries(parameters).map((each) => each.join('='))].join(' '),
      ),
      [...challenges],
      header?.slice(0, 50),
    );
});

test('credentials may go to the own host, the domain above it, that of the name, and hosts that are listed', (t) => {
  const at = new URL('https://registry.git.test:5000/');
  const belongs = (address: string, name = 'named.test:5000', hosts: string[] = []) =>
    belongsTo(new URL(address), at, name, hosts);
  for (const address of [
    'https://registry.git.test:5000/x',
    'https://git.test/',
    'https://git.test:99/',
    'https://named.test/',
    'https://auth.named.test:1/',
  ])
    t.true(belongs(address), address);
  for (const address of [
    'http://registry.git.test:5000/',
    'http://git.test/',
    'https://other.test/',
    'https://test/',
    'https://it.test/',
    'https://xnamed.test/',
    'https://registry.git.test.evil/',
    'https://registry.git.test/',
  ])
    t.false(belongs(address), address);
  t.true(belongs('https://cdn.test/', 'x', ['other.test', 'cdn.test']));
  t.true(belongs('https://cdn.test:443/', 'x', ['cdn.test']));
  t.true(belongs('https://cdn.test:8443/', 'x', ['cdn.test:8443']));
  t.false(belongs('https://cdn.test:8443/', 'x', ['cdn.test']));
  t.false(belongs('http://cdn.test/', 'x', ['cdn.test']), 'never from https to http');
  t.true(belongsTo(new URL('http://cdn.test/'), new URL('http://a.test/'), 'x', ['cdn.test']));
  t.true(belongsTo(new URL('https://a.test/'), new URL('http://a.test:80/'), 'x'));
  t.is(withheldFrom('a.test:1'), 'a.test:1 got no credentials; to send them there, add a.test:1 to credentialHosts');
});

test('credentials are sent where they belong, renewed once they are refused, and told where they were missed', async (t) => {
  const none = credentialsOf(undefined);
  t.deepEqual([none.credentials.isConfigured, none.credentials.isBearer], [false, false]);
  t.deepEqual(
    [await none.credentials.send(), await none.credentials.sendTo(realm), await none.credentials.renew('x')],
    [undefined, undefined, undefined],
  );
  none.credentials.withhold(realm);
  none.credentials.close();
  t.deepEqual([none.credentials.sent, none.withheld, none.credentials.withheldFrom], [false, [], []]);

  let auth: UpstreamAuth = me;
  const calls: string[] = [];
  const source = {
    isBearer: true,
    get: () => auth,
    renew: () => {
      calls.push('renew');
      return (auth = { bearer: 'new' });
    },
    close: () => void calls.push('close'),
  };
  const { credentials, withheld } = credentialsOf(source, ['cdn.test']);
  t.deepEqual([credentials.isConfigured, credentials.isBearer, credentials.sent], [true, true, false]);
  t.is(await credentials.sendTo(new URL('https://other.test:1/')), undefined);
  t.false(credentials.sent);
  t.is(await credentials.sendTo(realm), basic('me:pass:word'));
  t.true(credentials.sent);
  t.is(await credentials.renew('Basic old'), basic('me:pass:word'), 'there are newer ones already');
  t.is(await credentials.renew(basic('me:pass:word')), 'Bearer new');
  t.is(await credentials.renew('Bearer new'), undefined, 'there are no others');
  t.deepEqual(calls, ['renew', 'renew']);
  t.deepEqual(
    ['https://cdn.test/', 'http://cdn.test/', 'https://up.test/'].map((each) => credentials.isListed(new URL(each))),
    [true, false, false],
  );
  for (let host = 0; host < 20; host += 1)
    for (let time = 0; time < 2; time += 1) credentials.withhold(new URL(`https://h${host}.test/`));
  const first = ['other.test:1', ...Array.from({ length: 19 }, (_, host) => `h${host}.test`)];
  t.deepEqual([withheld, credentials.withheldFrom], [first, first]);
  credentials.close();
  t.is(calls.at(-1), 'close');
});
