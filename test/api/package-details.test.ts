import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { damages, filesOf } from '../support/damage.ts';
import { createToken, flushUsage, rowsOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

async function versionsOf(server: TestServer, id: string, query = ''): Promise<string[]> {
  const found: string[] = [];
  for (let cursor = ''; ;) {
    const page: any = await (await server.fetch(`/v1/packages/${id}/versions?limit=2${query}${cursor}`)).json();
    found.push(...page.items.map(({ version }: any) => version));
    if (page.next_cursor === null) return found;
    cursor = `&cursor=${page.next_cursor}`;
  }
}

for (const dialect of dialects) {
  test(`${dialect}: versions are listed in their order, page by page, hosted and mirrored, and described`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const server = await startMirrorOf(t, [up.as('up.test')], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const document = await OpenDocument.of(server);
    const feed = new TestFeed(server);
    const order = ['10.0.0', '2.0.0', '2.0.0-rc.1', '1.10.0', '1.2.0'];
    for (const version of order) await feed.publish({ id: 'Hosted', version, tags: 'a b', readme: '# R' });
    await up.offer({ id: 'Mirrored', versions: order.toReversed().map((version) => ({ version })) });
    for (const version of order) {
      await (await feed.fetch(`/package/mirrored/${version}/mirrored.${version}.nupkg`)).arrayBuffer();
    }
    for (const id of ['hosted', 'mirrored'])
      await (await feed.fetch(`/package/${id}/2.0.0/${id}.2.0.0.nupkg`)).arrayBuffer();
    for (const id of ['Hosted', 'Mirrored']) {
      t.deepEqual(await versionsOf(server, id), order, id);
      t.deepEqual(await versionsOf(server, id, '&sort=oldest'), order.toReversed(), id);
      const byUse = ['2.0.0', '1.2.0', '1.10.0', '2.0.0-rc.1', '10.0.0'];
      // A download counts when its answer has ended here, which may be after its client has it.
      const used = async () => {
        await flushUsage(server);
        return versionsOf(server, id, '&sort=downloads');
      };
      t.deepEqual(await eventually(used, (found) => found.join() === byUse.join()), byUse, id);
      t.deepEqual(await versionsOf(server, id, '&q=2.0.0-RC'), ['2.0.0-rc.1'], id);
      const range = encodeURIComponent('(1.2.0, 10.0.0)');
      t.deepEqual(await versionsOf(server, id, `&range=${range}`), ['2.0.0', '2.0.0-rc.1', '1.10.0'], id);
      await document.read('GET /packages/{id}/versions', await server.fetch(`/v1/packages/${id}/versions`));
      const one = await document.read('GET /packages/{id}/{version}', await server.fetch(`/v1/packages/${id}/1.2`));
      t.like(one, { id, version: '1.2.0', origin: id.toLowerCase(), listed: true, is_advice_known: true });
    }
    const hosted: any = await (await server.fetch('/v1/packages/hosted/2.0.0')).json();
    t.like(hosted, { readme: '# R', tags: ['a', 'b'], upstream: null, is_readme_whole: true });
    t.is((await server.fetch('/v1/packages/none/versions')).status, 404);
    t.is((await server.fetch('/v1/packages/none/1.0.0')).status, 404);
    const origin = async (query: string) => {
      const { items }: any = await (await server.fetch(`/v1/packages?origin=${query}`)).json();
      return items.map(({ id }: any) => id);
    };
    t.deepEqual([await origin('hosted'), await origin('mirrored')], [['Hosted'], ['Mirrored']]);
    t.is((await server.fetch('/v1/packages?origin=x')).status, 400);
  });
}

test('a long README is cut, and a damaged one is left out', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Long', readme: 'a'.repeat(150_000) });
  const long: any = await (await server.fetch('/v1/packages/Long/1.0.0')).json();
  t.deepEqual([long.readme.length, long.is_readme_whole], [100_000, false]);
  await feed.publish({ id: 'Damaged', readme: '# Lost' });
  const [row] = await rowsOf<{ digest: string }>(
    server,
    'SELECT readme_digest AS digest FROM package_versions ORDER BY id DESC',
  );
  await damages.missing(filesOf(server, row!.digest).stored);
  const damaged: any = await (await server.fetch('/v1/packages/Damaged/1.0.0')).json();
  t.like(damaged, { readme: null, id: 'Damaged', description: 'About Damaged' });
});

test('with anonymousRead mirrored, a visitor without a token sees only versions of upstreams', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')], { anonymousRead: 'mirrored' });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Hosted' });
  await up.offer({ id: 'Mirrored', versions: [{ version: '1.0.0' }] });
  await (await feed.fetch('/package/mirrored/1.0.0/mirrored.1.0.0.nupkg')).arrayBuffer();
  const status = async (path: string) => (await server.fetch(path, { token: null })).status;
  t.is(await status('/v1/packages/Mirrored/1.0.0'), 200);
  t.is(await status('/v1/packages/Mirrored/versions'), 200);
  t.is(await status('/v1/packages/Hosted/1.0.0'), 401);
  t.is(await status('/v1/packages/Hosted/versions'), 401);
});

test('a dependency is marked only for who may read the package that it names', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const dependencies = ['Old', 'Fine'].map((id) => ({ id, version: '1.0.0' }));
  await feed.publish({ id: 'Old' }, { id: 'Fine' }, { id: 'App', dependencies });
  const deprecated = await server.fetch('/v1/packages/Old/1.0.0/deprecation', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ reasons: ['Legacy'] }),
  });
  t.true(deprecated.ok);
  const marks = async (token?: string) => {
    const details: any = await (await server.fetch('/v1/packages/App/1.0.0', { ...(token && { token }) })).json();
    return details.dependency_groups[0].dependencies.map((each: any) => [each.id, each.deprecated]);
  };
  const limitedTo = async (...packages: string[]) =>
    (await createToken(server, ['read'], 'default', { packages })).value;
  const known = [
    ['Old', true],
    ['Fine', false],
  ];
  // A first answer may come before the marks are collected.
  await eventually(marks, (found) => found[0][1]);
  t.deepEqual(await marks(), known);
  t.deepEqual(await marks(await limitedTo('App', 'Old')), known);
  t.deepEqual(await marks(await limitedTo('App')), [
    ['Old', false],
    ['Fine', false],
  ]);
});
