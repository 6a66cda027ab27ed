import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import test from 'ava';
import { exportJWK, exportSPKI, generateKeyPair, importJWK, type CryptoKey } from 'jose';
import { auditOf } from '../support/audit.ts';
import { rowsOf } from '../support/inside.ts';
import { audience, startIssuer } from '../support/issuer.ts';
import { within } from '../support/until.ts';
import { createRule, exchange, fromRepository, refusalOf, startPair } from './support.ts';

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
    ['no JSON', { keys: (_request, response) => response.end('<html>') }, /no JSON/],
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
  const waiting = Promise.all(tokens.map((token) => exchange(server, token)));
  t.is((await within(server.fetch('/v1/account'), 2000)).status, 200);
  const answers = await within(waiting, 9000);
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
