import test, { type ExecutionContext } from 'ava';
import { rowsOf, tokenOf } from '../../support/inside.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { entrepot } from '../../support/in-process.ts';
import { prefetchInto } from '../../support/prefetch.ts';
import { digestOf, errorOf, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry, type UpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// Registries that serve only some accounts.

/** A registry that requires these Basic credentials for its images. */
function protect(upstream: UpstreamRegistry, username: string): Record<string, unknown> {
  const on = upstream.on.bind(upstream);
  const expected = `Basic ${Buffer.from(`${username}:secret`).toString('base64')}`;
  upstream.on = (path, ...behaviours) =>
    on(path, (request, response) => {
      const isKnown = request.headers.authorization === expected;
      (isKnown ? behaviours[0]! : answer(401, { 'www-authenticate': 'Basic realm="x"' }))(request, response);
    });
  return { auth: { username, password: 'secret' } };
}

/** `team.test` serves the account `default` only; the other registry is the default of all accounts. */
async function setUp(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const team = await startUpstreamRegistry(t);
  const hub = await startUpstreamRegistry(t);
  const upstreams = [
    team.settings('team.test', { accounts: ['default'] }),
    hub.settings('hub.test', { default: true }),
  ];
  const server = await startTestServer(t, { upstreams, anonymousRead: true, ...settings });
  const other = await tokenOf(server, ['read', 'write', 'delete'], 'other');
  const status = async (path: string, token: string | null, method = 'GET') => {
    const response = await server.fetch(path, { method, token });
    await response.arrayBuffer();
    return response.status;
  };
  return { team, hub, upstreams, server, other, status };
}

const containers = async (server: TestServer, token?: string): Promise<string[]> => {
  const response = await server.fetch('/v1/containers', token === undefined ? {} : { token });
  return ((await response.json()) as { items: { name: string }[] }).items.map(({ name }) => name);
};

test('an account that an upstream does not serve finds nothing of its images, and no upstream gets a request', async (t) => {
  const { team, hub, server, other, status } = await setUp(t);
  const { manifest, config, layer } = team.image('app', 'v1');
  const referrers = { schemaVersion: 2, manifests: [{ ...config, artifactType: 'a/b' }] };
  team.on(`/v2/app/referrers/${manifest.digest}`, answer(200, {}, JSON.stringify(referrers)));
  team.on('/v2/app/tags/list', answer(200, {}, JSON.stringify({ name: 'app', tags: ['v1'] })));
  const paths = [
    'manifests/v1',
    `manifests/${manifest.digest}`,
    `blobs/${layer.digest}`,
    `blobs/${config.digest}`,
    'tags/list',
  ];
  for (const name of ['v2/team.test/app', 'v2/app']) {
    for (const path of paths) {
      const query = name === 'v2/app' ? '?ns=team.test' : '';
      t.is(await status(`/${name}/${path}${query}`, server.token), 200, path);
      t.is(await status(`/${name}/${path}${query}`, null), 200, 'anonymous readers count as the account default');
    }
  }
  t.is(await status(`/v2/team.test/app/referrers/${manifest.digest}`, server.token), 200);
  const asked = team.asked.length;

  for (const [name, query] of [
    ['team.test/app', ''],
    ['app', '?ns=team.test'],
    ['team.test/app', '?ns=team.test'],
    ['hub.test/team.test/app', ''],
    ['app', ''],
  ] as const) {
    for (const path of paths) {
      for (const method of ['GET', 'HEAD']) {
        t.is(await status(`/v2/${name}/${path}${query}`, other, method), 404, `${method} ${name} ${path}`);
      }
    }
    const response = await server.fetch(`/v2/${name}/referrers/${manifest.digest}${query}`, { token: other });
    t.deepEqual(((await response.json()) as { manifests: unknown[] }).manifests, []);
  }
  t.is(team.asked.length, asked);
  const atHub = hub.asked.map(({ path }) => path).filter((path) => path.startsWith('/v2/team.test/'));
  t.true(
    atHub.every((path) => path.startsWith('/v2/team.test/app/')),
    'only for the name with the prefix of the hub',
  );
  t.is(await status('/v2/_catalog', other), 200);
  t.deepEqual(await containers(server), ['team.test/app']);
  t.deepEqual(await containers(server, other), []);
  t.is(await status('/v1/containers/team.test/app/v1', other, 'DELETE'), 404);
  t.is(await status('/v2/team.test/app/manifests/v1', server.token), 200);
});

test('a name with the prefix of a hidden upstream is not sent to the default upstream', async (t) => {
  const { hub, status, other } = await setUp(t);
  t.is(await status('/v2/team.test/secret/app/manifests/v1', other, 'HEAD'), 404);
  t.is(await status('/v2/team.test/secret/app/manifests/v1', other), 404);
  t.is(await status('/v2/team.test/secret/app/tags/list', other), 404);
  t.deepEqual(hub.asked, []);
  // With `ns` the whole name is one of that upstream.
  hub.image('team.test/secret/app', 'v1');
  t.is(await status('/v2/team.test/secret/app/manifests/v1?ns=hub.test', other), 200);
});

test('mirrored layers cannot be added to an image of an account that the upstream does not serve', async (t) => {
  const { team, server, other, status } = await setUp(t);
  const { manifest, layer, config } = team.image('app', 'v1');
  for (const path of [`manifests/v1`, `blobs/${layer.digest}`, `blobs/${config.digest}`]) {
    t.is(await status(`/v2/team.test/app/${path}`, server.token), 200);
  }
  for (const name of ['team.test/app', 'app', 'own/app']) {
    const repository = new TestRepository(server, name, other);
    t.deepEqual(await errorOf(await repository.put('v2', manifest.bytes)), [400, 'MANIFEST_BLOB_UNKNOWN'], name);
    const mounted = await repository.fetch(`blobs/uploads/?mount=${layer.digest}&from=team.test/app`, {
      method: 'POST',
    });
    t.is(mounted.status, 202, 'no mount: an upload session');
    t.is(await status(`/v2/${name}/blobs/${layer.digest}`, other), 404);
  }
});

test('two accounts have an upstream with the same name, each with its own credentials and content', async (t) => {
  const [one, two] = [await startUpstreamRegistry(t), await startUpstreamRegistry(t)];
  const upstreams = [
    one.settings('ghcr.test', { id: 'ghcr-one', accounts: ['default'], ...protect(one, 'one') }),
    two.settings('ghcr.test', { id: 'ghcr-two', accounts: ['other'], ...protect(two, 'two') }),
  ];
  const server = await startTestServer(t, { upstreams });
  const other = await tokenOf(server, ['read'], 'other');
  const images = [one.image('team/app', 'v1'), two.image('team/app', 'v1')];
  for (const [index, token] of [server.token, other].entries()) {
    const { manifest, layer } = images[index]!;
    for (let round = 0; round < 2; round += 1) {
      const response = await server.fetch('/v2/ghcr.test/team/app/manifests/v1', { token });
      t.is(digestOf(await response.text()), manifest.digest);
      const blob = await server.fetch(`/v2/ghcr.test/team/app/blobs/${layer.digest}`, { token });
      t.is(digestOf(Buffer.from(await blob.arrayBuffer())), layer.digest);
    }
    const foreign = images[1 - index]!;
    const path = `/v2/ghcr.test/team/app/manifests/${foreign.manifest.digest}`;
    t.is((await server.fetch(path, { token })).status, 404);
    t.deepEqual(await containers(server, token), ['ghcr.test/team/app']);
    const blob = await server.fetch(`/v2/ghcr.test/team/app/blobs/${foreign.layer.digest}`, { token });
    t.is(blob.status, 404);
  }
  t.deepEqual(
    await rowsOf(server, "SELECT upstream, reference FROM mirror_entries WHERE reference = 'v1' ORDER BY upstream"),
    [
      { upstream: 'ghcr-one', reference: 'v1' },
      { upstream: 'ghcr-two', reference: 'v1' },
    ],
  );
  const listed = (await (await server.fetch('/v1/containers', { token: other })).json()) as { items: object[] };
  t.like(listed.items[0], { upstream: 'ghcr.test', tag_count: 1 });
  t.false(JSON.stringify(listed).includes('ghcr-two'));
});

test('an upstream that fails for one account does not stop the upstream of the same name of another', async (t) => {
  const [one, two] = [await startUpstreamRegistry(t), await startUpstreamRegistry(t)];
  const upstreams = [
    one.settings('ghcr.test', { id: 'one', accounts: ['default'] }),
    two.settings('ghcr.test', { id: 'two', accounts: ['other'] }),
  ];
  const server = await startTestServer(t, { upstreams });
  const other = await tokenOf(server, ['read'], 'other');
  two.image('app', 'v1');
  one.unplug();
  const failed = await server.fetch('/v2/ghcr.test/app/manifests/v1');
  t.is(failed.status, 502);
  t.regex(await failed.text(), /The upstream ghcr\.test/);
  t.is((await server.fetch('/v2/ghcr.test/app/manifests/v1', { token: other })).status, 200);
});

test('content that was stored before an upstream was limited is served to its accounts only', async (t) => {
  const data = await folderUntilEnd(t);
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('app', 'v1');
  const path = '/v2/team.test/app/manifests/v1';
  const before = await startTestServer(t, { data, upstreams: [upstream.settings('team.test')] });
  const other = await tokenOf(before, ['read'], 'other');
  t.is((await before.fetch(path, { token: other })).status, 200);
  await before.close();
  await upstream.stop();
  const server = await startTestServer(t, {
    data,
    upstreams: [upstream.settings('team.test', { accounts: ['default'], mode: 'offline' })],
  });
  const stored = await server.fetch(path);
  t.is(digestOf(await stored.text()), manifest.digest);
  t.is((await server.fetch(path, { token: other })).status, 404);
  t.is((await server.fetch(`/v2/team.test/app/manifests/${manifest.digest}`, { token: other })).status, 404);
});

test('an upstream whose accounts do not exist serves none, with a warning at the start and in doctor', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('app', 'v1');
  const settings = upstream.settings('team.test', { accounts: ['missing', 'later'] });
  const server = await startTestServer(t, { upstreams: [settings] });
  const warning = server.lines.find((line) => line.includes('accounts that do not exist'))!;
  t.like(JSON.parse(warning), { upstream: 'team.test', accounts: ['missing', 'later'] });
  const path = '/v2/team.test/app/manifests/v1';
  t.is((await server.fetch(path)).status, 404);
  t.is(upstream.asked.length, 0);
  const later = await tokenOf(server, ['read'], 'later');
  t.is((await server.fetch(path, { token: later })).status, 200, 'an account that is created later is served');
  const { data } = server;
  await server.close();
  const { stdout } = await entrepot({ ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: JSON.stringify([settings]) }, 'doctor');
  t.regex(stdout, /FAIL {2}upstream team\.test: no account is named missing: create it, or correct accounts/);
});

test('a prefetch for an account uses only the upstreams that serve it', async (t) => {
  const { team, hub, server } = await setUp(t);
  team.image('app', 'v1');
  hub.image('pub', 'v1');
  for (const name of ['team.test/app', 'pub']) {
    t.is((await server.fetch(`/v2/${name}/manifests/v1`)).status, 200);
  }
  server.clock.now = Date.now() + 3_600_000;
  const account = (await rowsOf<{ id: number }>(server, "SELECT id FROM accounts WHERE name = 'other'"))[0]!;
  const [before, asked] = [team.asked.length, hub.asked.length];
  await prefetchInto(server, [], { accountId: account.id, inUse: { newest: 1, since: 0 } });
  t.is(team.asked.length, before);
  t.true(hub.asked.length > asked);
});

test('mirrored bytes count for the first account that the upstream serves', async (t) => {
  const { team, hub, server, other, upstreams } = await setUp(t);
  const { data } = server;
  t.truthy(data);
  const more = [upstreams[1]!, team.settings('team.test', { accounts: ['none', 'other'] })];
  const second = await startTestServer(t, { upstreams: more, data });
  const one = hub.image('pub', 'v1').manifest;
  const two = team.image('app', 'v1').manifest;
  t.is((await second.fetch('/v2/pub/manifests/v1')).status, 200);
  t.is((await second.fetch('/v2/team.test/app/manifests/v1', { token: other })).status, 200);
  const mirrored = async (token: string) => {
    const response = await second.fetch('/v1/account/usage', { token });
    return ((await response.json()) as any).storage.by_origin.mirrored;
  };
  t.is(await mirrored(second.token), one.size);
  t.is(await mirrored(other), two.size);
});
