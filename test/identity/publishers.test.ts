import test from 'ava';
import { createToken, databaseOf, defaultAccountOf, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { createRule, exchange, fromRepository, sendJson, startPair, type Json } from './support.ts';

test('a rule is checked: issuer, claims that are IDs, scopes and patterns', async (t) => {
  const { server, issuer } = await startPair(t, {
    trustedIssuers: [
      { name: 'github', audience: 'a' },
      { name: 'lab', kind: 'gitlab', issuer: 'https://lab.example', audience: 'a' },
      { name: 'other', issuer: 'https://other.example', audience: 'a' },
    ],
  });
  t.truthy(issuer);
  const document = await OpenDocument.of(server);
  const id = { repository_id: '1' };
  const cases: [Json, RegExp][] = [
    [{ name: ' ' }, /name/],
    [{ name: 'x'.repeat(201) }, /name/],
    [{ issuer: 'nowhere' }, /It has: github, lab, other/],
    [{ claims: {} }, /1 to 20 claims/],
    [{ claims: Object.fromEntries(Array.from({ length: 21 }, (_, index) => [`c${index}`, '1'])) }, /1 to 20 claims/],
    [{ claims: { repository: 'team/app' } }, /Add one of the claims repository_id/],
    [{ claims: { repository_id: '*' } }, /is an ID/],
    [{ claims: { repository_id: '1*' } }, /is an ID/],
    [{ claims: { repository_id: 'one' } }, /"one" never matches/],
    [{ claims: { ...id, ref: '**' } }, /every value/],
    [{ claims: { ...id, ref: '' } }, /1 to 500 characters/],
    [{ claims: { ...id, ref: 'x'.repeat(501) } }, /1 to 500 characters/],
    [{ claims: { ...id, ref: [] } }, /1 to 20 values/],
    [{ claims: { ...id, ref: Array(21).fill('x') } }, /1 to 20 values/],
    [{ claims: { ...id, sub: 'repo:team/app' } }, /cannot name the claim "sub"/],
    [{ claims: { ...id, iss: 'https://evil.example' } }, /cannot name the claim "iss"/],
    [{ issuer: 'lab', claims: id }, /project_id, namespace_id/],
    [{ scopes: [] }, /scopes/],
    [{ scopes: ['root'] }, /scopes/],
    [{ patterns: {} }, /pattern/],
    [{ more: 1 }, /more/],
  ];
  const good = { name: 'r', issuer: 'github', claims: id, scopes: ['read'] };
  for (const [change, message] of cases) {
    const response = await sendJson(server, 'POST', '/v1/publishers', { ...good, ...change });
    t.is(response.status, 400, JSON.stringify(change));
    t.regex((await document.read('POST /publishers', response))['detail'] as string, message, JSON.stringify(change));
  }
  const proto = await server.fetch('/v1/publishers', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"name":"r","issuer":"github","claims":{"repository_id":"1","__proto__":["x"]},"scopes":["read"]}',
  });
  t.true([400, 201].includes(proto.status));
  t.is((await sendJson(server, 'POST', '/v1/publishers', { ...good, name: 'one' })).status, 201);
  t.is((await sendJson(server, 'POST', '/v1/publishers', { ...good, name: 'x'.repeat(200) })).status, 201);
  const twin = await sendJson(server, 'POST', '/v1/publishers', { ...good, name: 'one' });
  t.is(twin.status, 409);
  await document.read('POST /publishers', twin);
  const free = { issuer: 'other', claims: { sub: 'app-*' }, name: 'free' };
  t.is((await sendJson(server, 'POST', '/v1/publishers', { ...good, ...free })).status, 201);
  const issuers = await document.read('GET /trusted-issuers', await server.fetch('/v1/trusted-issuers'));
  t.like((issuers['items'] as Json[])[0], { name: 'github', issuer: 'https://token.actions.githubusercontent.com' });
});

test('a rule gives no more than its author may give, and is changed only by who may give the same', async (t) => {
  const { server } = await startPair(t);
  const admin = await tokenOf(server, ['admin']);
  const limited = (await createToken(server, ['admin', 'write'], 'default', { packages: ['Contoso.*'] })).value;
  const status = async (token: string, method: string, path: string, body?: unknown) =>
    (await sendJson(server, method, path, body, token)).status;
  const rule = { name: 'r', issuer: 'github', claims: { repository_id: '1' }, scopes: ['write'] };
  t.is(await status(admin, 'POST', '/v1/publishers', { ...rule, scopes: ['operate'] }), 403);
  t.is(await status(limited, 'POST', '/v1/publishers', rule), 403, 'without patterns');
  t.is(await status(limited, 'POST', '/v1/publishers', { ...rule, patterns: { packages: ['*'] } }), 403);
  t.is(
    await status(limited, 'POST', '/v1/publishers', {
      ...rule,
      scopes: ['read'],
      patterns: { packages: ['Contoso.*'] },
    }),
    403,
  );
  const within = { ...rule, name: 'within', patterns: { packages: ['Contoso.Web'] } };
  t.is(await status(limited, 'POST', '/v1/publishers', within), 201);

  const powerful = await createRule(server, { name: 'powerful', scopes: ['operate'] });
  const path = `/v1/publishers/${String(powerful['id'])}`;
  t.is(await status(admin, 'PUT', path, { ...rule, claims: { repository_id: '666' } }), 403, 'it gives operate');
  t.is(await status(admin, 'PUT', path, { ...rule, scopes: ['operate'] }), 403);
  t.is(await status(limited, 'PUT', path, within), 403);
  t.is(await status(limited, 'DELETE', path), 403);
  t.is(await status(limited, 'GET', path), 403);
  const seen = (await (await server.fetch('/v1/publishers', { token: limited })).json()) as { items: Json[] };
  t.deepEqual(
    seen.items.map(({ name }) => name),
    ['within'],
  );

  for (const scopes of [['read'], ['write', 'delete', 'operate']]) {
    const token = await tokenOf(server, scopes);
    for (const [method, each] of [
      ['GET', '/v1/publishers'],
      ['POST', '/v1/publishers'],
      ['PUT', path],
      ['DELETE', path],
      ['POST', '/v1/publishers/explain'],
      ['GET', '/v1/trusted-issuers'],
    ] as const) {
      const response = await server.fetch(each, { method, token });
      t.is(response.status, 403, `${method} ${each}`);
    }
  }
  const foreign = await tokenOf(server, ['admin', 'operate'], 'other');
  for (const method of ['GET', 'PUT', 'DELETE']) {
    const body = method === 'PUT' ? rule : undefined;
    const response = await server.fetch(path, {
      method,
      token: foreign,
      ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
    t.is(response.status, 404, `${method} by another account`);
  }
});

test('explain says which rule and which claim, and exchanges nothing', async (t) => {
  const { server, issuer } = await startPair(t);
  const document = await OpenDocument.of(server);
  await createRule(server, { name: 'of tags', claims: { repository_id: '100', ref: 'refs/tags/*' } });
  await createRule(server, { name: 'of all' });
  const explain = async (token: string) =>
    document.read('POST /publishers/explain', await sendJson(server, 'POST', '/v1/publishers/explain', { token }));
  const token = await issuer.sign(fromRepository);
  const good = await explain(` ${token}\n`);
  t.like(good, { issuer: 'github', problem: null });
  t.is((good['claims'] as Json)['repository'], 'team/app');
  t.like(good['rules'], [
    {
      name: 'of tags',
      matches: false,
      mismatches: [{ claim: 'ref', wanted: ['refs/tags/*'], found: ['refs/heads/main'] }],
    },
    { name: 'of all', matches: true, mismatches: [] },
  ] as never);
  t.is((await exchange(server, token)).status, 200, 'it was not used up');
  const expired = await explain(await issuer.sign({ ...fromRepository, exp: 1 }));
  t.is(expired['issuer'], null);
  t.regex(expired['problem'] as string, /expired/);
  t.like(expired['rules'], [{ matches: false }, { matches: false, mismatches: [] }] as never);
  const foreign = await explain(await issuer.sign({ iss: 'https://evil.example' }));
  t.regex(foreign['problem'] as string, /does not trust/);
  t.like(foreign['rules'], [
    { matches: false, mismatches: null },
    { matches: false, mismatches: null },
  ] as never);
  t.is((await sendJson(server, 'POST', '/v1/publishers/explain', { token: 'x' })).status, 400);
});

const tokenWith = (claims: string) =>
  ['{"alg":"ES256"}', `{"iss":"https://evil.example","a":${claims}}`, 'x']
    .map((part) => Buffer.from(part).toString('base64url'))
    .join('.');
const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;

test('a token with deeply nested claims is refused, and one with usual ones is explained', async (t) => {
  const { server } = await startPair(t);
  const explain = (token: string) => sendJson(server, 'POST', '/v1/publishers/explain', { token });
  t.is((await explain(tokenWith(nested(10)))).status, 200);
  for (const claims of [nested(20), nested(6000), `${'{"a":'.repeat(2000)}1${'}'.repeat(2000)}`]) {
    const answer = await explain(tokenWith(claims));
    t.is(answer.status, 400);
    t.regex(await answer.text(), /more than 16 levels/);
    t.is((await exchange(server, tokenWith(claims))).status, 400);
  }
});

test('tokens of Azure Pipelines have an audience that is not ours, which rule and log say', async (t) => {
  const audience = 'api://AzureADTokenExchange';
  const { server } = await startPair(t, {
    trustedIssuers: [{ name: 'azure', issuer: 'https://vstoken.dev.azure.com/11', audience }],
  });
  const rule = await createRule(server, { issuer: 'azure', claims: { org_id: '11', prj_id: '22', def_id: '33' } });
  t.regex((rule['warnings'] as string[]).join(), /All tokens of Azure Pipelines have the audience/);
  t.true(server.lines.some((line) => line.includes('All tokens of Azure Pipelines')));
});

test('an account has at most 200 rules', async (t) => {
  const { server } = await startPair(t);
  for (let index = 0; index < 200; index += 1) await createRule(server, { name: `rule ${index}` });
  await t.throwsAsync(createRule(server, { name: 'one more' }), { message: /^400 .*at most 200 rules/ });
  // An older version had no such bound.
  await databaseOf(server).transaction((tx) =>
    tx.run(`INSERT INTO publishers SELECT 'more', account_id, 'more', issuer, claims, scopes, patterns, created_at, updated_at, issuer_url
      FROM publishers WHERE name = 'rule 0'`),
  );
  const { items } = (await (await server.fetch('/v1/publishers?limit=1')).json()) as { items: Json[] };
  const { id, ...rule } = items[0]!;
  const body = { name: rule['name'], issuer: 'github', claims: { repository_id: '1' }, scopes: ['read'] };
  t.is((await sendJson(server, 'PUT', `/v1/publishers/${String(id)}`, body)).status, 200, 'one of them can be changed');
});

test('a rule that changes in the moment in which it was made gives what it says last, under a name of its own', async (t) => {
  const { server, issuer } = await startPair(t);
  server.clock.now = Date.now();
  const { id, name } = await createRule(server);
  await createRule(server, { name: 'other', claims: { repository_id: '7' } });
  const scope = async () => (await exchange(server, await issuer.sign(fromRepository))).body['scope'];
  const change = (body: Json) =>
    sendJson(server, 'PUT', `/v1/publishers/${String(id)}`, {
      name,
      issuer: 'github',
      claims: { repository_id: '100' },
      scopes: ['read'],
      ...body,
    });
  t.is(await scope(), 'read write');
  t.is((await change({})).status, 200);
  t.is(await scope(), 'read');
  t.is((await change({ name: 'other' })).status, 409);
  await createRule(server, { name: 'theirs' }, await tokenOf(server, ['admin', 'read', 'write'], 'elsewhere'));
  t.is((await change({ name: 'theirs' })).status, 200, 'each account has its own names');
});

test('the rules of an account have at most 128 KiB of claims and patterns', async (t) => {
  const { server } = await startPair(t);
  const values = Array.from({ length: 20 }, (_, index) => `${index}-`.padEnd(500, 'x'));
  const claims = { repository_id: '1', a: values, b: values, c: values };
  let last: Json = {};
  for (let index = 0; index < 4; index += 1) last = await createRule(server, { name: `rule ${index}`, claims });
  await t.throwsAsync(createRule(server, { name: 'one more', claims }), { message: /^400 .*at most 128 KiB/ });
  const small = await createRule(server, { name: 'small' });
  const change = (id: unknown, body: Json) =>
    sendJson(server, 'PUT', `/v1/publishers/${String(id)}`, { issuer: 'github', scopes: ['read'], ...body });
  t.is((await change(small['id'], { name: 'small', claims })).status, 400);
  t.is((await change(last['id'], { name: 'renamed', claims })).status, 200, 'its own size counts once');
  // An older version had no such bound.
  await databaseOf(server).transaction((tx) =>
    tx.run("UPDATE publishers SET claims = ? WHERE name = 'rule 0'", [
      JSON.stringify({ repository_id: ['1'], large: ['x'.repeat(128 * 1024)] }),
    ]),
  );
  t.is((await change(last['id'], { name: 'larger', claims: { ...claims, d: 'x' } })).status, 400);
  t.is((await change(last['id'], { name: 'same size', claims })).status, 200);
  t.is((await change(last['id'], { name: 'smaller', claims: { repository_id: '1', a: values } })).status, 200);
  t.is((await change(last['id'], { name: 'as before', claims })).status, 400);
});

test('more rules than memory keeps are all listed', async (t) => {
  const { server } = await startPair(t);
  // Rules of before had no bound for their sizes together.
  const claims = JSON.stringify({ repository_id: ['1'], large: ['x'.repeat(100_000)] });
  const list = async () => ((await (await server.fetch('/v1/publishers')).json()) as { items: Json[] }).items.length;
  for (const half of [1, 2]) {
    const rows = Array.from({ length: 50 }, (_, index) => ({
      id: `${half}-${index}`,
      account_id: defaultAccountOf(server),
      name: `${half}-${index}`,
      issuer: 'github',
      claims,
      scopes: 'read',
      created_at: half,
      updated_at: half,
    }));
    await databaseOf(server).transaction((tx) => tx.insertNew('publishers', rows));
    t.is(await list(), half * 50);
  }
});
