import test from 'ava';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { rowsOf } from '../support/inside.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import type { TestServer } from '../support/server.ts';

// What upstreams withdraw after a first bundle has brought it (docs/mirror.md, "When an upstream withdraws content").

const marks = (server: TestServer) =>
  rowsOf<{ reference: string; at: number | null }>(
    server,
    'SELECT reference, withdrawn_at AS at FROM mirror_withdrawn ORDER BY reference',
  );

test('a version that is withdrawn after the first bundle stays at the far side, and is marked until it is offered again', async (t) => {
  const gap = await startAirGap(t, { freshFor: '1ms', negativeFor: '1ms' });
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const versions = [{ version: '1.0.0' }, { version: '2.0.0' }];
  await feed.offer({ id: 'Lib', versions });
  registry.image('library/app', '1');
  const list = await file('list.txt', 'Lib@1.0.0\nLib@2.0.0\napp:1\n');
  const make = (name: string) => near.ok('bundle', 'create', list, '--to', path(name), '--key', key);
  await make('first');
  await far.ok('bundle', 'import', path('first'));

  await feed.offer({ id: 'Lib', versions: versions.slice(1) });
  feed.upstream.on('/flat/lib/1.0.0/lib.1.0.0.nupkg', answer(404));
  registry.on('/v2/library/app/manifests/1', answer(404));
  const source = await near.serve();
  const ask = async () => {
    await source.fetch('/v3/package/lib/index.json');
    await source.fetch('/v2/app/manifests/1');
    return (await marks(source)).filter(({ at }) => at !== null).length;
  };
  for (let times = 0; (await ask()) < 2 && times < 100;) times += 1;
  const told = await marks(source);
  t.deepEqual(
    told.map(({ reference, at }) => [reference, at === null]),
    [
      ['1', false],
      ['1.0.0', false],
    ],
  );
  await make('second');
  t.regex(await far.ok('bundle', 'verify', path('second'), '--for', list), /found: 2 packages/);
  await far.ok('bundle', 'import', path('second'));
  const server = await far.serve();
  const listed = async () => (await server.fetch('/v3/package/lib/index.json')).json();
  t.deepEqual(await listed(), { versions: ['1.0.0', '2.0.0'] });
  t.deepEqual(await marks(server), told);
  const cacheOf = async (at: string) => (await server.fetch(at)).headers.get('cache-status');
  t.is(await cacheOf('/v3/package/lib/1.0.0/lib.1.0.0.nupkg'), 'entrepot; hit; detail=withdrawn');
  t.is((await server.fetch('/v2/app/manifests/1')).status, 200);

  await feed.offer({ id: 'Lib', versions });
  await source.fetch('/v3/package/lib/index.json');
  await make('third');
  await far.ok('bundle', 'import', path('third'));
  t.deepEqual(
    (await marks(server)).map(({ reference }) => reference),
    ['1'],
  );
  // Twice, and an older one, change nothing.
  await far.ok('bundle', 'import', path('second'));
  await far.ok('bundle', 'import', path('first'));
  t.deepEqual(
    (await marks(server)).map(({ reference }) => reference),
    ['1'],
  );
  t.deepEqual(await listed(), { versions: ['1.0.0', '2.0.0'] });
  t.is(await cacheOf('/v3/package/lib/1.0.0/lib.1.0.0.nupkg'), 'entrepot; hit');
  await Promise.all([source.close(), server.close()]);
});
