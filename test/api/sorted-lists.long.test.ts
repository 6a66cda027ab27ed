import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, flushUsage, flushUses, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Lists of hosted and mirrored names by their numbers, filtered, and with their totals.

type Json = Record<string, any>;

const random = (bytes: number) => randomBytes(bytes).toString('hex');

async function download(server: TestServer, id: string, version: string, times = 1, token?: string): Promise<void> {
  const key = id.toLowerCase();
  for (let time = 0; time < times; time += 1) {
    const path = `/v3/package/${key}/${version}/${key}.${version}.nupkg`;
    const response = await server.fetch(path, token === undefined ? {} : { token });
    if (response.status !== 200) throw new Error(`${id} ${version}: ${response.status}`);
    await response.arrayBuffer();
  }
}

/** All items of a list, read in pages of `limit`. */
async function walk(server: TestServer, path: string, limit: number, token = server.token): Promise<Json[]> {
  const items: Json[] = [];
  for (let cursor = ''; ;) {
    const response = await server.fetch(`${path}&limit=${limit}${cursor}`, { token });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    const page = (await response.json()) as Json;
    items.push(...page['items']);
    if (page['next_cursor'] === null) return items;
    cursor = `&cursor=${page['next_cursor']}`;
  }
}

/** The list in each page size has the names in this order. */
async function inOrder(
  t: ExecutionContext,
  server: TestServer,
  path: string,
  names: readonly string[],
  token?: string,
) {
  for (const limit of [1, 2, 50]) {
    const items = await walk(server, path, limit, token);
    t.deepEqual(
      items.map(({ id, name, key }) => name ?? key ?? id),
      names,
      `${path} in pages of ${limit}`,
    );
  }
}

for (const dialect of dialects) {
  test(`${dialect}: packages are sorted by their numbers, filtered, and added up`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const server = await startMirrorOf(t, [up.as('up.test')], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const feed = new TestFeed(server);
    await up.offer({ id: 'Far.Small', versions: [{ version: '1.0.0' }] });
    await up.offer({ id: 'Far.Many', versions: [1, 2, 3].map((each) => ({ version: `${each}.0.0` })) });
    await up.offer({ id: 'Taken', versions: [{ version: '1.0.0' }] });
    await feed.publish(
      { id: 'Near.Large', readme: random(40_000) },
      { id: 'Near.Two', version: '1.0.0' },
      { id: 'Near.Two', version: '2.0.0' },
      { id: 'Near.Idle' },
    );
    await download(server, 'Far.Small', '1.0.0', 5);
    for (const version of ['1.0.0', '2.0.0', '3.0.0']) await download(server, 'Far.Many', version);
    await download(server, 'Taken', '1.0.0');
    await feed.publish({ id: 'Taken', version: '9.0.0' });
    await new TestFeed(server, await tokenOf(server, ['read', 'write'], 'other')).publish({ id: 'Theirs' });
    await download(server, 'Near.Two', '2.0.0', 4);
    await flushUsage(server);
    await flushUses(server);

    const path = '/v1/packages?';
    await inOrder(t, server, `${path}sort=versions`, [
      'Far.Many',
      'Near.Two',
      'Far.Small',
      'Near.Idle',
      'Near.Large',
      'Taken',
    ]);
    const byDownloads = await walk(server, `${path}sort=downloads`, 2);
    t.deepEqual(
      byDownloads.map(({ id, download_count: count }) => [id, count]),
      [
        ['Far.Small', 5],
        ['Near.Two', 4],
        ['Far.Many', 3],
        ['Taken', 1],
        ['Near.Idle', 0],
        ['Near.Large', 0],
      ],
    );
    t.is((await walk(server, `${path}sort=size`, 50))[0]!['id'], 'Near.Large');
    const sizes = (await walk(server, `${path}sort=size`, 2)).map(({ size_bytes: size }) => size);
    t.deepEqual(
      sizes,
      sizes.toSorted((one, other) => other - one),
    );
    const used = (await walk(server, `${path}sort=used&origin=hosted`, 1)).map(({ id }) => id);
    t.deepEqual(used, ['Near.Two', 'Taken', 'Near.Idle', 'Near.Large'], 'what was never downloaded is last');
    const updated = (await walk(server, `${path}sort=updated&origin=hosted`, 1)).map(({ id }) => id);
    t.is(updated[0], 'Taken');
    await inOrder(t, server, `${path}q=NEAR`, ['Near.Idle', 'Near.Large', 'Near.Two']);
    await inOrder(t, server, `${path}q=a&origin=mirrored`, ['Far.Many', 'Far.Small']);
    await inOrder(t, server, `${path}sort=downloads&q=far`, ['Far.Small', 'Far.Many']);

    const document = await OpenDocument.of(server);
    const total = async (query: string, token = server.token) =>
      (await document.read('GET /packages', await server.fetch(`${path}total=1${query}`, { token })))['total'];
    const all = await walk(server, path, 50);
    t.deepEqual(await total(''), { count: 6, size_bytes: all.reduce((sum, each) => sum + each['size_bytes'], 0) });
    t.is(((await total('&origin=mirrored')) as Json)['count'], 2);
    t.is(((await total('&q=near')) as Json)['count'], 3);
    t.is((await document.read('GET /packages', await server.fetch(path)))['total'], undefined);

    const patterns = { packages: ['*.Two', 'Far.*'] };
    const limited = (await createToken(server, ['read'], 'default', patterns)).value;
    await inOrder(t, server, `${path}sort=downloads`, ['Far.Small', 'Near.Two', 'Far.Many'], limited);
    t.is(((await total('', limited)) as Json)['count'], 3);

    t.is((await server.fetch('/v1/packages/Near.Large/1.0.0', { method: 'DELETE' })).status, 204);
    t.is((await server.fetch('/v1/packages/Far.Small/1.0.0', { method: 'DELETE' })).status, 204);
    await inOrder(t, server, `${path}sort=downloads`, ['Near.Two', 'Far.Many', 'Taken', 'Near.Idle']);
    for (const query of ['sort=name', 'sort=x', 'total=2', 'q=1&q=2'])
      t.is((await server.fetch(path + query)).status, 400);
    const first: Json = (await (await server.fetch(`${path}sort=size&limit=1`)).json()) as Json;
    t.is((await server.fetch(`${path}sort=downloads&cursor=${first['next_cursor']}`)).status, 400, 'of another order');
  });

  test(`${dialect}: images are sorted by their numbers, filtered, and added up`, async (t) => {
    const hub = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [hub.settings('docker.io', { default: true })],
    });
    const far = hub.image('library/alpine', '3');
    hub.image('library/alpine', '4');
    hub.image('mine/app', 'v1');
    const pull = async (path: string) => (await server.fetch(`/v2/${path}`)).arrayBuffer();
    for (const path of [
      'alpine/manifests/3',
      'alpine/manifests/4',
      `alpine/blobs/${far.layer.digest}`,
      'mine/app/manifests/v1',
    ])
      await pull(path);
    for (const tag of ['a', 'b', 'c']) await new TestRepository(server, 'team/many').image(tag);
    const large = new TestRepository(server, 'team/large');
    await large.image('v1', { layers: [await large.blob(random(500_000))] });
    await new TestRepository(server, 'mine/app').image('v1');
    await new TestRepository(server, 'empty').blob('no manifest');
    for (let time = 0; time < 4; time += 1) await pull('team/large/manifests/v1');
    await flushUsage(server);

    const path = '/v1/containers?';
    await inOrder(t, server, `${path}sort=tags`, ['team/many', 'docker.io/library/alpine', 'mine/app', 'team/large']);
    await inOrder(t, server, `${path}sort=pulls`, ['team/large', 'docker.io/library/alpine', 'mine/app', 'team/many']);
    await inOrder(t, server, `${path}sort=used&origin=hosted`, ['team/large', 'mine/app', 'team/many']);
    t.is((await walk(server, `${path}sort=size`, 1))[0]!['name'], 'team/large');
    await inOrder(t, server, `${path}q=Team`, ['team/large', 'team/many']);
    await inOrder(t, server, `${path}q=alp&sort=size`, ['docker.io/library/alpine']);
    const document = await OpenDocument.of(server);
    const answer = await document.read('GET /containers', await server.fetch(`${path}total=1&tags=0`));
    const bytes = (answer['items'] as Json[]).reduce((sum, each) => sum + each['size_bytes'], 0);
    t.deepEqual(answer['total'], { count: 4, size_bytes: bytes });
    const limited = (
      await createToken(server, ['read'], 'default', { containers: ['team/*', 'docker.io/library/alpine'] })
    ).value;
    await inOrder(t, server, `${path}sort=tags`, ['team/many', 'docker.io/library/alpine', 'team/large'], limited);
    const seen = (await (await server.fetch(`${path}total=1`, { token: limited })).json()) as Json;
    t.is(seen['total'].count, 3);
    const anonymous = await server.fetch(`${path}sort=tags`, { token: null });
    t.is(anonymous.status, 401);
  });

  test(`${dialect}: the entries of an upstream and the usage of names are sorted`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const server = await startMirrorOf(t, [up.as('up.test')], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    server.clock.now = Date.now();
    for (const [id, size] of [
      ['Far.A', 10],
      ['Far.B', 3000],
      ['Other', 1000],
    ] as const) {
      await up.offer({ id, versions: [{ version: '1.0.0', readme: random(size) } as never] });
      server.clock.now += 60_000;
      await download(server, id, '1.0.0', id === 'Other' ? 3 : 1);
    }
    await download(server, 'Far.A', '1.0.0');
    await flushUses(server);
    await flushUsage(server);
    const path = '/v1/upstreams/up.test/entries?entry_kind=nupkg';
    for (const limit of [1, 2, 50]) {
      const sizes = (await walk(server, `${path}&sort=size`, limit)).map(({ size_bytes: size }) => size);
      t.is(sizes.length, 3);
      t.deepEqual(
        sizes,
        sizes.toSorted((one, other) => other - one),
      );
      const stored = (await walk(server, `${path}&sort=stored`, limit)).map(({ name }) => name);
      t.deepEqual(stored, ['other', 'far.b', 'far.a']);
    }
    const far = (await walk(server, `${path}&sort=stored&name=Far`, 1)).map(({ name }) => name);
    t.deepEqual(far, ['far.b', 'far.a']);
    t.is(
      (await walk(server, '/v1/upstreams/up.test/entries?sort=used', 1)).length,
      (await walk(server, '/v1/upstreams/up.test/entries?', 50)).length,
    );
    t.is((await server.fetch(`${path}&sort=name`)).status, 400);

    const document = await OpenDocument.of(server);
    const totalOf = async (query: string) => {
      const answer = await server.fetch(`/v1/upstreams/up.test/entries?total=1&limit=1${query}`);
      return (await document.read('GET /upstreams/{id}/entries', answer))['total'];
    };
    const stored = await walk(server, path, 50);
    const bytesOf = (some: Json[]) => some.reduce((sum, each) => sum + each['size_bytes'], 0);
    t.deepEqual(await totalOf('&entry_kind=nupkg'), { count: 3, size_bytes: bytesOf(stored) });
    const begins = stored.filter(({ name }) => name.startsWith('far'));
    t.deepEqual(await totalOf('&entry_kind=nupkg&name=FAR&sort=size'), { count: 2, size_bytes: bytesOf(begins) });
    const every = await walk(server, '/v1/upstreams/up.test/entries?', 50);
    t.is(((await totalOf('')) as Json)['count'], every.length);
    t.true(every.length > 3);
    t.is(((await totalOf('&name=far')) as Json)['count'], every.filter(({ name }) => name.startsWith('far')).length);
    t.deepEqual(await totalOf('&entry_kind=none&name=far'), { count: 0, size_bytes: 0 });
    t.is(await totalOf('').then((total) => (total as Json)['size_bytes']), bytesOf(every));

    const usage = '/v1/account/usage?group_by=package';
    await inOrder(t, server, `${usage}&sort=downloads`, ['other', 'far.a', 'far.b']);
    const limited = (await createToken(server, ['read'], 'default', { packages: ['far.*'] })).value;
    await inOrder(t, server, `${usage}&sort=downloads`, ['far.a', 'far.b'], limited);
    for (const query of [
      'sort=downloads',
      'group_by=package&granularity=day&sort=downloads',
      'group_by=package&sort=x',
      'q=far',
      'total=1',
      'group_by=package&granularity=day&q=far',
    ])
      t.is((await server.fetch(`/v1/account/usage?${query}`)).status, 400, query);

    await inOrder(t, server, `${usage}&q=FAR`, ['far.a', 'far.b']);
    await inOrder(t, server, `${usage}&q=far&sort=downloads`, ['far.a', 'far.b']);
    await inOrder(t, server, `${usage}&q=o&sort=egress_bytes`, ['other']);
    const sumOf = async (query: string, token = server.token) =>
      (
        await document.read(
          'GET /account/usage',
          await server.fetch(`/v1/account/usage?total=1&limit=1${query}`, { token }),
        )
      )['total'] as Json;
    t.like(await sumOf('&group_by=package&q=far'), { count: 2, downloads: 3 });
    const all = await walk(server, usage, 50);
    t.like(await sumOf('&group_by=package'), {
      count: 3,
      egress_bytes: all.reduce((sum, each) => sum + each['egress_bytes'], 0),
    });
    t.like(await sumOf('&group_by=package', limited), { count: 2, downloads: 3 });

    const tokens = '/v1/account/usage?group_by=token';
    const { token, value } = await createToken(server, ['read'], 'default');
    const narrow = await createToken(server, ['read', 'admin'], 'default', { packages: ['far.*'] });
    await download(server, 'Other', '1.0.0', 1, value);
    await download(server, 'Far.A', '1.0.0', 1, narrow.value);
    await flushUsage(server);
    const named = async (by?: string) => (await walk(server, `${tokens}&q=A%20TEST`, 50, by)).map(({ key }) => key);
    await until(async () => (await named()).length >= 3);
    t.true((await named()).includes(token.id));
    t.false((await named()).includes(null), 'without a name');
    t.false((await walk(server, tokens, 50)).length === (await named()).length, 'the first token has another name');
    t.deepEqual(await named(value), [], 'names of tokens need the scope admin');
    t.true((await named(narrow.value)).includes(narrow.token.id));
    t.false((await named(narrow.value)).includes(token.id), 'beyond the own limits');
    t.is((await walk(server, `${tokens}&q=${token.id}`, 50, value)).length, 1);
  });
}
