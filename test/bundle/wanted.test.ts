import { readFile } from 'node:fs/promises';
import test from 'ava';
import { startAirGap, trustedKey } from '../support/bundles.ts';

// What clients of the far side ask for in vain is carried back, and comes with the next bundle.

test('what was asked for in vain is listed until it is here, and the list makes the next bundle', async (t) => {
  const gap = await startAirGap(t);
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '1.1.0' }] });
  await feed.offer({ id: 'Other', versions: [{ version: '2.0.0' }, { version: '2.1.0' }] });
  registry.image('library/redis', '7');
  const image = registry.image('team/app', '1');
  await near.ok('bundle', 'create', await file('list.txt', 'Lib@1.0.0\nredis:7'), '--to', path('first'), '--key', key);
  await far.ok('bundle', 'import', path('first'));
  const server = await far.serve();
  const wanted = async () => {
    await far.ok('wanted', '--to', path('wanted.txt'));
    return (await readFile(path('wanted.txt'), 'utf8')).trimEnd().split('\n').slice(1).toSorted();
  };
  t.deepEqual(await wanted(), []);
  const paths = [
    '/v3/package/lib/1.1.0/lib.1.1.0.nupkg',
    '/v3/package/other/index.json',
    '/v2/redis/manifests/8',
    '/v2/docker.io/team/app/manifests/1',
    `/v2/team/app/manifests/${image.manifest.digest}`,
    // It is not wanted: the version is here.
    '/v3/package/lib/1.0.0/icon',
  ];
  for (const each of paths) t.true((await server.fetch(each)).status >= 500, each);
  // Written with the next flush, or read from memory by the server itself.
  t.is((await server.fetch('/v1/failed-requests')).status, 200);
  const lines = ['docker.io/library/redis:8', 'docker.io/team/app:1', `docker.io/team/app@${image.manifest.digest}`];
  t.deepEqual(await wanted(), [...lines, 'lib@1.1.0', 'other@*'].toSorted());

  t.regex(
    await near.fails('bundle', 'create', path('wanted.txt'), '--to', path('second'), '--key', key),
    /docker\.io\/library\/redis:8.*missing[^]*1 missing, so no bundle was written|missing: docker\.io\/library\/redis:8/,
  );
  await near.ok('bundle', 'create', path('wanted.txt'), '--to', path('second'), '--key', key, '--allow-missing');
  await far.ok('bundle', 'import', path('second'));
  for (const each of [paths[0]!, paths[1]!, paths[3]!, paths[4]!, '/v3/package/other/2.1.0/other.2.1.0.nupkg'])
    t.is((await server.fetch(each)).status, 200, each);
  t.deepEqual(await wanted(), ['docker.io/library/redis:8']);
  await server.close();
});

test('a list replaces an earlier list or an empty file, and nothing else', async (t) => {
  const { far, path, file } = await startAirGap(t);
  await far.ok('account', 'create', 'team');
  const other = await file('packages.lock.json', '{"version": 1}');
  t.regex(
    await far.fails('wanted', '--to', other),
    /packages\.lock\.json exists and is no list of what clients wanted\. Name a new file\n$/,
  );
  t.is(await readFile(other, 'utf8'), '{"version": 1}');
  for (const each of [path('new.txt'), path('new.txt'), await file('empty.txt', '')]) {
    t.regex(await far.ok('wanted', '--to', each), /: 0 wanted\n$/);
    t.regex(await readFile(each, 'utf8'), /^# What clients asked for in vain, until 2[^\n]*\n$/);
  }
});
