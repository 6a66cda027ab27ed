import test from 'ava';
import { createToken, tokenOf } from '../support/inside.ts';
import { TestFeed } from '../support/feed.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { eventually } from '../support/until.ts';
import { sendJson } from './support.ts';

// An account shares what it hosts, and nothing from its upstreams.

const historyOf = async (server: TestServer, path: string, token: string) => {
  const answer = await server.fetch(`${path}/history`, { token });
  return ((await answer.json()) as { items?: { reference: string }[] }).items?.map(({ reference }) => reference);
};

test('an account that shares a name shares no version, tag or history of its upstreams', async (t) => {
  const up = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  await up.offer({ id: 'Lib.Core', versions: [{ version: '1.0.0' }, { version: '9.0.0' }] });
  registry.image('lib/app', 'theirs');
  registry.image('lib/theirs', 'v1');
  const server = await startTestServer(t, {
    upstreams: [
      up.as('up.test', { accounts: ['a'] }),
      registry.settings('registry.test', { default: true, accounts: ['a'] }),
    ],
    merge: { packages: ['Lib.*'] },
  });
  const a = await tokenOf(server, ['read', 'write', 'admin'], 'a');
  const b = await tokenOf(server, ['read', 'admin'], 'b');
  const [owner, reader] = [new TestFeed(server, a), new TestFeed(server, b)];
  await (await owner.fetch('/package/lib.core/9.0.0/lib.core.9.0.0.nupkg')).arrayBuffer();
  await owner.publish({ id: 'Lib.Core', version: '2.0.0' });
  for (const path of ['lib/app/manifests/theirs', 'lib/theirs/manifests/v1'])
    t.is((await server.fetch(`/v2/${path}`, { token: a })).status, 200);
  await new TestRepository(server, 'lib/app', a).image('ours');
  const body = { subject: { kind: 'account', id: 'b' }, verbs: ['read'], packages: ['Lib.*'], images: ['lib/*'] };
  const { id } = (await (await sendJson(server, 'POST', '/v1/grants', body, a)).json()) as { id: string };
  t.is((await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {}, b)).status, 200);

  for (const [feed, versions, status] of [
    [owner, ['1.0.0', '2.0.0', '9.0.0'], 200],
    [reader, ['2.0.0'], 404],
  ] as const) {
    t.deepEqual((await feed.json('/package/lib.core/index.json')).versions, versions);
    const { items } = await feed.json('/registration-gz-semver2/lib.core/index.json');
    const registered = items.flatMap((page: any) => page.items.map((each: any) => each.catalogEntry.version));
    t.deepEqual(registered, versions);
    for (const path of [
      '/v3/package/lib.core/9.0.0/lib.core.9.0.0.nupkg',
      '/v3/registration/lib.core/9.0.0.json',
      '/v1/packages/Lib.Core/9.0.0',
      '/v1/packages/Lib.Core/9.0.0/file',
    ])
      t.is((await server.fetch(path, { token: feed.token })).status, status, path);
    const own = await server.fetch('/v1/packages/Lib.Core/2.0.0/file', { token: feed.token });
    t.is(own.status, 200);
  }
  t.deepEqual(await historyOf(server, '/v1/packages/Lib.Core', a), ['9.0.0']);
  t.deepEqual(await historyOf(server, '/v1/packages/Lib.Core', b), []);
  const images = async (token: string) => new Set(await historyOf(server, '/v1/containers/lib%2Fapp', token));
  t.true((await images(a)).has('theirs'));
  const shared = await images(b);
  t.deepEqual([shared.has('ours'), shared.has('theirs')], [true, false]);
  for (const [token, names] of [
    [a, ['lib/app', 'registry.test/lib/theirs']],
    [b, ['lib/app']],
  ] as const)
    for (const path of ['/v1/containers', '/v1/containers?sort=tags', '/v1/search?q=lib']) {
      const { items: found } = (await (await server.fetch(path, { token })).json()) as { items: { name: string }[] };
      const shown = found.map(({ name }) => name).filter((name) => name.includes('/'));
      t.deepEqual(shown.toSorted(), names, path);
    }
});

test('a dependency is marked only for who may see the version that it chooses', async (t) => {
  const server = await startTestServer(t);
  const all = new TestFeed(server);
  await all.publish(
    { id: 'Contoso.Secret' },
    { id: 'Contoso.App', dependencies: [{ id: 'Contoso.Secret', version: '1.0.0' }] },
  );
  const deprecation = { reasons: ['Legacy'], message: 'old' };
  const path = '/v1/packages/Contoso.Secret/1.0.0/deprecation';
  t.true((await sendJson(server, 'PUT', path, deprecation)).ok);
  const { value } = await createToken(server, ['read'], 'default', { packages: ['Contoso.App'] });
  const marks = async (token: string) => {
    const answer = await server.fetch('/v1/packages/Contoso.App/1.0.0', { token });
    const { dependency_groups: groups } = (await answer.json()) as { dependency_groups: { dependencies: object[] }[] };
    return groups[0]!.dependencies;
  };
  const [marked] = await eventually(
    () => marks(server.token),
    ([first]) => (first as { deprecated: boolean }).deprecated,
  );
  t.like(marked, { id: 'Contoso.Secret', deprecated: true });
  t.like((await marks(value))[0], { id: 'Contoso.Secret', deprecated: false, severity: null });
});
