import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { temporaryDatabase, dialects } from '../support/databases.ts';
import { createToken, databaseOf, failNewTokens, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer } from '../support/server.ts';
import { audience } from '../support/issuer.ts';
import { createRule, exchange, fromRepository, refusalOf, sendJson, startPair, type Json } from './support.ts';

const minute = 60_000;

for (const dialect of dialects) {
  test(`${dialect}: an identity token is exchanged for a token of 15 minutes with the scopes and names of the rule`, async (t) => {
    const { server, issuer } = await startPair(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.now();
    const rule = await createRule(server, { patterns: { containers: ['team/*'] } });
    const { status, body, headers } = await exchange(server, await issuer.sign(fromRepository));
    t.is(status, 200);
    t.is(headers.get('cache-control'), 'no-store');
    t.like(body, {
      issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      token_type: 'Bearer',
      expires_in: 900,
      scope: 'read write',
    });
    const token = body['access_token'] as string;
    const use = (path: string) => server.fetch(path, { token }).then(({ status: found }) => found);
    t.is(await use('/v2/team/app/tags/list'), 404);
    t.is(await use('/v2/other/app/tags/list'), 403, 'outside of the patterns');
    t.is(await use('/v1/tokens'), 403, 'not admin');

    const listed = async () => ((await (await server.fetch('/v1/tokens')).json()) as { items: Json[] }).items;
    const [given] = await listed();
    t.like(given, { name: 'main of app', publisher_id: rule['id'], scopes: ['read', 'write'] });
    const [event] = await auditOf(server, 'type=token.created&actor=main%20of%20app');
    t.deepEqual(event!.actor, { kind: 'rule', id: rule['id'] as string, name: 'main of app' });
    t.deepEqual(event!.details['identity'], { issuer: 'github', subject: 'repo:team/app' });

    server.clock.now += 15 * minute - 1000;
    t.is(await use('/v2/'), 200);
    server.clock.now += 1000;
    t.is(await use('/v2/'), 401);
    t.is((await listed()).length, 1, 'expired tokens of rules are not listed');
    await server.installation.core.identity.exchange.deleteExpired();
    t.is((await databaseOf(server).select('SELECT id FROM used_identity_tokens')).length, 1, 'kept for an hour longer');
    server.clock.now += 60 * minute;
    await server.installation.core.identity.exchange.deleteExpired();
    const left = await databaseOf(server).select('SELECT id FROM tokens WHERE publisher_id IS NOT NULL');
    t.deepEqual([left, await databaseOf(server).select('SELECT id FROM used_identity_tokens')], [[], []]);
    t.is((await server.fetch('/v1/tokens')).status, 200, 'tokens of people stay');
  });

  test(`${dialect}: an identity token is exchanged once, also by concurrent requests`, async (t) => {
    const { server, issuer } = await startPair(t, { database: { url: await temporaryDatabase(t, dialect) } });
    await createRule(server);
    const token = await issuer.sign(fromRepository);
    const all = await Promise.all(Array.from({ length: 5 }, () => exchange(server, token)));
    t.deepEqual(all.map(({ status }) => String(status)).sort(), ['200', '400', '400', '400', '400']);
    t.regex(await refusalOf(server, token), /^400 invalid_request: This identity token was exchanged before/);
    const same = await issuer.sign({ ...fromRepository, jti: 'same', ref: 'refs/heads/a' });
    t.is((await exchange(server, same)).status, 200);
    t.regex(await refusalOf(server, await issuer.sign({ ...fromRepository, jti: 'same' })), /exchanged before/);
  });

  test(`${dialect}: a rule is changed and deleted, and the tokens that it gave are refused at once`, async (t) => {
    const { server, issuer } = await startPair(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const { id } = await createRule(server);
    const give = async () => (await exchange(server, await issuer.sign(fromRepository))).body['access_token'] as string;
    const first = await give();
    t.is((await server.fetch('/v2/', { token: first })).status, 200);
    const changed = { name: 'renamed', issuer: 'github', claims: { repository_id: ['100', 7] }, scopes: ['read'] };
    const put = await sendJson(server, 'PUT', `/v1/publishers/${String(id)}`, changed);
    t.is(put.status, 200);
    t.like(await put.json(), { id, name: 'renamed', claims: { repository_id: ['100', '7'] }, scopes: ['read'] });
    t.is((await server.fetch('/v2/', { token: first })).status, 401);
    const second = await give();
    t.is((await server.fetch('/v2/', { token: second })).status, 200);
    t.is((await server.fetch(`/v1/publishers/${String(id)}`, { method: 'DELETE' })).status, 204);
    t.is((await server.fetch('/v2/', { token: second })).status, 401);
    t.regex(await refusalOf(server, await issuer.sign(fromRepository)), /No rule of this account matches/);
    t.is((await server.fetch(`/v1/publishers/${String(id)}`)).status, 404);
    const events = await auditOf(server, 'type=publisher.*');
    t.deepEqual(
      events.map(({ type, subject }) => [type, subject.name]),
      [
        ['publisher.created', 'main of app'],
        ['publisher.updated', 'renamed'],
        ['publisher.deleted', 'renamed'],
      ],
    );
  });
}

test('a token without jti is exchanged once, however its signature is written', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  const token = await issuer.sign({ ...fromRepository, jti: undefined });
  t.is((await exchange(server, token)).status, 200);
  // For each signature (r, s) of ECDSA, (r, n - s) is valid, too.
  const n = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
  const [signed, signature] = [token.slice(0, token.lastIndexOf('.')), token.slice(token.lastIndexOf('.') + 1)];
  const bytes = Buffer.from(signature, 'base64url');
  const s = n - BigInt(`0x${bytes.subarray(32).toString('hex')}`);
  const other = Buffer.concat([bytes.subarray(0, 32), Buffer.from(s.toString(16).padStart(64, '0'), 'hex')]);
  const twin = `${signed}.${other.toString('base64url')}`;
  t.regex(await refusalOf(server, twin), /exchanged before/);
});

test('tokens with an empty jti are different ones, each of which is exchanged once', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  for (const ref of ['refs/heads/a', 'refs/heads/b']) {
    const token = await issuer.sign({ ...fromRepository, ref, jti: '' });
    t.is((await exchange(server, token)).status, 200);
    t.regex(await refusalOf(server, token), /exchanged before/);
  }
});

test('the request of RFC 8693 is a form or JSON, and its errors are those of RFC 6749', async (t) => {
  const { server, issuer } = await startPair(t);
  const document = await OpenDocument.of(server);
  await createRule(server);
  const request = async () => ({
    grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
    subject_token: await issuer.sign(fromRepository),
    subject_token_type: 'urn:ietf:params:oauth:token-type:id_token',
  });
  const asJson = await sendJson(server, 'POST', '/v1/token-exchange', await request());
  t.is(asJson.status, 200);
  await document.read('POST /token-exchange', asJson);
  const narrowed = await exchange(server, await issuer.sign(fromRepository), { scope: 'read', audience });
  t.like(narrowed.body, { scope: 'read' });

  const cases: [Json, string][] = [
    [{ grant_type: 'password' }, 'unsupported_grant_type'],
    [{ grant_type: '' }, 'invalid_request'],
    [{ subject_token: '' }, 'invalid_request'],
    [{ subject_token_type: 'urn:ietf:params:oauth:token-type:saml2' }, 'invalid_request'],
    [{ requested_token_type: 'urn:ietf:params:oauth:token-type:refresh_token' }, 'invalid_request'],
    [{ actor_token: 'x' }, 'invalid_request'],
    [{ scope: 'read admin' }, 'invalid_scope'],
    [{ scope: 'everything' }, 'invalid_scope'],
    [{ audience: 'nobody' }, 'invalid_request'],
    [{ subject_token: 'no.jwt.here' }, 'invalid_request'],
  ];
  for (const [change, code] of cases) {
    const response = await sendJson(server, 'POST', '/v1/token-exchange', { ...(await request()), ...change });
    t.is(response.status, 400, JSON.stringify(change));
    const said = await document.read('POST /token-exchange', response);
    t.is(said['error'], code, JSON.stringify(change));
    if (change['scope'] === 'read admin') t.regex(String(said['error_description']), /Its rules give read, write\.$/);
  }
  const twice = new URLSearchParams({ ...(await request()), scope: 'read' });
  twice.append('scope', 'write');
  for (const [body, type] of [
    [twice.toString(), 'application/x-www-form-urlencoded'],
    ['[]', 'application/json'],
    ['{"grant_type":1}', 'application/json'],
    ['{', 'application/json'],
    ['x', 'text/plain'],
  ] as const) {
    const headers = { 'content-type': type };
    const response = await server.fetch('/v1/token-exchange', { method: 'POST', body, headers, token: null });
    t.is(response.status, 400, body);
    t.is(((await response.json()) as Json)['error'], 'invalid_request', body);
  }
  const large = await sendJson(server, 'POST', '/v1/token-exchange', { grant_type: 'x'.repeat(70_000) });
  t.is(large.status, 413);
  t.is(((await large.json()) as Json)['error'], 'invalid_request');
  const get = await server.fetch('/v1/token-exchange', { token: null });
  t.is(get.status, 405);
  t.is(get.headers.get('allow'), 'POST');
  t.is((await server.fetch('/v1/token-exchange/x', { method: 'POST', token: null })).status, 404);
});

test('the interface of nuget.org gives an API key, and errors that its action shows', async (t) => {
  const { server, issuer } = await startPair(t);
  const document = await OpenDocument.of(server);
  await createRule(server);
  const login = async (token: string | undefined, body: unknown) =>
    server.fetch('/v1/token-exchange/nuget', {
      method: 'POST',
      body: JSON.stringify(body),
      token: null,
      headers: { 'content-type': 'application/json', ...(token !== undefined && { authorization: `Bearer ${token}` }) },
    });
  const made = await login(await issuer.sign(fromRepository), { username: 'default', tokenType: 'ApiKey' });
  t.is(made.status, 200);
  const { apiKey, expires } = await document.read('POST /token-exchange/nuget', made);
  t.true(Date.parse(expires as string) > Date.now());
  const push = await server.fetch('/v3/push', {
    method: 'PUT',
    token: null,
    headers: { 'x-nuget-apikey': apiKey as string },
  });
  t.not(push.status, 401);
  t.not(push.status, 403);
  const cases: [string | undefined, unknown, number][] = [
    [undefined, { username: 'default', tokenType: 'ApiKey' }, 401],
    ['wrong', { username: 'default', tokenType: 'ApiKey' }, 401],
    [await issuer.sign(fromRepository), { username: 'nobody', tokenType: 'ApiKey' }, 401],
    [await issuer.sign(fromRepository), { username: 'default', tokenType: 'Cookie' }, 400],
    [await issuer.sign(fromRepository), 'text', 400],
  ];
  for (const [token, body, status] of cases) {
    const response = await login(token, body);
    t.is(response.status, status, JSON.stringify(body));
    t.regex((await document.read('POST /token-exchange/nuget', response))['error'] as string, /\w/);
  }
});

test('while the disk is full, both interfaces say so in their form', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server);
  // SQLITE_FULL.
  failNewTokens(server, Object.assign(new Error('database or disk is full'), { errcode: 13 }));
  const message = /^The disk of this server's database is full\./;
  const { status, body } = await exchange(server, await issuer.sign(fromRepository));
  t.is(status, 507);
  t.is(body['error'], 'temporarily_unavailable');
  t.regex(String(body['error_description']), message);
  const request = { username: 'default', tokenType: 'ApiKey' };
  const asked = await sendJson(server, 'POST', '/v1/token-exchange/nuget', request, await issuer.sign(fromRepository));
  t.is(asked.status, 507);
  t.regex(String(((await asked.json()) as Json)['error']), message);
});

test('an account has its own rules, and the audience of the request chooses it', async (t) => {
  const { server, issuer } = await startPair(t);
  const other = await tokenOf(server, ['admin', 'read'], 'other');
  await createRule(server, { name: 'of other', scopes: ['read'] }, other);
  t.regex(await refusalOf(server, await issuer.sign(fromRepository)), /No rule of this account matches/);
  const made = await exchange(server, await issuer.sign(fromRepository), { audience: 'other' });
  t.is(made.status, 200);
  const account = await server.fetch('/v1/account', { token: made.body['access_token'] as string });
  t.like(await account.json(), { name: 'other' });
  t.deepEqual(((await (await server.fetch('/v1/publishers')).json()) as Json)['items'], []);
});

test('a message says what did not match only to the project that the rule was written for', async (t) => {
  const { server, issuer } = await startPair(t);
  await createRule(server, {
    name: 'secret plan',
    claims: { repository_id: '100', ref: 'refs/tags/v*', environment: ['release', 'production'] },
  });
  const own = await refusalOf(server, await issuer.sign(fromRepository));
  t.regex(
    own,
    /The rule 'secret plan' does not match this token: the claim 'ref' is 'refs\/heads\/main', the claim 'environment' is missing/,
  );
  t.notRegex(own, /release|v\*/, 'the values of the rule stay secret');
  const foreign = await refusalOf(server, await issuer.sign({ ...fromRepository, repository_id: '101' }));
  t.notRegex(foreign, /secret plan|ref|environment/);
  const others = Array.from({ length: 7 }, (_, each) => `c${each}`);
  const many = { repository_id: '200', ...Object.fromEntries(others.map((each) => [each, 'a'])) };
  await createRule(server, { name: 'many claims', claims: many });
  const long = await refusalOf(
    server,
    await issuer.sign({ ...fromRepository, repository_id: '200', c0: 'x'.repeat(300) }),
  );
  const shown = others.slice(1, 5).map((each) => `the claim '${each}' is missing`);
  const first = `the claim 'c0' is '${'x'.repeat(100)}'`;
  t.true(long.endsWith(`does not match this token: ${[first, ...shown].join(', ')}.`), long);
  const right = { ...fromRepository, ref: 'refs/tags/v1.2', environment: 'production' };
  t.is((await exchange(server, await issuer.sign(right))).status, 200);
  for (const wrong of [
    { ref: 'refs/tags/w1' },
    { ref: 'x/refs/tags/v1' },
    { environment: 'Production' },
    { repository_id: 1000 },
  ]) {
    t.is((await exchange(server, await issuer.sign({ ...right, ...wrong }))).status, 400, JSON.stringify(wrong));
  }
});

test('claims inside of objects, lists, numbers and booleans are compared', async (t) => {
  const { server, issuer } = await startPair(t, {}, { name: 'cluster', kind: 'kubernetes' });
  await createRule(server, {
    issuer: 'cluster',
    claims: { 'kubernetes.io/serviceaccount/uid': 'u-1', groups: 'dev', 'https://x/n': '5', trusted: 'true' },
  });
  const claims = {
    'kubernetes.io': { namespace: 'ci', serviceaccount: { name: 'builder', uid: 'u-1' } },
    groups: ['ops', 'dev'],
    'https://x/n': 5,
    trusted: true,
  };
  t.is((await exchange(server, await issuer.sign(claims))).status, 200);
  for (const wrong of [
    { 'kubernetes.io': { serviceaccount: { uid: 'u-2' } } },
    { 'kubernetes.io': { serviceaccount: 'u-1' } },
    { 'kubernetes.io': null },
    { 'kubernetes.io/serviceaccount': { uid: 'u-1' }, 'kubernetes.io': undefined },
    { groups: ['ops', ['dev']] },
    { groups: { 0: 'dev' } },
    { trusted: false },
  ]) {
    t.is((await exchange(server, await issuer.sign({ ...claims, ...wrong }))).status, 400, JSON.stringify(wrong));
  }
});

test('all records of used identity tokens that have expired are deleted at once, with the expired tokens', async (t) => {
  const server = await startTestServer(t);
  const { token: model } = await createToken(server, ['read']);
  server.clock.now = 1_900_000_000_000;
  const { now } = server.clock;
  const numbers = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)';
  await databaseOf(server).transaction(async (tx) => {
    await tx.run(`INSERT INTO used_identity_tokens (id, expires_at) ${numbers} SELECT 'used-' || i, ? FROM n`, [now]);
    await tx.insertNew('used_identity_tokens', [{ id: 'later', expires_at: now + 1 }]);
    await tx.run(
      `INSERT INTO tokens (id, account_id, name, token_prefix, hash, scopes, created_at, expires_at, publisher_id)
       ${numbers} SELECT 'given-' || i, account_id, 'given', '', 'hash-' || i, 'read', created_at, ?, 'rule' FROM n, tokens
       WHERE tokens.id = ?`,
      [now, model.id],
    );
  });
  await server.installation.core.identity.exchange.deleteExpired();
  const left = await databaseOf(server).select<{ id: string }>('SELECT id FROM used_identity_tokens');
  t.deepEqual(
    left.map(({ id }) => id),
    ['later'],
  );
  t.deepEqual(await databaseOf(server).select("SELECT id FROM tokens WHERE publisher_id = 'rule'"), []);
});

test('a rule gives at most 1,000 valid tokens', async (t) => {
  const { server, issuer } = await startPair(t);
  const { id } = await createRule(server);
  const { token: model } = await createToken(server, ['read']);
  const expires = Date.now() + 10 * minute;
  await databaseOf(server).transaction((tx) =>
    tx.run(
      `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
       INSERT INTO tokens (id, account_id, name, token_prefix, hash, scopes, created_at, expires_at, publisher_id)
       SELECT 'filler-' || i, account_id, 'filler', '', 'hash-' || i, 'read', created_at, ?, ? FROM n, tokens WHERE tokens.id = ?`,
      [expires, id as string, model.id],
    ),
  );
  t.is((await exchange(server, await issuer.sign(fromRepository))).status, 200);
  const refused = await exchange(server, await issuer.sign(fromRepository));
  t.is(refused.status, 429);
  t.is(refused.body['error'], 'temporarily_unavailable');
  t.is(refused.headers.get('retry-after'), '60');
});

test('rules of the settings work as others, and are changed only there', async (t) => {
  const rules = [
    {
      name: 'of settings',
      issuer: 'github',
      claims: { repository_id: 100 },
      scopes: ['read'],
      packages: ['Contoso.*'],
    },
    { name: 'second', issuer: 'github', claims: { repository_id: 200 }, scopes: ['read'] },
  ];
  const { server, issuer } = await startPair(t, { publishers: rules });
  const document = await OpenDocument.of(server);
  const [listed, second, ...more] = (await document.read('GET /publishers', await server.fetch('/v1/publishers')))[
    'items'
  ] as Json[];
  t.deepEqual(more, []);
  t.like(second, { name: 'second', patterns: null });
  for (const each of [listed, second]) t.regex(String(each!['id']), /^settings-[0-9a-f]{32}$/);
  t.not(listed!['id'], second!['id']);
  t.like(listed, {
    name: 'of settings',
    source: 'settings',
    created_at: null,
    patterns: { packages: ['Contoso.*'], containers: [] },
  });
  const made = await exchange(server, await issuer.sign(fromRepository));
  t.is(made.status, 200);
  const path = `/v1/publishers/${String(listed!['id'])}`;
  t.is((await server.fetch(path)).status, 200);
  t.is((await server.fetch(path, { method: 'DELETE' })).status, 400);
  const body = { name: 'x', issuer: 'github', claims: { repository_id: '1' }, scopes: ['read'] };
  t.is((await sendJson(server, 'PUT', path, body)).status, 400);
  t.is((await sendJson(server, 'POST', '/v1/publishers', { ...body, name: 'of settings' })).status, 409);
  t.is((await sendJson(server, 'POST', '/v1/publishers', body)).status, 201);
  const other = await tokenOf(server, ['admin'], 'other');
  t.is((await sendJson(server, 'POST', '/v1/publishers', { ...body, name: 'of settings' }, other)).status, 201);
  const theirs = (await (await server.fetch('/v1/publishers', { token: other })).json()) as { items: Json[] };
  t.deepEqual(
    theirs.items.map(({ source }) => source),
    ['api'],
    'another account has none of them',
  );
});

test('a wrong rule of the settings stops the start with one line', async (t) => {
  const trustedIssuers = [{ name: 'github', audience }];
  const rule = { name: 'r', issuer: 'github', claims: { repository_id: '1' }, scopes: ['read'] };
  for (const [change, message] of [
    [{ issuer: 'gitlab' }, /^publishers\.0: The setting trustedIssuers has no issuer "gitlab"/],
    [{ scopes: ['root'] }, /^publishers\.0: There is no scope "root"/],
    [{ claims: { repository: 'team/app' } }, /^publishers\.0: Add one of the claims repository_id/],
    [{ packages: ['a b'] }, /^publishers\.0: A pattern has/],
  ] as const) {
    await t.throwsAsync(startTestServer(t, { trustedIssuers, publishers: [{ ...rule, ...change }] }), { message });
  }
  await t.throwsAsync(startTestServer(t, { trustedIssuers, publishers: [rule, rule] }), {
    message: /two rules with this name/,
  });
  const publishers = [rule, { ...rule, account: 'other' }];
  await t.notThrowsAsync(startTestServer(t, { trustedIssuers, publishers }), 'each account has its own names');
});
