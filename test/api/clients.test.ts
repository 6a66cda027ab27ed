import test from 'ava';
import { sendJson } from '../identity/support.ts';
import { checkState, type ClientCheck } from '../../src/usage/client-checks.ts';
import { createToken, databaseOf, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';

// clients.long.test.ts has the rest: several instances, MySQL, and checks of what a policy refuses.

type Json = Record<string, any>;

/** The name that the line of a check asks for. */
const nameIn = ({ line }: Json) => /entrepot-check[./][0-9a-f]{32}/.exec(line)![0];

test('configurations for clients, and checks of whether they use this server', async (t) => {
  const server = await startTestServer(t, {
    upstreams: [
      { name: 'docker.io', kind: 'registry', default: true, mode: 'offline' },
      { name: 'ghcr.io', kind: 'registry', mode: 'offline', accounts: ['team'] },
    ],
    server: { baseUrl: 'https://hub.example.com' },
  });
  server.clock.now = Date.now();
  const team = await tokenOf(server, ['read', 'admin'], 'team');
  const reader = await tokenOf(server, ['read']);
  const patterns = { packages: ['*'], containers: ['team/*'] };
  const limited = (await createToken(server, ['read', 'admin'], 'default', patterns)).value;
  const ask = async (path: string, token = server.token) => {
    const response = await server.fetch(`/v1${path}`, { token });
    return { status: response.status, ...((await response.json()) as Json) } as Json;
  };
  const send = (body: object, token = server.token) => sendJson(server, 'POST', '/v1/client-checks', body, token);
  const start = async (client: string) => {
    const response = await send({ client });
    t.is(response.status, 201);
    return (await response.json()) as Json;
  };
  const when = (check: Json, isSo: (found: Json) => boolean) =>
    eventually(() => ask(`/client-checks/${check['id']}`), isSo);

  t.deepEqual((await ask('/clients'))['registries'], ['docker.io']);
  t.deepEqual((await ask('/clients', team))['registries'], ['docker.io', 'ghcr.io']);
  for (const { kind } of (await ask('/clients'))['items']) {
    const text = JSON.stringify(await ask(`/clients/${kind}`));
    t.regex(text, /hub\.example\.com/, kind);
    t.notRegex(text, /ghcr\.io/, kind);
    t.false(text.includes(server.token));
  }
  t.regex(JSON.stringify(await ask('/clients/containerd', team)), /certs\.d\/ghcr\.io\/hosts\.toml/);
  t.notRegex(JSON.stringify(await ask('/clients/containerd')), /"secret":false[^}]*TOKEN/);
  t.notDeepEqual(await ask('/clients/podman?ca=1'), await ask('/clients/podman'));
  for (const [path, status] of [
    ['nothing', 404],
    ['podman?form=else', 400],
    ['podman?token=ent_x', 400],
    ['dotnet?fallback=1', 400],
  ] as const)
    t.is((await ask(`/clients/${path}`))['status'], status, path);

  // Clients ask without a credential first.
  const check = await start('containerd');
  t.is(check['line'], `crictl pull docker.io/${nameIn(check)}:latest`);
  t.like(check, { state: 'waiting', requests: [] });
  const path = `/v2/${nameIn(check)}/manifests/latest?ns=docker.io`;
  t.is((await server.fetch(path, { token: null })).status, 401);
  t.is((await when(check, ({ requests }) => requests.length === 1))['state'], 'waiting');
  server.clock.now += 1000;
  t.is((await server.fetch(path, { token: 'ent_wrong' })).status, 401);
  const refused = await when(check, ({ requests }) => requests.length === 2);
  t.is(refused['state'], 'refused');
  t.regex(refused['conclusion'], /Its credential is wrong: The API token is/);
  const headers = { 'user-agent': 'secret-agent' };
  server.clock.now += 1000;
  t.is((await server.fetch(path, { token: team, headers })).status, 404);
  await when(check, ({ requests }) => requests.length === 3);
  server.clock.now += 1000;
  t.is((await server.fetch(path, { token: limited })).status, 403);
  const others = await when(check, ({ requests }) => requests.length === 4);
  t.is(others['state'], 'refused', 'neither another account nor a token that may not read the name');
  t.like(others['requests'][2], { account: 'other', token_id: null, address: null, user_agent: null, reason: null });
  t.notRegex(JSON.stringify(others['requests'][2]), /secret-agent|127\.0\.0\.1|entrepot-check/);
  server.clock.now += 1000;
  for (let time = 0; time < 2; time += 1) {
    const answer = await server.fetch(path, { headers });
    t.is(answer.status, 404);
    t.regex(await answer.text(), /that of a check of clients/);
  }
  const used = await when(check, ({ requests }) => requests.at(-1).count === 2);
  t.is(used['state'], 'used');
  t.like(used['requests'].at(-1), { status: 404, account: 'own', user_agent: 'secret-agent', path });

  t.is((await ask(`/client-checks/${check['id']}`, team))['status'], 404);
  for (const token of [reader, limited]) {
    t.is((await send({ client: 'podman' }, token)).status, 403);
    t.is((await ask(`/client-checks/${check['id']}`, token))['status'], 403);
  }
  for (const registry of ['gcr.io', 'ghcr.io', 'a b'])
    t.is((await send({ client: 'podman', registry })).status, 400, registry);
  t.is((await send({ client: 'podman', denied: { name: 'team/app', reference: 'v1' } })).status, 400, 'no policy');

  // 20 requests of 255 characters, and 20 checks at a time.
  const many = await start('dotnet');
  for (let index = 0; index < 22; index += 1)
    await server.fetch(`/v3/package/${nameIn(many)}/index.json`, {
      headers: { 'user-agent': `${index} ${'y'.repeat(1000)}` },
    });
  const { requests } = await when(many, (found) => found['requests'].length >= 20);
  t.is(requests[0]['user_agent'].length, 255);
  // A further one, and the first one again.
  for (const agent of ['further', requests[0]['user_agent']])
    await server.fetch(`/v3/package/${nameIn(many)}/index.json`, { headers: { 'user-agent': agent } });
  const again = await when(many, (found) => found['requests'][0].count >= 2);
  t.is(again['requests'].length, 20);
  // A name with which no check was started leaves nothing.
  await server.fetch(`/v3/package/entrepot-check.${'0'.repeat(32)}/index.json`);
  t.is((await send({ client: 'dotnet' }, team)).status, 201, 'of each account');
  for (let index = 2; index < 20; index += 1) await start('dotnet');
  const last = await send({ client: 'dotnet' });
  t.deepEqual([last.status, last.headers.get('retry-after')], [429, '900']);
  t.is((await ask(`/client-checks/${many['id']}`))['requests'].length, 20);
  server.clock.now += 15 * 60_000;
  t.is((await ask(`/client-checks/${check['id']}`))['state'], 'used');
  const late = await start('dotnet');
  server.clock.now += 15 * 60_000;
  t.is((await server.fetch(`/v3/package/${nameIn(late)}/index.json`)).status, 404);
  t.is((await ask(`/client-checks/${late['id']}`))['state'], 'unused', 'after its end, it takes no requests');
  const { checks } = server.installation.core;
  const rows = async (table: string) =>
    (await databaseOf(server).get<{ number: number }>(`SELECT COUNT(*) AS number FROM ${table}`))!.number;
  await checks.deleteOld();
  t.deepEqual([await rows('client_checks'), await rows('client_check_requests')], [22, 25]);
  server.clock.now += 86_400_000;
  t.is((await ask(`/client-checks/${late['id']}`))['status'], 404);
  await checks.deleteOld();
  t.deepEqual([await rows('client_checks'), await rows('client_check_requests')], [0, 0]);
});

const checkOf = (denied: string[] | null) =>
  ({ accountId: 1, reference: 'V1', denied, expiresAt: 100 }) as Partial<ClientCheck> as ClientCheck;
const requestWith = (status: number, path = '/v2/app/manifests/v1', accountId: number | null = 1) => {
  const rest = { reason: null, hasCredential: true, agent: '', address: '', host: '', tokenId: null };
  return { ...rest, status, path, accountId };
};

test('a check of a name that a policy refuses is used by any answer, and served by its content alone', (t) => {
  const state = (denied: string[] | null, at: number, ...requests: ReturnType<typeof requestWith>[]) =>
    checkState(checkOf(denied), requests, at);
  t.is(state(['app'], 0, requestWith(403)), 'used');
  t.is(state(['app'], 0, requestWith(403, undefined, 2)), 'refused');
  t.is(state(['app'], 0, requestWith(401)), 'refused');
  t.is(state(['app'], 0, requestWith(200)), 'served');
  t.is(state(['app'], 0, requestWith(200, '/v3/package/app/index.json')), 'used', 'a list');
  for (const path of [
    '/v3/registration/app/page/v1/v9.json',
    '/v3/registration-gz/app/v1.json',
    '/v2/v1/app/tags/list?last=v1',
    '/v2/app/manifests/v10',
    '/v3/package/app/v1/app.nuspec',
  ])
    t.is(state(['app'], 0, requestWith(200, path)), 'used', path);
  for (const path of ['/v3/package/app/V1/app.v1.nupkg', '/old/v2/app/manifests/v1?ns=docker.io'])
    t.is(state(['app'], 0, requestWith(200, path)), 'served', path);
  t.is(
    checkState({ ...checkOf(['app']), reference: 'sha256:0f' }, [requestWith(200, '/v2/app/manifests/sha256%3A0f')], 0),
    'served',
  );
  t.is(state(null, 0, requestWith(200)), 'refused', 'not a name that nobody has');
  t.is(state(null, 0, requestWith(404)), 'used');
  t.is(state(null, 99, { ...requestWith(401, undefined, null), hasCredential: false }), 'waiting');
  t.is(state(null, 100, { ...requestWith(401, undefined, null), hasCredential: false }), 'refused', 'at its end');
  t.is(state(null, 99), 'waiting');
  t.is(state(null, 100), 'unused');
});
