import test from 'ava';
import { auditOf, said } from '../../support/audit.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { makeNupkg } from '../../support/builders/nupkg.ts';
import { instancesOf } from '../../support/instances.ts';
import { startTestServer } from '../../support/server.ts';
import { rowsOf, tokenOf } from '../../support/inside.ts';

/** What all documents of the package `Swift` say. */
async function shownBy(feed: TestFeed): Promise<unknown[]> {
  const { versions } = await feed.json('/package/swift/index.json');
  const seen: unknown[] = [versions];
  for (const hive of ['registration', 'registration-gz', 'registration-gz-semver2']) {
    const { items } = await feed.json(`/${hive}/swift/index.json`);
    seen.push(
      items[0].items.map((item: { catalogEntry: { version: string; listed: boolean; description: string } }) => {
        const { version, listed, description } = item.catalogEntry;
        return `${version} ${listed} ${description}`;
      }),
    );
  }
  return seen;
}

for (const dialect of dialects) {
  test(`an unlisted version stays downloadable and is shown as unlisted until it is listed again (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Shy', version: '1.0.0' });
    const listing = async () => {
      const entry = (await feed.json('/registration/shy/1.0.0.json')).catalogEntry;
      return [entry.listed, entry.published];
    };
    const [, published] = await listing();
    t.is((await feed.fetch('/push/SHY/1.0/', { method: 'DELETE' })).status, 204);
    t.is((await feed.fetch('/push/shy/1.0.0', { method: 'DELETE' })).status, 204, 'again');
    t.deepEqual(await listing(), [false, '1900-01-01T00:00:00+00:00']);
    t.deepEqual(await feed.json('/package/shy/index.json'), { versions: ['1.0.0'] });
    t.is((await feed.fetch('/package/shy/1.0.0/shy.1.0.0.nupkg')).status, 200);
    t.is((await feed.fetch('/push/shy/1.0.0', { method: 'POST' })).status, 200);
    t.deepEqual(await listing(), [true, published]);
    t.deepEqual((await auditOf(server, 'type=package.*')).map(said), [
      'package.published Shy 1.0.0',
      'package.unlisted Shy 1.0.0',
      'package.relisted Shy 1.0.0',
    ]);
    const change = async (path: string, token = server.token) =>
      (await server.fetch(`/v1/packages/${path}`, { method: 'POST', token })).status;
    const [deleter, writer] = [await tokenOf(server, ['read', 'delete']), await tokenOf(server, ['read', 'write'])];
    t.is(await change('SHY/1.0/unlist', writer), 403);
    t.is(await change('SHY/1.0/unlist', deleter), 204);
    t.deepEqual(await listing(), [false, '1900-01-01T00:00:00+00:00']);
    t.is(await change('shy/1.0.0/relist', deleter), 403);
    t.is(await change('shy/1.0.0/relist', writer), 204);
    t.deepEqual(await listing(), [true, published]);
    for (const path of ['shy/2.0.0', 'other/1.0.0', 'shy/x'])
      for (const verb of ['unlist', 'relist']) t.is(await change(`${path}/${verb}`), 404, `${path}/${verb}`);
    for (const path of ['/push/shy/2.0.0', '/push/other/1.0.0', '/push/shy/x']) {
      t.is((await feed.fetch(path, { method: 'DELETE' })).status, 404, path);
      t.is((await feed.fetch(path, { method: 'POST' })).status, 404, path);
    }
  });

  test(`a deleted version is in no document, its number is free, the claim on the id stays (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    const remove = async (path: string) => (await server.fetch(`/v1/packages/${path}`, { method: 'DELETE' })).status;
    const list = async () => ((await (await server.fetch('/v1/packages')).json()) as { items: unknown[] }).items;
    await feed.publish({ id: 'Gone', version: '1.0.0' }, { id: 'Gone', version: '1.1.0' });
    t.is(await remove('GONE/1.1'), 204);
    t.deepEqual(await feed.json('/package/gone/index.json'), { versions: ['1.0.0'] });
    t.is((await feed.fetch('/package/gone/1.1.0/gone.1.1.0.nupkg')).status, 404);
    t.like(await list(), [{ id: 'Gone', version_count: 1, latest_version: '1.0.0' }]);
    t.is((await rowsOf(server, 'SELECT * FROM package_blobs')).length, 2, 'those of the other version');
    t.is((await feed.fetch('/package/gone/1.0.0/gone.1.0.0.nupkg')).status, 200);
    t.is(await remove('gone/1.0.0'), 204);
    t.deepEqual(await list(), []);
    t.is((await server.fetch('/v1/packages/gone')).status, 404);
    t.is(await remove('gone/1.0.0'), 404);
    for (const path of [
      '/package/gone/index.json',
      '/registration/gone/index.json',
      '/registration-gz-semver2/gone/1.0.0.json',
    ]) {
      t.is((await feed.fetch(path)).status, 404, path);
    }
    t.is((await rowsOf(server, 'SELECT * FROM package_blobs')).length, 0);
    t.is((await rowsOf(server, 'SELECT * FROM packages')).length, 1, 'the claim');
    const other = await makeNupkg({ id: 'Gone', version: '1.0.0' });
    t.is((await feed.push(other)).status, 201);
    const file = await feed.fetch('/package/gone/1.0.0/gone.1.0.0.nupkg');
    t.deepEqual(Buffer.from(await file.arrayBuffer()), other);
  });

  test(`cached documents show each change at once, on every instance (${dialect})`, async (t) => {
    const start = await instancesOf(t, dialect);
    const feeds = [new TestFeed(await start()), new TestFeed(await start())] as const;
    /** The second time from memory. */
    const show = async (versions: string[], entries: string[]) => {
      for (const time of ['once', 'again']) {
        for (const [index, feed] of feeds.entries())
          t.deepEqual(await shownBy(feed), [versions, entries, entries, entries], `${time}, instance ${index}`);
      }
    };
    const [here, there] = feeds;
    await here.publish({ id: 'Swift', version: '1.0.0', description: 'first' });
    const first = ['1.0.0 true first'];
    await show(['1.0.0'], first);
    await there.publish({ id: 'Swift', version: '1.1.0', description: 'second' });
    await show(['1.0.0', '1.1.0'], [...first, '1.1.0 true second']);
    await here.fetch('/push/swift/1.1.0', { method: 'DELETE' });
    await show(['1.0.0', '1.1.0'], [...first, '1.1.0 false second']);
    await there.fetch('/push/swift/1.1.0', { method: 'POST' });
    await show(['1.0.0', '1.1.0'], [...first, '1.1.0 true second']);
    t.is((await here.server.fetch('/v1/packages/swift/1.1.0', { method: 'DELETE' })).status, 204);
    await show(['1.0.0'], first);
    await there.publish({ id: 'Swift', version: '1.1.0', description: 'third' });
    await show(['1.0.0', '1.1.0'], [...first, '1.1.0 true third']);
  });

  test(`an account never sees the packages of another account (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const ours = new TestFeed(server);
    const theirs = await TestFeed.ofAccount(server, 'theirs');
    await ours.publish({ id: 'Secret.Sauce', version: '1.0.0', tags: 'sauce', readme: 'hot' });
    await theirs.publish({ id: 'Theirs' });
    for (const path of [
      '/package/secret.sauce/index.json',
      '/package/secret.sauce/1.0.0/secret.sauce.1.0.0.nupkg',
      '/package/secret.sauce/1.0.0/secret.sauce.nuspec',
      '/package/secret.sauce/1.0.0/readme',
      '/registration/secret.sauce/index.json',
      '/registration-gz-semver2/secret.sauce/index.json',
      '/registration/secret.sauce/1.0.0.json',
      '/registration/secret.sauce/page/1.0.0/1.0.0.json',
    ]) {
      t.is((await theirs.fetch(path)).status, 404, path);
    }
    for (const query of [
      '',
      'q=secret.sauce',
      'q=secret',
      'q=sauce',
      'q=packageid:secret.sauce',
      'q=tags:sauce',
      'q=version:1.0.0',
    ]) {
      const ids = (await theirs.json(`/search?${query}`)).data.map((hit: any) => hit.id);
      t.false(ids.includes('Secret.Sauce'), query);
    }
    t.deepEqual((await theirs.json('/autocomplete?q=')).data, ['Theirs']);
    t.deepEqual((await theirs.json('/autocomplete?id=secret.sauce')).data, []);
    t.is((await theirs.fetch('/push/secret.sauce/1.0.0', { method: 'DELETE' })).status, 404);
    t.is((await theirs.push({ id: 'Secret.Sauce', version: '1.0.0' })).status, 201, 'each account can use every id');
    t.is((await theirs.fetch('/push/secret.sauce/1.0.0', { method: 'DELETE' })).status, 204);
    t.true((await ours.json('/registration/secret.sauce/1.0.0.json')).listed);
    const { items } = (await (await server.fetch('/v1/packages')).json()) as { items: unknown[] };
    t.is(items.length, 1);
  });

  test(`each complete download is counted once, and counts survive a restart (${dialect})`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { database: { url } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Counted', version: '1.0.0' }, { id: 'Counted', version: '2.0.0' });
    const get = async (version: string, init: RequestInit = {}) =>
      (await feed.fetch(`/package/counted/${version}/counted.${version}.nupkg`, init)).arrayBuffer();
    await get('1.0.0');
    await Promise.all([get('2.0.0'), get('2.0.0'), get('2.0.0')]);
    await get('1.0.0', { method: 'HEAD' });
    await get('1.0.0', { headers: { range: 'bytes=0-1' } });
    await get('3.0.0');
    await feed.fetch('/package/counted/1.0.0/counted.nuspec');
    server.clock.now = Date.UTC(2027, 0, 1);
    await get('1.0.0');
    await server.close();
    const again = await startTestServer(t, { data: server.data, database: { url } });
    const details = (await (await again.fetch('/v1/packages/counted')).json()) as any;
    t.is(details.download_count, 5);
    t.is(details.last_downloaded_at, '2027-01-01T00:00:00.000Z');
    t.deepEqual(
      details.versions.map((each: any) => [each.version, each.download_count]),
      [
        ['2.0.0', 3],
        ['1.0.0', 2],
      ],
    );
  });
}

test('a list of packages continues at its cursor', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish(
    { id: 'B' },
    { id: 'a.b' },
    { id: 'A' },
    { id: 'c', version: '1.0.0-x.1', packageTypes: [{ name: 'DotnetTool' }] },
  );
  const list = async (query: string) => (await (await server.fetch(`/v1/packages?${query}`)).json()) as any;
  const first = await list('limit=2');
  t.deepEqual(
    first.items.map(({ id }: any) => id),
    ['A', 'a.b'],
  );
  const second = await list(`limit=5&cursor=${first.next_cursor}`);
  t.deepEqual(
    second.items.map((each: any) => [each.id, each.latest_version, each.package_type]),
    [
      ['B', '1.0.0', 'Dependency'],
      ['c', '1.0.0-x.1', 'DotnetTool'],
    ],
  );
  t.is(second.next_cursor, null);
  await feed.publish({ id: 'c', version: '1.0.0' });
  for (const [query, ids] of [
    ['sort=versions', ['c', 'A', 'a.b', 'B']],
    ['q=B', ['a.b', 'B']],
    ['', ['A', 'a.b', 'B', 'c']],
  ] as const) {
    const { items } = await list(query);
    t.deepEqual(
      items.map(({ id }: any) => id),
      ids,
      query,
    );
  }
});
