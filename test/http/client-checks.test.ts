import test from 'ava';
import { databaseOf, tokenOf } from '../support/inside.ts';
import { startMirrors } from '../support/policy.ts';
import type { TestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';
import { sendJson } from '../identity/support.ts';

type Json = Record<string, any>;

async function start(server: TestServer, client: string): Promise<Json> {
  const response = await sendJson(server, 'POST', '/v1/client-checks', { client });
  if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Json;
}

/** The check when it is in this state. A request is noted a moment after its client has the answer. */
const inState = (server: TestServer, { id }: Json, state: string) =>
  eventually(
    async () => (await (await server.fetch(`/v1/client-checks/${id}`)).json()) as Json,
    (found) => found['state'] === state,
  );

const nameIn = ({ line }: Json) => /entrepot-check[./][0-9a-f]{32}/.exec(line)![0];

test('a check of clients says what arrived with which credential, and asks no upstream', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  server.clock.now = Date.now();
  const check = await start(server, 'docker');
  const path = `/v2/registry.test/${nameIn(check)}/manifests/latest`;
  t.is((await server.fetch(path, { token: 'ent_wrong' })).status, 401);
  const refused = await inState(server, check, 'refused');
  t.regex(refused['conclusion'], /Its credential is wrong: The API token is not valid/);
  t.like(refused['requests'][0], { status: 401, account: null, token_id: null });
  const answer = await server.fetch(path, { headers: { 'user-agent': 'docker/28' } });
  t.is(answer.status, 404);
  t.regex(await answer.text(), /that of a check of clients/);
  const [token] = ((await (await server.fetch('/v1/tokens')).json()) as Json)['items'];
  t.like(
    (await inState(server, check, 'used'))['requests'].find((each: Json) => each['status'] === 404),
    {
      account: 'own',
      user_agent: 'docker/28',
      address: '127.0.0.1',
      path,
      host: new URL(server.url).host,
      token_id: token.id,
      count: 1,
    },
  );

  const [none, key, foreign] = [
    await start(server, 'dotnet'),
    await start(server, 'dotnet'),
    await start(server, 'dotnet'),
  ];
  const index = (of: Json) => `/v3/package/${nameIn(of)}/index.json`;
  t.is((await server.fetch(index(none), { token: null })).status, 401);
  await eventually(
    async () => (await (await server.fetch(`/v1/client-checks/${none['id']}`)).json()) as Json,
    ({ state, requests }) => state === 'waiting' && requests.length === 1,
  );
  const unlist = { method: 'DELETE', token: null, headers: { 'x-nuget-apikey': 'wrong' } };
  t.is((await server.fetch(`/v3/push/${nameIn(key)}/1.0.0`, unlist)).status, 401);
  t.regex((await inState(server, key, 'refused'))['conclusion'], /Its credential is wrong/, 'an API key is one, too');
  const other = await tokenOf(server, ['read'], 'other');
  t.is((await server.fetch(index(foreign), { token: other })).status, 404);
  const ofOther = await inState(server, foreign, 'refused');
  t.regex(ofOther['conclusion'], /the credential of another account/);
  t.like(ofOther['requests'][0], { account: 'other', address: null, path: null, user_agent: null });
  t.is((await server.fetch(`/v1/client-checks/${check['id']}`, { token: other })).status, 403);

  const asked = [...registry.requests(), ...feed.upstream.asked.map((each) => each.path)];
  t.false(asked.some((each) => each.includes('entrepot-check')));
  const late = await start(server, 'dotnet');
  server.clock.now += 15 * 60_000;
  t.is((await server.fetch(index(late))).status, 404);
  t.like(await inState(server, late, 'unused'), { requests: [] }, 'after its end it takes no requests');
  server.clock.now += 86_400_000;
  t.is((await server.fetch(`/v1/client-checks/${check['id']}`)).status, 404);
  await server.installation.core.checks.deleteOld();
  for (const table of ['client_checks', 'client_check_requests'])
    t.is((await databaseOf(server).get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table}`))!.n, 0, table);
});
