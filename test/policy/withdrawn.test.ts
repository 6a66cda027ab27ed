import test, { type ExecutionContext } from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken } from '../support/inside.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { missingIn } from '../support/withdrawn.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// What an upstream has withdrawn is decided by policies, and shown as of a date, as if the upstream still offered it.

const [hour, day] = [3_600_000, 86_400_000];
const now = Date.parse('2026-11-25T12:00:00Z');
const ago = (days: number) => new Date(now - days * day).toISOString();
interface Explained {
  verdict: string;
  evidence: string[];
}

const file = (version: string) => `/v3/package/lib/${version}/lib.${version}.nupkg`;

async function put(server: TestServer, policy: object, layer = 'all', token = server.token): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const request = { method: 'PUT', headers, body: JSON.stringify(policy), token };
  if ((await server.fetch(`/v1/policy?layer=${layer}`, request)).status !== 200) throw new Error('it is refused');
}

async function versionsOf(server: TestServer, token = server.token, feed = '/v3'): Promise<string[]> {
  const response = await server.fetch(`${feed}/package/lib/index.json`, { token });
  return response.status === 404 ? [] : ((await response.json()) as { versions: string[] }).versions;
}

async function download(server: TestServer, version: string, token = server.token): Promise<number> {
  const response = await server.fetch(file(version), { token });
  await response.arrayBuffer();
  return response.status;
}

async function start(t: ExecutionContext, dialect: (typeof dialects)[number]) {
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    database: { url: await temporaryDatabase(t, dialect) },
    upstreams: [feed.as('feed.test'), registry.settings('up.test', { freshFor: '1s', negativeFor: '1m' })],
  });
  server.clock.now = now;
  return { feed, registry, server };
}

/** The feed does not offer these versions any more, and the mirror is certain of it. */
async function withdraw(server: TestServer, feed: UpstreamFeed, gone: readonly string[], left: readonly string[]) {
  for (const version of gone) feed.upstream.on(`/flat/lib/${version}/lib.${version}.nupkg`, answer(404));
  if (left.length > 0)
    await feed.offer({ id: 'Lib', versions: left.map((version) => ({ version, published: ago(90) })) });
  else for (const each of ['flat', 'registration']) feed.upstream.on(`/${each}/lib/index.json`, answer(404));
  for (let time = 0; time < 2; time += 1) {
    server.clock.now! += 2 * hour;
    await versionsOf(server);
  }
}

for (const dialect of dialects) {
  for (const [what, left, pageSize] of [
    ['a version', ['9.0.0'], undefined],
    ['a version of a long registration', ['9.0.0'], 1],
    ['an id', [], undefined],
  ] as [string, string[], number | undefined][]) {
    test(`${dialect}: ${what} that clients got under a minimum age stays when it is withdrawn`, async (t) => {
      const { feed, server } = await start(t, dialect);
      const offered = ['1.0.0', '9.0.0'].map((version) => ({ version, published: ago(90), changed: ago(80) }));
      await feed.offer({ id: 'Lib', versions: offered, ...(pageSize !== undefined && { pageSize }) });
      await put(server, { minimumAge: { packages: '30d', unknownDate: 'hold' } });
      for (const version of ['1.0.0', '9.0.0']) t.is(await download(server, version), 200);
      const asOf = `/as-of/${ago(60).slice(0, 10)}/v3`;
      t.deepEqual(await versionsOf(server, server.token, asOf), ['1.0.0', '9.0.0']);
      t.deepEqual(await versionsOf(server, server.token, `/as-of/${ago(95).slice(0, 10)}/v3`), []);

      const gone = ['1.0.0', '9.0.0'].filter((version) => !left.includes(version));
      await withdraw(server, feed, gone, left);
      t.deepEqual(
        await missingIn(server),
        gone.map((version) => `${version} marked`),
      );
      t.deepEqual(await versionsOf(server), ['1.0.0', '9.0.0']);
      for (const version of ['1.0.0', '9.0.0']) t.is(await download(server, version), 200);
      t.deepEqual(await versionsOf(server, server.token, asOf), ['1.0.0', '9.0.0']);
      t.deepEqual(await versionsOf(server, server.token, `/as-of/${ago(95).slice(0, 10)}/v3`), []);
      const leaf = (await (await server.fetch('/v3/registration-gz-semver2/lib/1.0.0.json')).json()) as any;
      t.deepEqual([leaf.listed, leaf.catalogEntry.published], [false, leaf.published]);

      const rules = [{ name: 'bad', packages: ['lib'], versions: '[1.0.0]', verdict: 'deny', reason: 'MAL-2026-1' }];
      await put(server, { minimumAge: { packages: '30d' }, rules });
      const refused = await server.fetch(file('1.0.0'));
      t.is(refused.status, 403);
      t.regex(refused.statusText, /MAL-2026-1/);
      await put(server, { minimumAge: { packages: '30d' } });
      t.is(await download(server, '1.0.0'), 200);
    });
  }

  for (const pageSize of [100, 2])
    test(`${dialect}: a withdrawn version that is too young for an account opens when it is old enough (pages of ${pageSize})`, async (t) => {
      const { feed, server } = await start(t, dialect);
      const { value: strict } = await createToken(server, ['read', 'admin'], 'strict');
      await put(server, { minimumAge: { packages: '3d' } }, 'account', strict);
      const old = ['1.0.0', '9.0.0'].map((version) => ({ version, published: ago(90), changed: ago(80) }));
      await feed.offer({ id: 'Lib', versions: old, pageSize });
      t.deepEqual(await versionsOf(server, strict), ['1.0.0', '9.0.0']);
      const young = { version: '2.0.0', published: ago(1), changed: ago(1) };
      await feed.offer({ id: 'Lib', versions: [old[0]!, young, old[1]!], pageSize });
      t.is(await download(server, '2.0.0'), 200, 'the stored registration does not have it yet');
      server.clock.now! += 2 * hour;
      t.deepEqual(await versionsOf(server, strict), ['1.0.0', '9.0.0']);
      await withdraw(server, feed, ['2.0.0'], ['1.0.0', '9.0.0']);
      t.deepEqual(await versionsOf(server), ['1.0.0', '2.0.0', '9.0.0']);
      t.deepEqual(await versionsOf(server, strict), ['1.0.0', '9.0.0']);
      t.is(await download(server, '2.0.0', strict), 404);
      server.clock.now = now + 3 * day;
      t.deepEqual(await versionsOf(server, strict), ['1.0.0', '2.0.0', '9.0.0']);
      t.is(await download(server, '2.0.0', strict), 200);
    });

  test(`${dialect}: a withdrawn tag answers its last digest that is old enough, and as of a date that of then`, async (t) => {
    const { registry, server } = await start(t, dialect);
    const pull = async (reference: string, at = '') => {
      const response = await server.fetch(`/v2/${at}up.test/team/app/manifests/${reference}`);
      return response.headers.get('docker-content-digest') ?? response.status;
    };
    const tags = async (at = '') =>
      ((await (await server.fetch(`/v2/${at}up.test/team/app/tags/list`)).json()) as { tags: string[] }).tags;
    const first = registry.image('team/app', 'v1').manifest.digest;
    t.is(await pull('v1'), first);
    server.clock.now = now + 2 * day;
    await put(server, { minimumAge: { images: '2d' } });
    const second = registry.image('team/app', 'v1').manifest.digest;
    server.clock.now += hour;
    t.is(await pull('v1'), first);
    for (const each of ['manifests/v1', `manifests/${first}`, `manifests/${second}`, 'tags/list'])
      registry.on(`/v2/team/app/${each}`, answer(404));
    const asOf = 'as-of/2026-11-26/';
    for (let time = 0; time < 2; time += 1) {
      server.clock.now += hour;
      t.is(await pull('v1'), first, 'the second one is too young');
    }
    t.deepEqual(await missingIn(server), ['v1 marked']);
    t.deepEqual([await pull('v1', asOf), await tags(asOf)], [first, ['v1']]);
    t.is(await pull(second), 403);
    server.clock.now = now + 5 * day;
    t.is(await pull('v1'), second);
    t.deepEqual([await pull('v1', asOf), await tags(asOf), await tags()], [first, ['v1'], ['v1']]);
    const rules = [{ name: 'bad', digests: [second], verdict: 'deny' }];
    await put(server, { minimumAge: { images: '2d' }, rules });
    t.is(await pull(second), 403);
    t.not(await pull('v1'), second);
  });

  test(`${dialect}: withdrawn: deny refuses a version that its upstream withdrew, and nothing else`, async (t) => {
    const { feed, server } = await start(t, dialect);
    const offered = ['1.0.0', '9.0.0'].map((version) => ({ version, published: ago(90), changed: ago(80) }));
    await feed.offer({ id: 'Lib', versions: offered });
    for (const version of ['1.0.0', '9.0.0']) t.is(await download(server, version), 200);
    const { value: strict } = await createToken(server, ['read', 'admin'], 'strict');
    await put(server, { withdrawn: 'deny' }, 'account', strict);
    t.is(await download(server, '1.0.0', strict), 200, 'it is offered');
    await withdraw(server, feed, ['1.0.0'], ['9.0.0']);

    const refused = await server.fetch(file('1.0.0'), { token: strict });
    t.is(refused.status, 403);
    t.regex(refused.statusText, /its upstream does not offer it any more/);
    t.is(await download(server, '9.0.0', strict), 200);
    t.deepEqual(await versionsOf(server, strict), ['1.0.0', '9.0.0'], 'lists show what is denied');
    t.is(await download(server, '1.0.0'), 200, 'the other account keeps it');
    const explained = (await (
      await server.fetch('/v1/explain?kind=package&name=Lib&reference=1.0.0')
    ).json()) as Explained;
    t.is(explained.verdict, 'allow');
    t.regex(explained.evidence.join(), /^withdrawn by its upstream, as seen here 2026-11-25T\d\d:\d\dZ$/);

    await put(server, { withdrawn: 'keep' }, 'account', strict);
    t.is(await download(server, '1.0.0', strict), 200);
    await put(server, { withdrawn: 'deny', rules: [{ name: 'ours', packages: ['lib'], verdict: 'allow' }] });
    t.is(await download(server, '1.0.0'), 403, 'a rule that allows lifts the age only');
    await feed.offer({ id: 'Lib', versions: offered });
    server.clock.now! += 2 * hour;
    await versionsOf(server);
    t.is(await download(server, '1.0.0'), 200, 'it is offered again');
  });

  test(`${dialect}: withdrawn: deny refuses a tag that its upstream withdrew, and a digest with its last tag`, async (t) => {
    const { registry, server } = await start(t, dialect);
    const statusOf = async (reference: string, what = 'manifests') =>
      (await server.fetch(`/v2/up.test/team/app/${what}/${reference}`)).status;
    const { manifest, config } = registry.image('team/app', 'v1');
    const [gone, blob] = [manifest.digest, config.digest];
    const other = registry.image('team/app', 'v2').manifest;
    const shared = registry.manifest('team/app', other.bytes, 'v3').digest;
    for (const tag of ['v1', 'v2', 'v3']) t.is(await statusOf(tag), 200);
    t.is(await statusOf(blob, 'blobs'), 200);
    await put(server, { withdrawn: 'deny' });
    for (const tag of ['v1', 'v2']) registry.on(`/v2/team/app/manifests/${tag}`, answer(404));
    for (let time = 0; time < 2; time += 1) {
      server.clock.now! += hour;
      for (const tag of ['v1', 'v2']) await statusOf(tag);
    }
    t.deepEqual(await missingIn(server), ['v1 marked', 'v2 marked']);
    t.deepEqual(
      await Promise.all(['v1', 'v2', 'v3', gone, shared].map((each) => statusOf(each))),
      [403, 403, 200, 403, 200],
      'v3 has the digest of v2',
    );
    t.is(await statusOf(blob, 'blobs'), 403);
    registry.image('team/app', 'v1');
    server.clock.now! += hour;
    t.is(await statusOf('v1'), 200, 'it is offered again');
  });
}
