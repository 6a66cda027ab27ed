import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import test from 'ava';
import { exportJWK, exportSPKI, generateKeyPair, importJWK, type CryptoKey } from 'jose';
import { pino } from 'pino';
import { IssuerKeys } from '../../src/identity/issuer-keys.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf, rowsOf } from '../support/inside.ts';
import { audience, startIssuer } from '../support/issuer.ts';
import { longestAllowed, longestTurn, longestTurnOf } from '../support/longest-turn.ts';
import { within } from '../support/until.ts';
import { createRule, exchange, fromRepository, refusalOf, startPair } from './support.ts';

// In a process of its own: it measures the process.

const many = <T>(count: number, make: (index: number) => T) => Array.from({ length: count }, (_, index) => make(index));

const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');

test('tokens that the issuer did not sign are refused', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  const good = await issuer.sign(fromRepository);
  const [header, payload, signature] = good.split('.') as [string, string, string];
  const publicKey = (await importJWK(issuer.keys[0]!, 'ES256', { extractable: true })) as CryptoKey;
  const asSecret = new TextEncoder().encode(await exportSPKI(publicKey));
  const stranger = await generateKeyPair('ES256');
  const jwk = await exportJWK(stranger.publicKey);
  const own = { ...fromRepository, repository_id: '100' };
  const cases: Record<string, [string, RegExp]> = {
    'alg none': [`${encoded({ alg: 'none', kid: 'first' })}.${payload}.`, /algorithm .* not allowed/],
    'alg none in other letters': [`${encoded({ alg: 'nOnE', kid: 'first' })}.${payload}.`, /algorithm .* not allowed/],
    'HS256 with the public key': [
      await issuer.sign(own, { header: { alg: 'HS256' }, key: asSecret }),
      /algorithm .* not allowed/,
    ],
    'another key': [await issuer.sign(own, { key: stranger.privateKey }), /signature .* not valid/],
    'another key, which the header has': [
      await issuer.sign(own, { key: stranger.privateKey, header: { jwk } }),
      /signature .* not valid/,
    ],
    'an address of keys in the header': [
      await issuer.sign(own, { key: stranger.privateKey, header: { jku: 'http://127.0.0.1:1/keys', kid: 'theirs' } }),
      /has no key/,
    ],
    'a changed claim': [
      `${header}.${encoded({ ...JSON.parse(Buffer.from(payload, 'base64url').toString()), sub: 'other' })}.${signature}`,
      /signature .* not valid/,
    ],
    'an unknown critical header': [
      `${encoded({ alg: 'ES256', kid: 'first', crit: ['x'], x: 1 })}.${payload}.${signature}`,
      /signature .* not valid/,
    ],
    'no key ID': [await issuer.sign(own, { header: { kid: undefined } }), /has no key/],
    'no token': ['a.b.c', /no signed JWT/],
    'claims that are a list': [`${header}.${encoded([1])}.${signature}`, /no signed JWT/],
    'a huge token': ['a'.repeat(20_000), /more than 16384 characters/],
  };
  for (const [name, [token, message]] of Object.entries(cases)) t.regex(await refusalOf(server, token), message, name);
  t.is((await exchange(server, good)).status, 200, 'the token itself is good');
  t.is((await rowsOf(server, 'SELECT id FROM used_identity_tokens')).length, 1, 'refused tokens leave no rows');
});

test('issuer, audience and times must be right, with a tolerance of 30 seconds', async (t) => {
  const { server, issuer } = await startPair(t);
  const other = await startIssuer(t);
  await createRule(server);
  server.clock.now = 1_800_000_000_000;
  const now = 1_800_000_000;
  const cases: [string, object, RegExp | undefined][] = [
    ['another issuer', { iss: other.url }, /does not trust the issuer/],
    ['an issuer with a slash', { iss: `${issuer.url}/` }, /does not trust the issuer/],
    ['a list of issuers', { iss: [issuer.url] }, /does not trust the issuer/],
    ['no issuer', { iss: undefined }, /does not trust the issuer/],
    ['another audience', { aud: `${audience}/` }, /audience of the token is wrong.*https:\/\/hub\.example/],
    ['no audience', { aud: undefined }, /audience of the token is wrong/],
    ['two audiences', { aud: [audience, 'https://other.example'] }, /exactly one audience/],
    ['the same audience twice', { aud: [audience, audience] }, /exactly one audience/],
    ['a list of one audience', { aud: [audience] }, undefined],
    ['expired', { exp: now - 31 }, /has expired/],
    ['expired within the tolerance', { exp: now - 29 }, undefined],
    ['no expiry', { exp: undefined }, /claim 'exp'/],
    ['an expiry that is text', { exp: '9999999999' }, /claim 'exp'/],
    ['not valid yet', { nbf: now + 31 }, /not valid yet/],
    ['valid within the tolerance', { nbf: now + 29 }, undefined],
    ['from the future', { iat: now + 31 }, /not valid yet/],
    ['no time of issue', { iat: undefined }, /claim 'iat'|not valid yet/],
    ['issued two days ago', { iat: now - 2 * 86_400 }, /has expired/],
    ['valid for two days', { exp: now + 2 * 86_400 }, /more than 24 hours/],
    ['of pull_request_target', { event_name: 'pull_request_target' }, /pull_request_target/],
  ];
  t.is((await exchange(server, await issuer.sign(fromRepository))).status, 200, 'the keys are known');
  for (const [name, claims, message] of cases) {
    const { status, body } = await exchange(server, await issuer.sign({ ...fromRepository, ...claims }));
    if (message) t.regex(String(body['error_description']), message, name);
    t.is(status, message ? 400 : 200, name);
  }
  t.deepEqual(other.requests, [], 'only issuers of the settings are asked');
});

test('keys are fetched when they are needed, and again for an unknown key at most once a minute', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  server.clock.now = Date.now();
  const fetches = () => issuer.requests.filter((path) => path === '/keys').length;
  t.is(fetches(), 0, 'none at the start');
  const many = await Promise.all(
    Array.from({ length: 10 }, async () => exchange(server, await issuer.sign(fromRepository))),
  );
  t.true(many.every(({ status }) => status === 200));
  t.is(fetches(), 1);
  const flood = async () => {
    const tokens = Array.from({ length: 20 }, (_, index) =>
      issuer.sign(fromRepository, { header: { kid: `k${index}` } }),
    );
    for (const token of await Promise.all(tokens)) await refusalOf(server, token);
  };
  await flood();
  t.is(fetches(), 1, 'they are newer than a minute');
  server.clock.now += 60_000;
  await flood();
  t.is(fetches(), 2);

  const next = await generateKeyPair('ES256');
  issuer.keys = [{ ...(await exportJWK(next.publicKey)), kid: 'next', alg: 'ES256' }];
  server.clock.now += 60_000;
  const renewed = () => issuer.sign(fromRepository, { header: { kid: 'next' }, key: next.privateKey });
  t.is((await exchange(server, await renewed())).status, 200, 'a new key works at once');
  t.regex(await refusalOf(server, await issuer.sign(fromRepository)), /has no key/, 'a removed key does not');

  issuer.answers.keys = (_request, response) => response.writeHead(500).end();
  server.clock.now += 11 * 60_000;
  t.is((await exchange(server, await renewed())).status, 200, 'known keys are used while the issuer fails');
  server.clock.now += 60 * 60_000;
  const failed = await exchange(server, await renewed());
  t.is(failed.status, 503, 'but not for ever');
  t.is(failed.body['error'], 'temporarily_unavailable');
  t.is(failed.headers.get('retry-after'), '5');
  const before = fetches();
  for (let index = 0; index < 10; index += 1) await exchange(server, await renewed());
  t.is(fetches(), before, 'a failure is not repeated for 5 seconds');
});

const place = { kind: 'other', allowPrivateNetwork: false } as const;

/** Keys of an issuer whose documents these are, with their clock and the addresses that were asked for. */
function keysWith(documents: (url: URL) => unknown, issuer: object) {
  const clock = { now: 0 };
  const asked: string[] = [];
  const read = async (url: URL) => {
    asked.push(url.href);
    const answer = await documents(url);
    return answer instanceof Response ? answer : Response.json(answer);
  };
  const settings = { name: 'ci', issuer: 'https://ci.example', audience, ...place, ...issuer };
  const keys = new IssuerKeys(settings, read, pino({ level: 'silent' }), () => clock.now);
  const find = (kid = 'first', mayFetch = true) =>
    keys.keyFor({ alg: 'ES256', kid }, { payload: '', signature: '' }, mayFetch);
  return { clock, asked, find };
}

test('the documents of an issuer are below its address, and its keys are used for 10 minutes, or for an hour while it fails', async (t) => {
  const { publicKey } = await generateKeyPair('ES256');
  const jwk = { ...(await exportJWK(publicKey)), kid: 'first', alg: 'ES256' };
  let fails = false;
  for (const issuer of ['https://ci.example', 'https://ci.example/realm/']) {
    const { clock, asked, find } = keysWith(
      ({ pathname }) => {
        if (fails) throw new Error('no answer');
        return pathname === '/keys' ? { keys: [jwk] } : { issuer, jwks_uri: 'https://keys.example/keys' };
      },
      { issuer },
    );
    const discovery = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
    await find();
    t.deepEqual(asked.splice(0), [discovery, 'https://keys.example/keys']);
    clock.now = 600_000 - 1;
    await find();
    t.deepEqual(asked, []);
    clock.now = 600_000;
    await find();
    t.is(asked.splice(0).length, 2);
    fails = true;
    clock.now += 3_600_000 - 1;
    await find();
    await find('first', false);
    t.deepEqual(asked.splice(0), [discovery]);
    clock.now += 1;
    await t.throwsAsync(find('first', false), { name: 'Unauthorized' });
    await t.throwsAsync(find(), { name: 'UpstreamUnavailable' });
    clock.now += 5000 - 2;
    await t.throwsAsync(find(), { name: 'UpstreamUnavailable' });
    t.deepEqual(asked, [], 'a failure is not repeated for 5 seconds');
    clock.now += 1;
    await t.throwsAsync(find(), { name: 'UpstreamUnavailable' });
    t.deepEqual(asked, [discovery]);
    fails = false;
  }
});

test('keys are read at an address that is encrypted, or of a private network', async (t) => {
  const { publicKey } = await generateKeyPair('ES256');
  const jwk = { ...(await exportJWK(publicKey)), kid: 'first', alg: 'ES256' };
  for (const [jwksUri, allowPrivateNetwork, isRead] of [
    ['https://keys.example/keys', false, true],
    ['http://keys.example/keys', false, false],
    ['http://keys.example/keys', true, true],
    ['xhttp://keys.example/keys', true, false],
    ['httpsx://keys.example/keys', false, false],
    ['ftp://keys.example/keys', true, false],
    ['/keys', true, false],
    [undefined, true, false],
  ] as const) {
    const { find } = keysWith(
      ({ pathname }) =>
        pathname.endsWith('/keys') ? { keys: [jwk] } : { issuer: 'https://ci.example', jwks_uri: jwksUri },
      { allowPrivateNetwork },
    );
    if (isRead) await t.notThrowsAsync(find(), jwksUri);
    else
      await t.throwsAsync(
        find(),
        { message: /^The issuer "ci" has no https address of its keys\. Try again\.$/ },
        jwksUri,
      );
  }
});

test('what is no JSON is refused with the beginning of its address', async (t) => {
  const issuer = 'https://ci.example';
  const address = `${issuer}/${'x'.repeat(600)}`;
  const { find } = keysWith(
    ({ href }) => (href === address ? new Response('<html>') : { issuer, jwks_uri: address }),
    {},
  );
  await t.throwsAsync(find(), { message: `The issuer "ci" sent no JSON for ${address.slice(0, 500)}. Try again.` });
});

test('all jobs with a new key wait while it is fetched', async (t) => {
  const pairs = await Promise.all(['first', 'next'].map(async (kid) => [kid, await generateKeyPair('ES256')] as const));
  const [first, next] = await Promise.all(
    pairs.map(async ([kid, { publicKey }]) => ({ ...(await exportJWK(publicKey)), kid, alg: 'ES256' })),
  );
  const issuer = { name: 'ci', issuer: 'https://ci.example', audience, ...place };
  const published = [first];
  let held = Promise.resolve();
  const documents = async ({ pathname }: URL) => {
    await held;
    const found = { issuer: issuer.issuer, jwks_uri: `${issuer.issuer}/keys` };
    return Response.json(pathname === '/keys' ? { keys: published } : found);
  };
  let now = 0;
  const keys = new IssuerKeys(issuer, documents, pino({ level: 'silent' }), () => now);
  const find = (kid: string) => keys.keyFor({ alg: 'ES256', kid }, { payload: '', signature: '' }, true);
  await find('first');
  now += 60_000;
  published.push(next);
  const answer = Promise.withResolvers<void>();
  held = answer.promise;
  const wanted = ['next', 'next', 'next'].map(find);
  answer.resolve();
  const found = await Promise.allSettled(wanted);
  t.deepEqual(
    found.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'fulfilled'],
  );
});

test('a new key that could not be fetched is no unknown key, and is fetched again soon', async (t) => {
  const { publicKey } = await generateKeyPair('ES256');
  const jwk = { ...(await exportJWK(publicKey)), alg: 'ES256' };
  const published = [{ ...jwk, kid: 'first' }];
  let fails = false;
  const { clock, asked, find } = keysWith(({ pathname }) => {
    if (fails) throw new Error('no answer');
    return pathname === '/keys'
      ? { keys: published }
      : { issuer: 'https://ci.example', jwks_uri: 'https://ci.example/keys' };
  }, {});
  await find();
  published.push({ ...jwk, kid: 'next' });
  fails = true;
  clock.now = 60_000;
  asked.length = 0;
  for (const [passed, fetches] of [
    [0, 1],
    [4999, 1],
    [1, 2],
  ] as const) {
    clock.now += passed;
    await t.throwsAsync(find('next'), { name: 'UpstreamUnavailable' });
    t.is(asked.length, fetches, String(clock.now));
  }
  await t.notThrowsAsync(find(), 'a known key works meanwhile');
  fails = false;
  clock.now += 5000;
  await t.notThrowsAsync(find('next'));
  asked.length = 0;
  clock.now += 59_999;
  await t.throwsAsync(find('unknown'), { name: 'JWKSNoMatchingKey' });
  t.deepEqual(asked, [], 'after a success an unknown key is looked for once a minute');
});

test('keys are not fetched again for a token that would be refused anyway, or whose key ID has several keys', async (t) => {
  const { publicKey } = await generateKeyPair('ES256');
  const jwk = { ...(await exportJWK(publicKey)), kid: 'first', alg: 'ES256' };
  const issuer = 'https://ci.example';
  const { clock, asked, find } = keysWith(
    ({ pathname }) => (pathname === '/keys' ? { keys: [jwk, jwk] } : { issuer, jwks_uri: `${issuer}/keys` }),
    {},
  );
  const ambiguous = { name: 'JWKSMultipleMatchingKeys' };
  await t.throwsAsync(find(), ambiguous);
  clock.now = 60_000;
  asked.length = 0;
  await t.throwsAsync(find(), ambiguous);
  await t.throwsAsync(find('unknown', false), { name: 'JWKSNoMatchingKey' });
  t.deepEqual(asked, []);
});

test('a signature by each algorithm with a private key counts, and an issuer has at most 100 keys', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  server.clock.now = Date.now();
  const rsa = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'];
  const algorithms = [...rsa, 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'];
  const pairs = await Promise.all(algorithms.map((algorithm) => generateKeyPair(algorithm)));
  const keys = await Promise.all(
    pairs.map(async ({ publicKey }, index) => ({ ...(await exportJWK(publicKey)), kid: algorithms[index]! })),
  );
  const others = (count: number) =>
    Array.from({ length: count }, (_, index) => ({ ...keys[0]!, kid: `other-${index}` }));
  const tokens = await Promise.all(
    algorithms.map((alg, index) =>
      issuer.sign(fromRepository, { header: { alg, kid: alg }, key: pairs[index]!.privateKey }),
    ),
  );
  issuer.keys = [...keys, ...others(101 - keys.length)];
  t.is((await exchange(server, tokens[0]!)).status, 503);
  server.clock.now += 60_000;
  issuer.keys.pop();
  for (const [index, token] of tokens.entries()) t.is((await exchange(server, token)).status, 200, algorithms[index]);
});

test('huge, slow, redirecting and wrong documents of an issuer are refused', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  server.clock.now = Date.now();
  const secret = createServer((_request, response) => response.end('{"keys":[]}'));
  let reached = 0;
  secret.on('request', () => (reached += 1));
  await new Promise<void>((resolve) => secret.listen(0, '127.0.0.1', resolve));
  t.teardown(() => secret.close());
  const elsewhere = `http://127.0.0.1:${(secret.address() as AddressInfo).port}/`;
  const discovery = (change: object) => ({
    discovery: (_request: unknown, response: { end(text: string): unknown }) =>
      response.end(JSON.stringify({ issuer: issuer.url, jwks_uri: `${issuer.url}/keys`, ...change })),
  });
  const cases: [string, typeof issuer.answers, RegExp][] = [
    [
      'huge',
      { keys: (_request, response) => response.end(`{"keys":[],"x":"${'x'.repeat(300_000)}"}`) },
      /262144 bytes/,
    ],
    [
      'endless',
      {
        keys: (request, response) => {
          const more = () => void response.write('x'.repeat(65_536), () => !request.destroyed && more());
          more();
        },
      },
      /262144 bytes/,
    ],
    [
      'too many keys',
      { keys: (_request, response) => response.end(JSON.stringify({ keys: Array(101).fill(issuer.keys[0]) })) },
      /100 keys/,
    ],
    ['no keys', { keys: (_request, response) => response.end('{}') }, /100 keys/],
    ['an empty list of keys', { keys: (_request, response) => response.end('{"keys":[]}') }, /100 keys/],
    ['no JSON', { keys: (_request, response) => response.end('<html>') }, /no JSON/],
    ['keys that are null', { keys: (_request, response) => response.end('null') }, /no JSON/],
    ['a null discovery document', { discovery: (_request, response) => response.end('null') }, /no JSON/],
    [
      'a redirect',
      { keys: (_request, response) => response.writeHead(302, { location: elsewhere }).end() },
      /answered 302/,
    ],
    [
      'a redirect of the discovery document',
      { discovery: (_request, response) => response.writeHead(307, { location: elsewhere }).end() },
      /answered 307/,
    ],
    ['another issuer', discovery({ issuer: 'https://other.example' }), /another issuer/],
    ['keys at the metadata service', discovery({ jwks_uri: 'http://169.254.169.254/latest' }), /never allowed/],
    ['keys in a file', discovery({ jwks_uri: 'file:///etc/passwd' }), /address of its keys/],
    [
      'keys at a long address that has none',
      discovery({ jwks_uri: `${issuer.url}/${'x'.repeat(600)}` }),
      /answered 404 for http\S{496}\. Try again/,
    ],
  ];
  for (const [name, answers, message] of cases) {
    issuer.answers = answers;
    const { status, body } = await exchange(server, await issuer.sign(fromRepository));
    t.is(status, 503, name);
    t.regex(String(body['error_description']), message, name);
    server.clock.now += 6000;
  }
  t.is(reached, 0, 'no redirect is followed');
  issuer.answers = {};
  t.is((await exchange(server, await issuer.sign(fromRepository))).status, 200, 'then it works again');
});

test('an issuer that does not answer delays no other request, and fails after 5 seconds', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  issuer.answers.keys = (_request, response) => void response.writeHead(200).write('{"keys":');
  const tokens = await Promise.all(Array.from({ length: 10 }, () => issuer.sign(fromRepository)));
  let answered = 0;
  const waiting = Promise.all(tokens.map((token) => exchange(server, token).finally(() => (answered += 1))));
  t.is((await within(server.fetch('/v1/account'))).status, 200);
  t.is(answered, 0, 'the other request did not wait for the issuer');
  const answers = await within(waiting);
  for (const { status } of answers) t.is(status, 503);
  t.is(issuer.requests.filter((path) => path === '/keys').length, 1, 'they wait for one request');
});

test('an issuer with a private address needs the setting, and plain HTTP too', async (t) => {
  const issuer = await startIssuer(t);
  const trusted = { ...issuer.trusted({ allowPrivateNetwork: false }), issuer: 'https://127.0.0.1:1' };
  const { server } = await startPair(t, { trustedIssuers: [trusted] });
  await createRule(server);
  const refused = await refusalOf(server, await issuer.sign({ ...fromRepository, iss: 'https://127.0.0.1:1' }));
  t.regex(refused, /^503 temporarily_unavailable: The issuer 'github' .*private address/);
});

test('failed exchanges of an address are limited as failed sign-ins, and recorded', async (t) => {
  const { server, issuer } = await startPair(t, { limits: { failedSignInsPerMinute: 3, delay: '1ms' } });
  await createRule(server);
  server.clock.now = Date.now();
  const statuses: number[] = [];
  for (let index = 0; index < 6; index += 1) statuses.push((await exchange(server, 'a.b.c')).status);
  t.deepEqual(statuses, [400, 400, 400, 429, 429, 429]);
  const refused = await exchange(server, 'a.b.c');
  t.is(refused.body['error'], 'temporarily_unavailable');
  t.regex(refused.headers.get('retry-after')!, /^\d+$/);
  t.is((await exchange(server, await issuer.sign(fromRepository))).status, 200, 'a good token is not refused');
  server.clock.now += 60_000;
  await server.installation.core.repeatedEvents.flush();
  const [event] = await auditOf(server, 'type=sign_in.failed');
  t.is(event!.details['count'], 7);
});

test('no keys are fetched for a token whose audience or times are wrong', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  const past = Math.floor(Date.now() / 1000) - 1000;
  for (const wrong of [
    { aud: 'other' },
    { aud: undefined },
    { exp: past },
    { exp: 'soon' as never },
    { iat: past + 10_000 },
    { iat: past - 100_000 },
    { iat: undefined },
  ]) {
    const refused = await refusalOf(server, await issuer.sign({ ...fromRepository, ...wrong }));
    t.regex(refused, /^400 invalid_request: The token has expired, or its audience or times are wrong/);
  }
  t.deepEqual(issuer.requests, []);
  t.is((await exchange(server, await issuer.sign(fromRepository))).status, 200);
  t.regex(await refusalOf(server, await issuer.sign({ ...fromRepository, aud: 'other' })), /audience of the token/);
  const unknown = await issuer.sign({ ...fromRepository, exp: past }, { header: { kid: 'unknown' } });
  const asked = issuer.requests.length;
  await refusalOf(server, unknown);
  t.is(issuer.requests.length, asked);
});

test('keys are fetched for a token whose times are right within the tolerance', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  server.clock.now = 1_800_000_000_000;
  for (const [exp, iat] of [
    [-29, -100],
    [300, 30],
    [300, -86_430],
  ] as const) {
    // The known keys are too old.
    server.clock.now += 61 * 60_000;
    const now = server.clock.now / 1000;
    const claims = { ...fromRepository, exp: now + exp, iat: now + iat, nbf: undefined };
    const { status, body } = await exchange(server, await issuer.sign(claims));
    t.is(status, 200, `${exp} ${iat}: ${JSON.stringify(body)}`);
  }
  t.is(issuer.requests.length, 6);
});

test('failed exchanges of an identity are limited, whatever its tokens and addresses are', async (t) => {
  const limits = { failedSignInsPerMinute: 3, delay: '1ms' };
  const { server, issuer } = await startPair(t, { limits, server: { trustProxy: ['127.0.0.1'] } });
  await createRule(server);
  server.clock.now = Date.now();
  const from = async (address: string, claims: object) => {
    const response = await server.fetch('/v1/token-exchange', {
      method: 'POST',
      token: null,
      headers: { 'x-forwarded-for': address },
      body: new URLSearchParams({
        grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
        subject_token: await issuer.sign({ ...fromRepository, ...claims }),
        subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
      }),
    });
    return response.status;
  };
  const stranger = { repository_id: '666', sub: 'repo:stranger/app' };
  const statuses: number[] = [];
  for (let index = 0; index < 6; index += 1) statuses.push(await from(`10.0.0.${index}`, stranger));
  t.deepEqual(statuses, [400, 400, 400, 429, 429, 429]);
  for (let index = 0; index < 6; index += 1) {
    t.is(await from('10.0.1.1', {}), 200, 'another identity, whose exchanges succeed');
  }
  // An empty subject is no identity, which many could share, nor is none.
  for (const sub of ['', undefined]) {
    for (let index = 0; index < 4; index += 1) t.is(await from(`10.0.2.${index}`, { ...stranger, sub }), 400);
    t.is(await from('10.0.2.4', { sub }), 200);
  }
});

for (const dialect of dialects) {
  test(`${dialect}: the largest rules hold no other request, and are read once`, async (t) => {
    const { server, issuer } = await startPair(t, { database: { url: await temporaryDatabase(t, dialect) } });
    await createRule(server, { name: 'the last' });
    const database = databaseOf(server);
    const [stored] = await database.select('SELECT * FROM publishers');
    // An older version accepted 60 kB in each rule.
    const values = many(7, () => `${'*a'.repeat(240)}*b*a`);
    const claims = JSON.stringify(Object.fromEntries(many(20, (n) => [`claim${n}`, values])));
    t.true(claims.length > 60_000);
    const rows = many(198, (n) => ({ ...stored!, id: `rule-${n}`, name: `rule ${n}`, claims, created_at: n }));
    for (let from = 0; from < rows.length; from += 20) {
      await database.transaction((tx) => tx.insertNew('publishers', rows.slice(from, from + 20)));
    }
    const long = Object.fromEntries(many(12, (n) => [`claim${n}`, 'a'.repeat(900)]));
    const tokens = await Promise.all(many(11, () => issuer.sign({ ...fromRepository, ...long })));
    t.log('with rules that were not read yet', await longestTurnOf(() => exchange(server, tokens.pop()!)));
    const found: number[] = [];
    const longest = await longestTurn(async () => found.push((await exchange(server, tokens.pop()!)).status));
    t.deepEqual([...new Set(found)], [200]);
    t.true(longest < longestAllowed, `${longest} ms`);
  });
}

test('an issuer that fails is logged once in 10 seconds, whatever clients send', async (t) => {
  const { server, issuer } = await startPair(t);
  server.clock.now = Date.now();
  issuer.answers.keys = (_request, response) => response.writeHead(500).end();
  const lines = () => server.lines.filter((line) => line.includes('the keys of an issuer were not fetched')).length;
  const send = async () => {
    for (let index = 0; index < 5; index += 1) {
      t.is((await exchange(server, await issuer.sign({ ...fromRepository, n: index }))).status, 503);
    }
  };
  await send();
  const [line, ...more] = server.lines.filter((each) => each.includes('answered 500'));
  t.like(JSON.parse(line!), { upstream: 'github', subject: issuer.url });
  t.deepEqual(more, []);
  server.clock.now += 5000;
  await send();
  t.is(lines(), 1);
  server.clock.now += 5000;
  await send();
  t.is(lines(), 2);
});
