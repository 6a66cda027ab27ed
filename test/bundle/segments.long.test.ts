import { cp, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { databaseOf } from '../support/inside.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';

// Segments: whole content is packed, larger content is cut, and they are imported in any order.

const size = 1_200_000;

test('segments are imported in any order and in several goes; nothing is shown before the last one', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  // Each image has 200 kB of content.
  const images = Array.from({ length: 12 }, (_, at) => registry.image(`team/app${at}`, '1'));
  const list = await file('list.txt', images.map((_, at) => `docker.io/team/app${at}:1`).join('\n'));
  const made = await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--segment', `${size}B`);
  const segments = await readdir(path('bundle'));
  t.true(segments.length >= 3, made);
  for (const each of segments) t.true((await stat(join(path('bundle'), each))).size <= size, each);

  const [first, ...rest] = segments.toReversed();
  const part = path('part');
  await mkdir(part);
  await cp(join(path('bundle'), first!), join(part, first!));
  t.regex(await far.fails('bundle', 'import', part), /nothing is shown yet, because 0001\.tar.* are missing/);
  const server = await far.serve();
  t.is((await server.fetch('/v2/team/app0/manifests/1')).status, 502);
  // What was stored is not needed any more, and its medium may be away.
  await rm(part, { recursive: true });
  await mkdir(path('rest'));
  for (const each of rest) await rename(join(path('bundle'), each), join(path('rest'), each));
  t.regex(await far.ok('bundle', 'import', path('rest')), /manifests: 24/);
  for (const [at, { manifest, layer }] of images.entries()) {
    const answer = await server.fetch(`/v2/team/app${at}/manifests/1`);
    t.is(await answer.text(), manifest.bytes);
    const body = await (await server.fetch(`/v2/team/app${at}/blobs/${layer.digest}`)).arrayBuffer();
    t.true(layer.bytes.equals(Buffer.from(body)));
  }
  await server.close();
});

test('content that is larger than a segment is cut, and put together again', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const big = Buffer.alloc(3_000_000, 'content ');
  const layer = registry.blob('team/big', big);
  const config = registry.blob('team/big', '{}');
  registry.manifest(
    'team/big',
    { schemaVersion: 2, mediaType: 'application/vnd.oci.image.manifest.v1+json', config, layers: [layer] },
    '1',
  );
  const list = await file('list.txt', 'docker.io/team/big:1');
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--segment', '1MiB');
  const segments = await readdir(path('bundle'));
  t.true(segments.length >= 4);
  for (const each of segments) t.true((await stat(join(path('bundle'), each))).size <= 2 ** 20, each);
  t.regex(await far.ok('bundle', 'verify', path('bundle')), /checked \d+ items/);
  await far.ok('bundle', 'import', path('bundle'));
  const server = await far.serve();
  const body = await (await server.fetch(`/v2/team/big/blobs/${layer.digest}`)).arrayBuffer();
  t.true(Buffer.from(body).equals(big));
  await server.close();
  t.regex(
    await near.fails('bundle', 'create', list, '--to', path('small'), '--segment', '100kB'),
    /a segment needs at least \d+ MiB/,
  );
});

test('segments of two bundles are not mixed, and a folder that is not empty is not used', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  registry.image('library/redis', '7');
  registry.image('library/redis', '8');
  for (const tag of ['7', '8']) {
    const list = await file(`list${tag}.txt`, `redis:${tag}`);
    await near.ok('bundle', 'create', list, '--to', path(`bundle${tag}`), '--key', key);
  }
  const [one, other] = [join(path('bundle7'), '0001.tar'), join(path('bundle8'), '0001.tar')];
  t.regex(await far.fails('bundle', 'import', one, other), /belongs to another bundle/);
  t.regex(
    await near.fails('bundle', 'create', path('list7.txt'), '--to', path('bundle8')),
    /bundle8 is not empty: it has 0001\.tar\. Name a new folder/,
  );
});

test('an import that waits for its other segments for a month is given up', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const images = Array.from({ length: 6 }, (_, at) => registry.image(`team/app${at}`, '1'));
  const list = await file('list.txt', images.map((_, at) => `docker.io/team/app${at}:1`).join('\n'));
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--segment', '1MiB');
  await far.fails('bundle', 'import', join(path('bundle'), '0001.tar'));
  registry.image('team/other', '1');
  await near.ok('bundle', 'create', await file('o.txt', 'docker.io/team/other:1'), '--to', path('other'), '--key', key);
  const server = await far.serve();
  const staged = async () =>
    (await databaseOf(server).get<{ count: number }>('SELECT COUNT(*) AS count FROM mirror_staged'))!.count;
  t.true((await staged()) > 0);
  await databaseOf(server).transaction((tx) => tx.run('UPDATE bundles SET changed_at = changed_at - 31 * 86400000'));
  await far.ok('bundle', 'import', path('other'));
  t.is(await staged(), 0);
  await server.close();
});
