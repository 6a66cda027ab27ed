import test, { type ExecutionContext } from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken, flushEvents, flushUsage } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { sendJson, type Json } from './support.ts';

// Tokens of which a grant gives one scope for other names than another scope.

const contoso = { packages: ['Contoso.*'] };

async function start(t: ExecutionContext, scopes: string[], patterns: Record<string, string[]>, given: Json) {
  const server = await startTestServer(t);
  const { token, value } = await createToken(server, scopes, 'default', patterns);
  const body = { subject: { kind: 'token', id: token.id }, ...given };
  const answer = await sendJson(server, 'POST', '/v1/grants', body);
  t.is(answer.status, 201, await answer.text());
  return { server, value };
}

const codeOf = async (answer: Response) => [answer.status, ((await answer.json()) as { code: string }).code];

const namesIn = async (server: TestServer, path: string, token: string) => {
  const { items } = (await (await server.fetch(path, { token })).json()) as { items: Json[] };
  return items;
};

for (const scope of ['admin', 'operate']) {
  test(`a token with "${scope}" for some names, and a grant to read all, may do nothing about all names`, async (t) => {
    const { server, value } = await start(t, [scope], contoso, { verbs: ['read'] });
    await new TestFeed(server).publish({ id: 'Contoso.App' }, { id: 'Fabrikam' });
    t.is((await server.fetch('/v1/packages/Fabrikam', { token: value })).status, 200, 'it reads all');
    for (const id of ['fabrikam.none', 'contoso.none']) await server.fetch(`/v3/package/${id}/index.json`);
    await flushEvents(server);
    const layer = scope === 'admin' ? 'account' : 'all';
    const refused = async (method: string, path: string, body?: Json) =>
      t.deepEqual(await codeOf(await sendJson(server, method, path, body, value)), [403, 'NameDenied'], path);
    await refused('PUT', `/v1/policy?layer=${layer}`, {});
    await refused('GET', `/v1/people?layer=${layer}`);
    await refused('POST', `/v1/people/x/disable?layer=${layer}`, { reason: 'x' });
    await refused('GET', '/v1/exposed?what=Fabrikam@1.0.0');
    const { token: unlimited } = await createToken(server, ['read']);
    if (scope === 'admin') await refused('DELETE', `/v1/tokens/${unlimited.id}`);
    const subjects = (await namesIn(server, '/v1/audit?type=package.published', value)).map(
      ({ subject }) => (subject as { name: string }).name,
    );
    t.deepEqual(subjects, ['Contoso.App']);
    const failed = (await namesIn(server, '/v1/failed-requests', value)).map(({ name, token_name }) => [
      name,
      token_name,
    ]);
    t.deepEqual(failed, [['contoso.none', null]]);
  });
}

test('a token with "admin" for some names sees other tokens only within these, also where it reads all names', async (t) => {
  const { server, value } = await start(t, ['admin'], contoso, { verbs: ['read'] });
  const make = async (name: string, patterns?: object) => {
    const body = { name, scopes: ['read'], ...(patterns && { patterns }) };
    const made = await sendJson(server, 'POST', '/v1/tokens', body);
    return (await made.json()) as { id: string; token: string };
  };
  const [other, own] = [await make('deploy all'), await make('deploy some', contoso)];
  const used = { 'contoso.app': own, fabrikam: other };
  await new TestFeed(server).publish({ id: 'Contoso.App' }, { id: 'Fabrikam' });
  for (const [id, { token }] of Object.entries(used)) {
    const reasons = { reasons: ['Legacy'] };
    t.true((await sendJson(server, 'PUT', `/v1/packages/${id}/1.0.0/deprecation`, reasons)).ok);
    const pulled = await server.fetch(`/v3/package/${id}/1.0.0/${id}.1.0.0.nupkg`, { token });
    await pulled.arrayBuffer();
  }
  await flushUsage(server);
  await until(async () => (await namesIn(server, '/v1/findings', server.token)).length === 2);
  const seen = async (token: string) => {
    const usage = await namesIn(server, '/v1/account/usage?group_by=token&q=deploy', token);
    const findings = await namesIn(server, '/v1/findings', token);
    return [
      usage.map(({ key }) => String(key)).sort(),
      Object.fromEntries(findings.map((each) => [each['id'], (each['last_used_by'] as Json | null)?.['token_id']])),
    ];
  };
  t.deepEqual(await seen(server.token), [[own.id, other.id].sort(), { 'Contoso.App': own.id, Fabrikam: other.id }]);
  t.deepEqual(await seen(value), [[own.id], { 'Contoso.App': own.id, Fabrikam: undefined }]);
});

test('a token for some names gives each scope only for names for which it has that scope', async (t) => {
  const given = { verbs: ['write'], packages: ['Contoso.Web'] };
  const { server, value } = await start(t, ['admin'], contoso, given);
  const made = (scopes: string[], packages: string[]) =>
    sendJson(server, 'POST', '/v1/tokens', { name: 'made', scopes, patterns: { packages } }, value);
  t.deepEqual(await codeOf(await made(['write'], ['Contoso.*'])), [403, 'NameDenied']);
  t.deepEqual(await codeOf(await made(['admin', 'write'], ['Contoso.App'])), [403, 'NameDenied']);
  t.is((await made(['write'], ['Contoso.Web'])).status, 201);
  t.is((await made(['admin'], ['Contoso.*'])).status, 201);
});

test('"operate" for some names gives it no further, and makes no webhook for events of no account', async (t) => {
  const { server, value } = await start(t, ['operate'], contoso, { verbs: ['admin'] });
  const wanted = { name: 'made', scopes: ['operate'] };
  t.deepEqual(await codeOf(await sendJson(server, 'POST', '/v1/tokens', wanted, value)), [403, 'NameDenied']);
  const hook = { url: 'https://example.org/hook', events: ['*'] };
  const own = await sendJson(server, 'POST', '/v1/webhooks', hook, value);
  t.is(own.status, 201);
  t.like(await own.json(), { operate: false });
  const operators = await sendJson(server, 'POST', '/v1/webhooks', hook);
  const { id, operate } = (await operators.json()) as { id: string; operate: boolean };
  t.true(operate);
  t.is((await sendJson(server, 'PATCH', `/v1/webhooks/${id}`, { name: 'x' }, value)).status, 403);
});

test('a mount needs the right to read the source, not only to write it', async (t) => {
  const { server, value } = await start(t, ['write'], { containers: ['*'] }, { verbs: ['read'], images: ['team/*'] });
  const { digest } = await new TestRepository(server, 'secret/app').blob('a secret');
  const open = await new TestRepository(server, 'team/base').blob('open to the team');
  const mine = new TestRepository(server, 'team/app', value);
  const mount = async (query: string) => (await mine.fetch(`blobs/uploads/?${query}`, { method: 'POST' })).status;
  t.is(await mount(`mount=${digest}&from=secret/app`), 202);
  t.is(await mount(`mount=${digest}`), 202);
  t.is((await mine.fetch(`blobs/${digest}`)).status, 404);
  t.is(await mount(`mount=${open.digest}&from=team/base`), 201);
});
