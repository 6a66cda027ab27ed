import test from 'ava';
import { createToken, databaseOf, tokenOf } from '../support/inside.ts';
import { sendJson } from '../identity/support.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { instancesOf } from '../support/instances.ts';
import { putPolicy, startMirrors } from '../support/policy.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';

type Json = Record<string, any>;

const registries = [
  { name: 'docker.io', kind: 'registry', default: true, mode: 'offline' },
  { name: 'ghcr.io', kind: 'registry', mode: 'offline', accounts: ['team'] },
];

async function start(server: TestServer, body: object, token = server.token): Promise<Json> {
  const response = await sendJson(server, 'POST', '/v1/client-checks', body, token);
  if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Json;
}

async function read(server: TestServer, { id }: Json, token = server.token): Promise<Json> {
  return (await (await server.fetch(`/v1/client-checks/${id}`, { token })).json()) as Json;
}

/** The check when it is in this state. A request is noted a moment after its client has the answer. */
const inState = (server: TestServer, check: Json, state: string) =>
  eventually(
    () => read(server, check),
    (found) => found['state'] === state,
  );

/** The name that the line of a check asks for. */
const nameIn = ({ line }: Json) => /entrepot-check[./][0-9a-f]{32}/.exec(line)![0];

for (const dialect of dialects) {
  test(`${dialect}: a check says whether and how a client asks any of several instances`, async (t) => {
    const instance = await instancesOf(t, dialect);
    const settings = { upstreams: registries, anonymousRead: 'none' };
    const [one, two] = [await instance(settings), await instance(settings)];
    const check = await start(one, { client: 'containerd' });
    t.is(check['state'], 'waiting');
    t.is(check['line'], `crictl pull docker.io/${nameIn(check)}:latest`);
    const path = `/v2/${nameIn(check)}/manifests/latest?ns=docker.io`;
    t.is((await two.fetch(path, { token: null })).status, 401);
    const first = await eventually(
      () => read(one, check),
      ({ requests }) => requests.length === 1,
    );
    t.is(first['state'], 'waiting', 'clients ask without a credential first');
    t.is((await two.fetch(path, { token: 'ent_wrong' })).status, 401);
    t.regex((await inState(one, check, 'refused'))['conclusion'], /Its credential is wrong: The API token is/);

    const headers = { 'user-agent': 'containerd/2.1.4' };
    const answer = await two.fetch(path, { headers });
    t.is(answer.status, 404);
    t.regex(await answer.text(), /that of a check of clients/);
    const found = await inState(one, check, 'used');
    const [token] = ((await (await one.fetch('/v1/tokens')).json()) as Json)['items'];
    t.like(found['requests'].at(-1), {
      status: 404,
      account: 'own',
      user_agent: 'containerd/2.1.4',
      path,
      host: new URL(two.url).host,
      token_id: token.id,
      count: 1,
    });
  });

  test(`${dialect}: rows have bounds, and go after a day`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: registries,
    });
    server.clock.now = Date.now();
    const check = await start(server, { client: 'dotnet' });
    for (let index = 0; index < 25; index += 1)
      await server.fetch(`/v3/package/${nameIn(check)}/index.json`, {
        headers: { 'user-agent': `${index} ${'y'.repeat(1000)}` },
      });
    const { requests } = await eventually(
      () => read(server, check),
      (found) => found.requests.length >= 20,
    );
    t.is(requests.length, 20);
    t.is(requests[0]!['user_agent'].length, 255);
    // A name with which no check was started leaves nothing.
    await server.fetch(`/v3/package/entrepot-check.${'0'.repeat(32)}/index.json`);
    for (let index = 1; index < 20; index += 1) await start(server, { client: 'dotnet' });
    t.is((await sendJson(server, 'POST', '/v1/client-checks', { client: 'dotnet' })).status, 429);
    server.clock.now += 16 * 60_000;
    t.is((await read(server, check))['state'], 'used');
    const late = await start(server, { client: 'dotnet' });
    server.clock.now += 16 * 60_000;
    t.is((await server.fetch(`/v3/package/${nameIn(late)}/index.json`)).status, 404);
    t.is((await read(server, late))['state'], 'unused', 'after its end, it takes no requests');
    server.clock.now += 25 * 3_600_000;
    t.is((await server.fetch(`/v1/client-checks/${check['id']}`)).status, 404);
    await server.installation.core.checks.deleteOld();
    const rows = async (table: string) =>
      (await databaseOf(server).get<{ number: number }>(`SELECT COUNT(*) AS number FROM ${table}`))!.number;
    t.deepEqual([await rows('client_checks'), await rows('client_check_requests')], [0, 0]);
  });
}

test('a check belongs to its account, and shows nothing of the clients of others', async (t) => {
  const server = await startTestServer(t, { upstreams: registries });
  const team = await tokenOf(server, ['read', 'admin'], 'team');
  const reader = await tokenOf(server, ['read']);
  const limited = (await createToken(server, ['read', 'admin'], 'default', { packages: ['*'], containers: ['team/*'] }))
    .value;
  const check = await start(server, { client: 'podman' });
  for (const token of [reader, limited]) {
    t.is((await sendJson(server, 'POST', '/v1/client-checks', { client: 'podman' }, token)).status, 403);
    t.is((await server.fetch(`/v1/client-checks/${check['id']}`, { token })).status, 403);
  }
  t.is((await server.fetch(`/v1/client-checks/${check['id']}`, { token: team })).status, 404);
  const path = `/v2/docker.io/${nameIn(check)}/manifests/latest`;
  t.is((await server.fetch(path, { token: team, headers: { 'user-agent': 'secret-agent' } })).status, 404);
  const found = await inState(server, check, 'refused');
  t.like(found['requests'][0], {
    account: 'other',
    token_id: null,
    address: null,
    user_agent: null,
    path: null,
    reason: null,
  });
  t.notRegex(JSON.stringify(found), /secret-agent|127\.0\.0\.1/);
  // A token that may not read the name is not a client that works.
  t.is((await server.fetch(path, { token: limited })).status, 403);
  const both = await eventually(
    () => read(server, check),
    ({ requests }) => requests.length === 2,
  );
  t.is(both['state'], 'refused');
  t.regex(both['conclusion'], /another account/);
});

test('the name of a check is asked of no upstream', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  const [image, id] = [await start(server, { client: 'docker' }), await start(server, { client: 'dotnet' })];
  t.is((await server.fetch(`/v2/registry.test/${nameIn(image)}/manifests/latest`)).status, 404);
  t.is((await server.fetch(`/v2/registry.test/${nameIn(image)}/tags/list`)).status, 404);
  t.is((await server.fetch(`/v3/package/${nameIn(id)}/index.json`)).status, 404);
  t.is((await server.fetch(`/v3/registration/${nameIn(id)}/index.json`)).status, 404);
  t.false(registry.requests().some((each) => each.includes('entrepot-check')));
  t.false(feed.upstream.asked.some(({ path }) => path.includes('entrepot-check')));
  for (const each of [image, id]) t.is((await inState(server, each, 'used'))['state'], 'used');
  // Credentials that the endpoint for tokens refuses never reach the name itself.
  const next = await start(server, { client: 'docker' });
  const scope = encodeURIComponent(`repository:${nameIn(next)}:pull`);
  t.is((await server.fetch(`/token?service=x&scope=${scope}`, { token: 'ent_wrong' })).status, 401);
  t.is((await inState(server, next, 'refused'))['state'], 'refused');
});

test('a check of what a policy refuses waits for a request for it, and needs a policy', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  registry.image('team/app', 'v1');
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const denied = { name: 'registry.test/team/app', reference: 'v1' };
  const send = (body: object) => sendJson(server, 'POST', '/v1/client-checks', body);
  const refused = await send({ client: 'podman', denied });
  t.is(refused.status, 400);
  t.regex(await refused.text(), /No policy refuses registry\.test\/team\/app v1/);
  const rules = [
    { name: 'no-app', images: ['registry.test/team/app'], verdict: 'deny' },
    { name: 'no-lib', packages: ['Lib'], verdict: 'deny' },
  ];
  t.is((await putPolicy(server, { mode: 'enforce', rules })).status, 200);
  const check = await start(server, { client: 'podman', denied });
  t.regex(check['line'], /^if podman pull registry\.test\/team\/app:v1; then echo "NOT REFUSED/);
  t.is((await server.fetch('/v2/team/app/manifests/v2?ns=registry.test')).status, 403);
  t.is((await read(server, check))['state'], 'waiting', 'another tag');
  t.is((await server.fetch('/v2/team/app/manifests/v1?ns=registry.test')).status, 403);
  t.like((await inState(server, check, 'used'))['requests'][0], { status: 403, account: 'own' });

  const lib = await start(server, { client: 'dotnet', denied: { name: 'Lib', reference: '1.0.0' } });
  await server.fetch('/v3/package/lib/index.json');
  t.is((await inState(server, lib, 'used'))['state'], 'used', 'lists hide the version, so clients ask no further');
  // A policy that has ended.
  const late = await start(server, { client: 'podman', denied });
  t.is((await putPolicy(server, {})).status, 200);
  t.is((await server.fetch('/v2/team/app/manifests/v1?ns=registry.test')).status, 200);
  t.is((await inState(server, late, 'served'))['state'], 'served');
  t.is((await putPolicy(server, { mode: 'enforce', rules })).status, 200);
  // What other accounts ask for is not shown.
  const other = await start(server, { client: 'podman', denied });
  await server.fetch('/v2/registry.test/team/app/manifests/v1', { token: await tokenOf(server, ['read'], 'team') });
  t.is((await read(server, other))['requests'].length, 0);
  for (const registry of ['gcr.io', 'a b']) t.is((await send({ client: 'podman', registry })).status, 400, registry);
  for (const name of ['a b', '$(id)', "a'b", 'x'.repeat(256), ''])
    t.is((await send({ client: 'podman', denied: { name, reference: 'v1' } })).status, 400, name);
});

test('configurations name this server and the registries of the account, and no token', async (t) => {
  const server = await startTestServer(t, { upstreams: registries, server: { baseUrl: 'https://hub.example.com' } });
  const team = await tokenOf(server, ['read'], 'team');
  const ask = async (path: string, token = server.token) => {
    const response = await server.fetch(`/v1/clients${path}`, { token });
    return { status: response.status, ...((await response.json()) as Json) } as Json;
  };
  t.deepEqual((await ask(''))['registries'], ['docker.io']);
  t.deepEqual((await ask('', team))['registries'], ['docker.io', 'ghcr.io']);
  const { items } = await ask('');
  for (const { kind } of items) {
    const text = await ask(`/${kind}`);
    t.is(text.status, 200, kind);
    t.regex(JSON.stringify(text), /hub\.example\.com/);
    t.notRegex(JSON.stringify(text), /ghcr\.io/);
    t.false(JSON.stringify(text).includes(server.token));
  }
  t.regex(JSON.stringify(await ask('/containerd', team)), /certs\.d\/ghcr\.io\/hosts\.toml/);
  t.is((await ask('/nothing')).status, 404);
  t.is((await ask('/podman?form=else')).status, 400);
  t.is((await ask('/podman?token=ent_x')).status, 400, 'no token in an address');
  const refused = await ask('/dotnet?fallback=1');
  t.is(refused.status, 400);
  t.regex(JSON.stringify(refused), /private names/);
});
