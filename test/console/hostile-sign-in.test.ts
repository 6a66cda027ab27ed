import { createHash, randomBytes } from 'node:crypto';
import { mock } from 'node:test';
import test, { type ExecutionContext } from 'ava';
import { exportSPKI, generateKeyPair, importJWK, type CryptoKey, type JWTPayload } from 'jose';
import { auditOf } from '../support/audit.ts';
import { Browser } from '../support/cookie-browser.ts';
import { databaseOf } from '../support/inside.ts';
import { startIssuer, type TestIssuer } from '../support/issuer.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { sendJson } from '../identity/support.ts';
import { until, within } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';

// A provider that answers what a test wants.

async function startWithFake(t: ExecutionContext, settings: object = {}, more: Record<string, unknown> = {}) {
  const issuer = await startIssuer(t);
  const oidc = {
    issuer: issuer.url,
    clientId: 'entrepot',
    clientSecret: 'secret',
    allowPrivateNetwork: true,
    rules: [{ claim: 'groups', value: 'dev', scopes: ['read'] }],
    ...settings,
  };
  return { issuer, server: await startTestServer(t, { ...more, signIn: { oidc } }) };
}

/** Begins a sign-in; the result has the parameters that the provider gets. */
async function begin(server: TestServer, browser: Browser, next = '/console/connect') {
  const path = `/console/sign-in/oidc?next=${encodeURIComponent(next)}`;
  const response = await browser.fetch(server.url + path);
  return { response, sent: new URL(response.headers.get('location') ?? 'http://none').searchParams };
}

const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');

const answered = (idToken: string) => JSON.stringify({ access_token: 'a', token_type: 'Bearer', id_token: idToken });

/** Completes a sign-in with an ID token of these claims. */
async function finish(
  { server, issuer }: { server: TestServer; issuer: TestIssuer },
  idToken: (usual: Record<string, unknown>) => Promise<string> | string,
  change: (callback: URLSearchParams) => void = () => undefined,
  next?: string,
): Promise<{ response: Response; browser: Browser }> {
  const browser = new Browser();
  const { sent } = await begin(server, browser, next);
  const token = await idToken({ aud: 'entrepot', sub: 'ann', groups: ['dev'], nonce: sent.get('nonce') });
  issuer.answers.token = (_request, response) => response.end(answered(token));
  const callback = new URLSearchParams({ code: 'c', state: sent.get('state')! });
  change(callback);
  return {
    response: await browser.fetch(`${server.url}/console/sign-in/oidc/callback?${callback.toString()}`),
    browser,
  };
}

test('the request to the provider has PKCE, state and nonce, which are new for each sign-in', async (t) => {
  const { server, issuer } = await startWithFake(t);
  const browser = new Browser();
  const { response, sent } = await begin(server, browser);
  t.is(response.status, 303);
  t.true(response.headers.get('location')!.startsWith(`${issuer.url}/authorize?`));
  t.is(sent.get('code_challenge_method'), 'S256');
  t.is(sent.get('redirect_uri'), `${server.url}/console/sign-in/oidc/callback`);
  t.is(sent.get('scope'), 'openid profile');
  const [set] = response.headers.getSetCookie();
  t.regex(
    set!,
    /^entrepot-sign-in=[\w-]{43}\.[0-9a-z]+\.[\w-]*\.[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=600$/,
  );
  const secret = /=([\w-]{43})/.exec(set!)![1]!;
  t.false([...sent.values()].some((value) => value.includes(secret)));
  const { sent: other } = await begin(server, new Browser());
  for (const name of ['state', 'nonce', 'code_challenge']) t.not(sent.get(name), other.get(name), name);
  let form = '';
  issuer.answers.token = (request, answer) => {
    request.on('data', (piece: Buffer) => (form += piece.toString()));
    request.on('end', () => answer.writeHead(400).end('{"error":"invalid_grant"}'));
  };
  await browser.fetch(`${server.url}/console/sign-in/oidc/callback?code=c&state=${sent.get('state')}`);
  const verifier = new URLSearchParams(form).get('code_verifier')!;
  t.false([...sent.values()].includes(verifier), 'the address does not show the verifier');
  t.is(sent.get('code_challenge'), createHash('sha256').update(verifier).digest('base64url'));
});

test('with HTTPS, the cookie of a sign-in has the prefix __Host- and is secure', async (t) => {
  const { server } = await startWithFake(t, {}, { server: { baseUrl: 'https://hub.example' } });
  const { response } = await begin(server, new Browser());
  t.regex(
    response.headers.getSetCookie()[0]!,
    /^__Host-entrepot-sign-in=.*; Path=\/; HttpOnly; SameSite=Lax; Secure; /,
  );
});

test('ID tokens that are not for this sign-in are refused', async (t) => {
  const pair = await startWithFake(t);
  const { issuer, server } = pair;
  const publicKey = (await importJWK(issuer.keys[0]!, 'ES256', { extractable: true })) as CryptoKey;
  const asSecret = new TextEncoder().encode(await exportSPKI(publicKey));
  const stranger = await generateKeyPair('ES256');
  const sign = (change: object, options?: Parameters<TestIssuer['sign']>[1]) => (usual: JWTPayload) =>
    issuer.sign({ ...usual, ...change }, options);
  const cases: Record<string, (usual: Record<string, unknown>) => Promise<string> | string> = {
    'another nonce': sign({ nonce: 'other' }),
    'no nonce': sign({ nonce: undefined }),
    'another audience': sign({ aud: 'other' }),
    'another issuer': sign({ iss: 'https://evil.example' }),
    expired: sign({ exp: 1000 }),
    'no subject': sign({ sub: undefined }),
    'a huge subject': sign({ sub: 'x'.repeat(300) }),
    'another key': sign({}, { key: stranger.privateKey }),
    'HS256 with the public key': sign({}, { key: asSecret, header: { alg: 'HS256' } }),
    'HS256 with the client secret': sign(
      {},
      { key: new TextEncoder().encode('secret'.repeat(8)), header: { alg: 'HS256' } },
    ),
    'alg none': (usual) => {
      const now = Math.floor(Date.now() / 1000);
      return `${encoded({ alg: 'none' })}.${encoded({ ...usual, iss: issuer.url, iat: now, exp: now + 60 })}.`;
    },
    'no JWT': () => 'x',
  };
  for (const [name, idToken] of Object.entries(cases)) {
    const { response, browser } = await finish(pair, idToken);
    t.is(response.status, 400, name);
    t.regex(await response.text(), /<h1>Not signed in<\/h1>/, name);
    t.is(browser.cookies(server.url).size, 0, name);
  }
  const good = await finish(pair, sign({}));
  t.is(good.response.headers.get('location'), '/console/connect');
  await server.installation.core.repeatedEvents.flush(true);
  const [event] = await auditOf(server, 'type=sign_in.failed');
  t.is(event!.details['count'], Object.keys(cases).length);
});

test('answers of the provider with another state, another issuer or an error are refused', async (t) => {
  const pair = await startWithFake(t);
  const sign = (usual: JWTPayload) => pair.issuer.sign(usual);
  for (const change of [
    (query: URLSearchParams) => query.set('state', 'other'),
    (query: URLSearchParams) => query.delete('state'),
    (query: URLSearchParams) => query.append('state', query.get('state')!),
    (query: URLSearchParams) => query.delete('code'),
    (query: URLSearchParams) => query.set('iss', 'https://evil.example'),
    (query: URLSearchParams) => query.set('error', 'access_denied'),
    (query: URLSearchParams) => {
      query.delete('code');
      query.set('error', '<script>alert(1)</script>');
      query.set('error_description', '<b>Call 555-1234</b>');
    },
  ]) {
    const { response, browser } = await finish(pair, sign, change);
    t.is(response.status, 400, String(change));
    t.notRegex(await response.text(), /alert\(1\)|555-1234/, 'no text of the address is shown');
    t.is(browser.cookies(pair.server.url).size, 0);
  }
});

test('a sign-in with the provider never leads to another site', async (t) => {
  const pair = await startWithFake(t);
  const sign = (usual: JWTPayload) => pair.issuer.sign(usual);
  for (const next of [
    'https://evil.test/',
    '//evil.test/console/',
    '/console//evil.test',
    '/console/\\evil',
    '/v1/tokens',
    '/x',
  ]) {
    const { response } = await finish(pair, sign, undefined, next);
    t.is(response.headers.get('location'), '/console/', next);
  }
});

test('claims that the ID token lacks come from the userinfo of the same subject', async (t) => {
  const pair = await startWithFake(t);
  const sign = (usual: JWTPayload) => pair.issuer.sign({ ...usual, groups: undefined });
  pair.issuer.answers.userinfo = (_request, response) => response.end('{"sub":"ann","groups":["dev"]}');
  t.is((await finish(pair, sign)).response.status, 303);
  pair.issuer.answers.userinfo = (_request, response) => response.end('{"sub":"eve","groups":["dev"]}');
  t.is((await finish(pair, sign)).response.status, 400);
  pair.issuer.answers.userinfo = (_request, response) => response.end('{"sub":"ann","groups":"develop"}');
  t.is((await finish(pair, sign)).response.status, 403, 'no rule');

  const bare = await startWithFake(t);
  const found = await (await fetch(`${bare.issuer.url}/.well-known/openid-configuration`)).json();
  const text = JSON.stringify({ ...(found as object), userinfo_endpoint: undefined });
  bare.issuer.answers.discovery = (_request, response) =>
    response.setHeader('content-type', 'application/json').end(text);
  const { response } = await finish(bare, (usual) => bare.issuer.sign({ ...usual, groups: undefined }));
  t.is(response.status, 403, 'a provider without userinfo is not asked for it');
});

test('the userinfo is asked for claims of rules, and for groups only while grants name some', async (t) => {
  const pair = await startWithFake(t, { rules: [{ claim: 'team', value: 'one', scopes: ['read'] }] });
  pair.issuer.answers.userinfo = (_request, response) => response.end('{"sub":"ann","groups":["dev"]}');
  const asks = async (claims: object) => {
    const before = pair.issuer.requests.length;
    await finish(pair, (usual) => pair.issuer.sign({ ...usual, groups: undefined, ...claims }));
    return pair.issuer.requests.slice(before).includes('/userinfo');
  };
  t.deepEqual([await asks({ team: ['one'] }), await asks({ team: [] }), await asks({})], [false, true, true]);
  const grant = { subject: { kind: 'group', id: 'dev' }, verbs: ['write'] };
  const made = await sendJson(pair.server, 'POST', '/v1/grants', grant);
  t.is(made.status, 201);
  t.deepEqual([await asks({ team: ['one'] }), await asks({ team: ['one'], groups: ['dev'] })], [true, false]);
});

test('what the ID token says counts more than the userinfo, and than what is said to be elsewhere', async (t) => {
  const rules = ['dev', 'ops'].map((value) => ({
    claim: value === 'dev' ? 'groups' : 'team',
    value,
    scopes: ['read'],
  }));
  const pair = await startWithFake(t, { rules });
  const status = async (claims: object) =>
    (await finish(pair, (usual) => pair.issuer.sign({ ...usual, ...claims }))).response.status;
  pair.issuer.answers.userinfo = (_request, response) => response.end('{"sub":"ann","groups":["dev"]}');
  t.is(await status({}), 303);
  t.is(await status({ groups: ['sales'], _claim_names: { groups: 'source' } }), 403, 'the groups are known');
  t.is(await status({}), 303);
  t.is(await status({ groups: ['sales'] }), 403);
  const name = `  \u0007Ann\u001b[2J${'x'.repeat(300)}`;
  t.is(await status({ name }), 303);
  const { items } = (await (await pair.server.fetch('/v1/people')).json()) as { items: { name: string }[] };
  t.is(items[0]!.name, name.replaceAll('\u0007', ' ').replaceAll('\u001b', ' ').slice(0, 200));
});

test('the record of a person has the name, the groups and the claims of rules that the provider sent', async (t) => {
  const rules = [
    { claim: 'groups', value: 'dev', scopes: ['read'] },
    { claim: 'team', value: 'one', scopes: ['write'] },
    { claim: 'team', value: 'two', scopes: ['delete'] },
  ];
  const pair = await startWithFake(t, { rules });
  pair.issuer.answers.userinfo = (_request, response) => response.end('{"sub":"ann"}');
  const recorded = async (claims: object): Promise<Record<string, unknown>> => {
    const { response } = await finish(pair, (usual) => pair.issuer.sign({ ...usual, ...claims }));
    const [row] = await databaseOf(pair.server).select<{ person: string }>('SELECT person FROM people');
    return { status: response.status, ...(JSON.parse(row!.person) as object) };
  };
  const groups = ['dev', 'dev', 7, '', 'x'.repeat(255), 'y'.repeat(256), true, null];
  t.deepEqual(await recorded({ name: 'Ann', groups, team: ['two', 'three'] }), {
    status: 303,
    issuer: pair.issuer.url,
    subject: 'ann',
    name: 'Ann',
    claims: [
      ['groups', 'dev'],
      ['team', 'two'],
    ],
    groups: ['dev', '7', 'x'.repeat(255)],
    cut: [],
  });
  for (const [claims, name] of [
    [{ name: ' ', preferred_username: 'ann-a', email: 'a@example.com' }, 'ann-a'],
    [{ name: 7, preferred_username: '', email: 'a@example.com' }, 'a@example.com'],
    [{ email: null }, 'ann'],
  ] as const)
    t.is((await recorded(claims))['name'], name);
  const elsewhere = Object.fromEntries(Array.from({ length: 25 }, (_, each) => [`c${each}`, 'source']));
  t.is(((await recorded({ _claim_names: elsewhere }))['cut'] as string[]).length, 20);
  // The groups of before count as long as the provider cuts them.
  t.is((await recorded({}))['status'], 303);
  for (const claims of [{ hasgroups: 'true' }, { hasgroups: true }, { _claim_names: { groups: 'source' } }])
    t.is((await recorded({ groups: undefined, ...claims }))['status'], 303, JSON.stringify(claims));
  t.is((await recorded({ groups: undefined, hasgroups: 'no' }))['status'], 403);
  t.is((await recorded({}))['status'], 303);
  t.is((await recorded({ groups: undefined, _claim_names: null }))['status'], 403);
  t.is((await recorded({}))['status'], 303);
  const twice = await recorded({ groups: undefined, hasgroups: true, _claim_names: { groups: 'source' } });
  t.deepEqual(twice['cut'], ['groups']);
  for (const [length, status] of [
    [255, 303],
    [256, 400],
  ] as const)
    t.is((await recorded({ sub: 'x'.repeat(length), team: ['two'] }))['status'], status, `${length} characters`);
});

test('a page tells why the provider refused a sign-in, if that is one of its codes', async (t) => {
  const pair = await startWithFake(t);
  for (const [code, isShown] of [
    ['access_denied', true],
    ['a'.repeat(50), true],
    ['a'.repeat(51), false],
    ['Access', false],
    ['x denied', false],
    ['denied1', false],
  ] as const) {
    const { response } = await finish(
      pair,
      (usual) => pair.issuer.sign(usual),
      (query) => {
        query.delete('code');
        query.set('error', code);
      },
    );
    t.is(response.status, 400);
    const text = await response.text();
    t.is(text.includes(`The provider refused the sign-in (${code}). Sign in again.`), isShown, code);
    t.is(text.includes('The provider refused the sign-in. Sign in again.'), !isShown, code);
  }
});

test('the metadata of the provider are read again after an hour', async (t) => {
  const { server, issuer } = await startWithFake(t);
  server.clock.now = Date.now();
  const read = async () => {
    await begin(server, new Browser());
    return issuer.requests.filter((path) => path.startsWith('/.well-known')).length;
  };
  t.deepEqual([await read(), await read()], [1, 1]);
  server.clock.now += 3_600_000 - 1;
  t.is(await read(), 1);
  server.clock.now += 1;
  t.is(await read(), 2);
});

test('a provider that fails, redirects, or answers with too much shows a page of the console', async (t) => {
  const pair = await startWithFake(t);
  const { server, issuer } = pair;
  server.clock.now = Date.now();
  issuer.answers.discovery = (_request, response) =>
    response.writeHead(302, { location: 'http://169.254.169.254/' }).end();
  const { response } = await begin(server, new Browser());
  t.is(response.status, 502);
  t.regex(await response.text(), /<h1>Not signed in<\/h1>/);
  const asked = issuer.requests.length;
  t.is((await begin(server, new Browser())).response.status, 502);
  t.is(issuer.requests.length, asked, 'a failure is not repeated for 5 seconds');
  server.clock.now += 5000;
  issuer.answers.discovery = (_request, answer) => answer.end(`{"x":"${'x'.repeat(300_000)}"}`);
  t.is((await begin(server, new Browser())).response.status, 502);
  server.clock.now += 5000;
  delete issuer.answers.discovery;
  t.is((await begin(server, new Browser())).response.status, 303);
  const sign = (usual: JWTPayload) => issuer.sign(usual);
  issuer.answers.keys = (_request, answer) => answer.writeHead(500).end();
  t.is((await finish(pair, sign)).response.status, 502);
  delete issuer.answers.keys;
  issuer.answers.token = (_request, answer) => answer.writeHead(500).end('{}');
  const failing = new Browser();
  const { sent: asking } = await begin(server, failing);
  const failed = `${server.url}/console/sign-in/oidc/callback?code=c&state=${asking.get('state')}`;
  t.is((await failing.fetch(failed)).status, 502);
  const other = new Browser();
  const { sent: again } = await begin(server, other);
  issuer.answers.token = (_request, answer) => answer.setHeader('content-type', 'text/html').end('<html>');
  const noJson = `${server.url}/console/sign-in/oidc/callback?code=c&state=${again.get('state')}`;
  t.is((await other.fetch(noJson)).status, 502);
  const browser = new Browser();
  const { sent } = await begin(server, browser);
  issuer.answers.token = (_request, answer) => void answer.writeHead(200).write('{');
  const slow = browser.fetch(`${server.url}/console/sign-in/oidc/callback?code=c&state=${sent.get('state')}`);
  const page = server.fetch('/console/sign-in', { token: null });
  t.is(await Promise.race([page.then(() => 'page'), slow.then(() => 'slow')]), 'page', 'other pages do not wait');
  t.is((await within(slow)).status, 502);
});

test('a provider with a private address needs the setting', async (t) => {
  const { server } = await startWithFake(t, { issuer: 'https://127.0.0.1:1', allowPrivateNetwork: false });
  const { response } = await begin(server, new Browser());
  t.is(response.status, 502);
  t.regex(await response.text(), /private address/);
});

test('failed sign-ins with the provider are limited as others', async (t) => {
  const pair = await startWithFake(t, {}, { limits: { failedSignInsPerMinute: 2, delay: '1ms' } });
  pair.server.clock.now = Date.now();
  const statuses: number[] = [];
  for (let index = 0; index < 4; index += 1) statuses.push((await finish(pair, () => 'x')).response.status);
  t.deepEqual(statuses, [400, 400, 429, 429]);
});

test('a callback that this server did not begin sends nothing to the provider', async (t) => {
  const { issuer, server } = await startWithFake(t, {}, { limits: { failedSignInsPerMinute: 1, delay: '1ms' } });
  await begin(server, new Browser());
  const asked = issuer.requests.length;
  for (let count = 0; count < 5; count += 1) {
    const secret = randomBytes(32).toString('base64url');
    const state = createHash('sha256').update(`state ${secret}`).digest('base64url');
    const until = (Date.now() + 600_000).toString(36);
    for (const value of [`${secret}.`, `${secret}.${until}..${'x'.repeat(43)}`, `${secret}.${until}..`]) {
      const response = await server.fetch(`/console/sign-in/oidc/callback?code=c&state=${state}`, {
        token: null,
        headers: { cookie: `entrepot-sign-in=${value}` },
      });
      t.is(response.status, 400, value);
    }
  }
  t.is(issuer.requests.length, asked);
  t.is((await finish({ issuer, server }, (usual) => issuer.sign(usual))).response.status, 303, 'a person signs in');
  t.is((await finish({ issuer, server }, (usual) => issuer.sign(usual))).response.status, 303, 'which counts nothing');
});

test('a sign-in is not finished after its 10 minutes, nor with a changed cookie', async (t) => {
  const { issuer, server } = await startWithFake(t);
  server.clock.now = Date.now();
  const browser = new Browser();
  const { sent } = await begin(server, browser);
  const asked = issuer.requests.length;
  const jar = browser.cookies(server.url);
  const value = jar.get('entrepot-sign-in')!;
  const callback = `${server.url}/console/sign-in/oidc/callback?code=c&state=${sent.get('state')}`;
  const [secret, until, , tag] = value.split('.');
  const other = Buffer.from('/console/tokens').toString('base64url');
  const later = (Number.parseInt(until!, 36) + 600_000).toString(36);
  for (const changed of [`${secret}.${until}.${other}.${tag}`, `${secret}.${later}..${tag}`]) {
    jar.set('entrepot-sign-in', changed);
    t.is((await browser.fetch(callback)).status, 400, changed);
  }
  server.clock.now += 600_001;
  jar.set('entrepot-sign-in', value);
  t.is((await browser.fetch(callback)).status, 400);
  t.is(issuer.requests.length, asked);
});

test.serial(
  'wrong answers at the same time are limited before the provider is asked, and logged once in 10 seconds',
  async (t) => {
    // A busy machine may need more than the 10 seconds of the provider until all have asked.
    const timeouts = mock.method(AbortSignal, 'timeout', () => new AbortController().signal);
    t.teardown(() => timeouts.mock.restore());
    const limits = { failedSignInsPerMinute: 3, delay: '1ms' };
    const { issuer, server } = await startWithFake(t, {}, { limits, server: { trustProxy: ['127.0.0.1'] } });
    server.clock.now = Date.now();
    const browser = new Browser();
    const { response, sent } = await begin(server, browser);
    const [cookie] = response.headers.getSetCookie()[0]!.split(';', 1);
    const answers: (() => void)[] = [];
    const tried = () => issuer.requests.filter((path) => path === '/token').length;
    issuer.answers.token = (_request, answer) => {
      answers.push(() => answer.writeHead(400).end('{"error":"invalid_grant"}'));
    };
    const callback = (address: string) =>
      server.fetch(`/console/sign-in/oidc/callback?code=c&state=${sent.get('state')}`, {
        token: null,
        headers: { cookie: cookie!, 'x-forwarded-for': address },
      });
    const all = Array.from({ length: 20 }, () => callback('10.0.0.1'));
    await until(() => answers.length > 0);
    const others = callback('10.0.0.2');
    await until(() => tried() >= 3);
    // A whole request later, no other one has been sent.
    t.is((await server.fetch('/v1/account')).status, 200);
    t.is(answers.length, 3, 'two of one address, and one of another');
    issuer.answers.token = (_request, answer) => answer.writeHead(400).end('{"error":"invalid_grant"}');
    for (const answer of answers) answer();
    const statuses = (await Promise.all(all)).map(({ status }) => status).toSorted((a, b) => a - b);
    t.deepEqual(statuses, [...Array<number>(3).fill(400), ...Array<number>(17).fill(429)]);
    t.is((await others).status, 400);
    t.is(tried(), 4);
    const lines = () => server.lines.filter((line) => line.includes('a person was not signed in'));
    t.is(lines().length, 1);
    server.clock.now += 10_000;
    t.is((await callback('10.0.0.3')).status, 400);
    t.is(lines().length, 2);
    t.regex(lines()[1]!, /"untold":3/);
  },
);

test('a link of another site neither begins a sign-in nor replaces a session', async (t) => {
  const { issuer, server } = await startWithFake(t);
  const link = '/console/sign-in/oidc?next=%2Fconsole%2Fconnect';
  for (const headers of [
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { referer: 'https://evil.example/page' },
    { referer: 'no address' },
  ] as Record<string, string>[]) {
    const response = await server.fetch(link, { token: null, headers });
    t.is(response.status, 200, JSON.stringify(headers));
    t.is(response.headers.get('set-cookie'), null);
    t.regex(await response.text(), /href="\/console\/sign-in\/oidc\?next=%2Fconsole%2Fconnect"/, 'the visitor decides');
  }
  t.is(issuer.requests.length, 0);
  for (const headers of [
    { 'sec-fetch-site': 'same-origin' },
    { 'sec-fetch-site': 'none' },
    { referer: `${server.url}/console/sign-in` },
  ] as Record<string, string>[]) {
    const response = await server.fetch(link, { token: null, headers });
    t.true(response.headers.get('location')?.startsWith(issuer.url), JSON.stringify(headers));
  }
  const visitor = await Visitor.signedIn(server);
  const { cookie } = visitor;
  const response = await visitor.fetch(link, { headers: { 'sec-fetch-site': 'none' } });
  t.is(response.headers.get('location'), '/console/connect', 'the visitor is signed in');
  t.is(visitor.cookie, cookie);
});

test('without a provider there is no link and no route', async (t) => {
  const server = await startTestServer(t);
  const visitor = new Browser();
  t.notRegex(await (await visitor.fetch(`${server.url}/console/sign-in`)).text(), /oidc/);
  t.is((await visitor.fetch(`${server.url}/console/sign-in/oidc`)).status, 404);
});
