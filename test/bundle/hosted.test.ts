import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { TestFeed } from '../support/feed.ts';
import { databaseOf, rowsOf, tokenOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { create, hostContent, hostedOn, isListed, shownBy } from './hosted-suite.ts';

// Bundles with what accounts host.

hostedOn('sqlite');

test('a delta against a receipt has only what is new; a tag moves, an unlisted version comes back', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  const { feed, repository } = await hostContent(source);
  await create(gap, 'whole', key);
  await far.ok('bundle', 'import', path('whole'));
  await far.ok('bundle', 'keygen', '--to', path('far.key'));
  await near.ok('bundle', 'trust', 'add', path('far.key.pub'), '--role', 'receipts');
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--key', path('far.key'), '--hosted', 'default');
  await feed.publish({ id: 'Contoso.Lib', version: '3.0.0' });
  await source.fetch('/v3/push/Contoso.Lib/1.0.0', { method: 'POST', headers: { 'x-nuget-apikey': source.token } });
  const moved = await repository.image('1.0');
  t.regex(await create(gap, 'delta', key, '--against', path('receipt')), /left out: (?:[5-9]|\d\d+) items/);
  const [whole, delta] = await Promise.all(['whole', 'delta'].map((name) => stat(join(path(name), '0001.tar'))));
  t.true(delta!.size < whole!.size);

  const server = await far.serve();
  await far.ok('bundle', 'import', path('delta'));
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0', '2.0.0', '3.0.0']);
  const found = await server.fetch('/v2/team/app/manifests/1.0');
  t.is(found.headers.get('docker-content-digest'), moved.digest);
  t.deepEqual(await rowsOf(server, isListed), [{ listed: 1 }]);
  const history = await rowsOf(
    server,
    "SELECT digest FROM history WHERE kind = 'tag' AND reference = '1.0' ORDER BY id",
  );
  t.is(history.length, 2, 'the history of the tag travels');

  // The older bundle brings no tag back, and unlists nothing.
  t.regex(await far.ok('bundle', 'import', path('whole')), /imported before/);
  const older = await server.fetch('/v2/team/app/manifests/1.0');
  t.is(older.headers.get('docker-content-digest'), moved.digest);
  t.deepEqual(await rowsOf(server, isListed), [{ listed: 1 }]);
});

for (const against of ['receipt', 'whole'])
  test(`a layer that the receiver has in one account comes again for its mirror and another account (against the ${against})`, async (t) => {
    const gap = await startAirGap(t);
    const { registry, near, far, path, file } = gap;
    const key = await trustedKey(gap);
    // A public image, and images of two accounts that are built on it.
    const base = registry.image('library/base', '1');
    const source = await near.serve();
    const build = async (name: string, token?: string) => {
      const repository = new TestRepository(source, name, token);
      const layers = [await repository.blob(base.layer.bytes, base.layer.mediaType)];
      return repository.image('1', { layers });
    };
    await build('team/app');
    await create(gap, 'whole', key);
    await far.ok('bundle', 'import', path('whole'));
    await far.ok('bundle', 'receipt', '--to', path('receipt'), '--hosted', 'default');

    const tool = await build('team/tool', await tokenOf(source, ['read', 'write'], 'other'));
    await far.ok('account', 'create', 'other');
    const list = await file('list.txt', 'base:1\n');
    const words = [list, '--hosted', 'other', '--to', path('delta'), '--key', key, '--against', path(against)];
    await near.ok('bundle', 'create', ...words);
    await far.ok('bundle', 'import', path('delta'));
    const server = await far.serve();
    const other = new TestRepository(server, 'team/tool', await tokenOf(server, ['read'], 'other'));
    t.is(await (await other.fetch('manifests/1')).text(), tool.bytes);
    const { digest, bytes } = base.layer;
    for (const found of [await other.fetch(`blobs/${digest}`), await server.fetch(`/v2/base/blobs/${digest}`)])
      t.deepEqual(Buffer.from(await found.arrayBuffer()), bytes);
  });

test('other bytes under a name refuse the whole bundle, and nothing of it is shown', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  await hostContent(await near.serve());
  await create(gap, 'bundle', key);
  const server = await far.serve();
  const own = new TestFeed(server);
  t.is((await own.push(await makeNupkg({ id: 'Contoso.Lib', version: '2.0.0', description: 'Mine' }))).status, 201);
  t.regex(await far.fails('bundle', 'import', path('bundle')), /hosts Contoso\.Lib 2\.0\.0 already, with other bytes/);
  t.deepEqual(await shownBy(t, server), { versions: ['2.0.0'], tags: [] });
  await server.fetch('/v1/packages/Contoso.Lib/2.0.0', { method: 'DELETE' });
  await far.ok('bundle', 'import', path('bundle'));
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0', '2.0.0']);
});

test('a deprecation that cannot be read refuses the bundle', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  await new TestFeed(source).publish({ id: 'Contoso.Lib' });
  for (const [at, text] of ['{', '{}', 'null', '{"reasons":["Legacy"],"alternatePackage":{"id":7}}'].entries()) {
    await databaseOf(source).transaction((tx) => tx.run('UPDATE package_versions SET deprecation = ?', [text]));
    await create(gap, `bundle${at}`, key);
    t.regex(await far.fails('bundle', 'import', path(`bundle${at}`)), /a wrong deprecation of contoso\.lib/, text);
  }
});

test('a version without the time of its push refuses the bundle', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  await new TestFeed(source).publish({ id: 'Contoso.Lib' });
  const latest = 8.64e15;
  for (const time of [-1, latest]) {
    await databaseOf(source).transaction((tx) => tx.run('UPDATE package_versions SET published_at = ?', [time]));
    await create(gap, `bundle${time}`, key);
    if (time === latest) await far.ok('bundle', 'import', path(`bundle${time}`));
    else {
      const told = /does not say when contoso\.lib 1\.0\.0 was published/;
      t.regex(await far.fails('bundle', 'import', path(`bundle${time}`)), told, String(time));
    }
  }
});
