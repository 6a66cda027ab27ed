import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { emptyPlace, serveOn, type Installed } from '../../backup/support.ts';
import { Pushes } from '../../faults/pushes.ts';
import { dialects } from '../../support/databases.ts';
import { damages, filesOf } from '../../support/damage.ts';
import type { Dialect } from '../../../src/database/database.ts';
import { TestFeed } from '../../support/feed.ts';
import { entrepot } from '../../support/in-process.ts';
import { databaseOf, runJob } from '../../support/inside.ts';
import { TestRepository } from '../../support/registry.ts';
import { startS3, type FakeS3 } from '../../support/s3.ts';
import { until } from '../../support/until.ts';

// `entrepot storage copy` beside a whole server.

const main = join(import.meta.dirname, '../../../bin/entrepot.js');

interface SetUp {
  s3: FakeS3;
  place: Installed;
  /** Settings of a server with its content in the bucket. */
  inBucket: Record<string, unknown>;
  copy: (to: string, ...words: string[]) => ReturnType<typeof entrepot>;
}

async function setUp(t: ExecutionContext, dialect: Dialect = 'sqlite'): Promise<SetUp> {
  const s3 = await startS3(t);
  const place = await emptyPlace(t, dialect);
  Object.assign(place.environment, {
    ENTREPOT_STORAGE_S3_ENDPOINT: s3.endpoint,
    ENTREPOT_STORAGE_S3_BUCKET: s3.bucket,
    ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
    ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: 'key',
    ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: 'secret',
  });
  const access = { forcePathStyle: true, accessKeyId: 'key', secretAccessKey: 'secret' };
  const storage = { driver: 's3', s3: { endpoint: s3.endpoint, bucket: s3.bucket, ...access } };
  return {
    s3,
    place,
    inBucket: { storage, gc: { grace: '0s' } },
    copy: (to, ...words) => entrepot(place.environment, 'storage', 'copy', '--to', to, '--rate', '10GiB', ...words),
  };
}

const isPut = ({ method, key }: { method: string; key: string }) => method === 'PUT' && key.startsWith('blobs/');

test('content moves from the folder to S3 and back while clients push, and nothing is lost', async (t) => {
  const { s3, place, copy, inBucket } = await setUp(t);
  const pushes = new Pushes();
  const copyWhilePushing = async (url: string, to: string) => {
    const stop = new AbortController();
    const pushing = pushes.run([url], 2, stop.signal);
    const copied = await copy(to).finally(() => stop.abort());
    await pushing;
    t.deepEqual([copied.code, copied.stderr], [0, '']);
    t.regex(copied.stdout, /copied [1-9]/);
    const name = to === 's3' ? `bucket ${s3.bucket}` : `data folder ${place.data}`;
    t.true(copied.stdout.includes(`${name}: `), copied.stdout);
    t.true(copied.stdout.includes(`set storage.driver: ${to} (ENTREPOT_STORAGE_DRIVER=${to})`), copied.stdout);
  };
  const first = await serveOn(t, place);
  await pushes.push(first.url, 5);
  await copyWhilePushing(first.url, 's3');
  await first.close();
  t.is((await copy('s3')).code, 0, 'what was pushed after the copy');
  await rename(join(place.data, 'blobs'), join(place.folder, 'old'));

  const second = await serveOn(t, place, inBucket);
  t.deepEqual(await pushes.check(second.url), { lost: 0, halfVisible: 0, defects: [] });
  await pushes.push(second.url, 2);
  await rm(join(place.data, 'cache'), { recursive: true });
  place.environment['ENTREPOT_STORAGE_DRIVER'] = 's3';
  await copyWhilePushing(second.url, 'filesystem');
  await second.close();
  t.is((await copy('filesystem')).code, 0);

  const third = await serveOn(t, place);
  t.deepEqual(await pushes.check(third.url), { lost: 0, halfVisible: 0, defects: [] });
  delete place.environment['ENTREPOT_STORAGE_DRIVER'];
  t.is((await entrepot(place.environment, 'verify')).code, 0);
});

for (const dialect of dialects) {
  test(`${dialect}: a blob that is pushed while the last known one is copied is there at the end`, async (t) => {
    const { s3, place, copy } = await setUp(t, dialect);
    const server = await serveOn(t, place);
    const feed = new TestFeed(server);
    await feed.publish({ id: 'First' });
    let pushing: Promise<void> | undefined;
    s3.fault = (request) => (isPut(request) ? { after: (pushing ??= feed.publish({ id: 'During' })) } : undefined);
    const copied = await copy('s3');
    t.deepEqual([copied.code, copied.stderr], [0, '']);
    const blobs = [...s3.objects.keys()].filter((key) => key.startsWith('blobs/'));
    const rows = await databaseOf(server).select("SELECT digest FROM blobs WHERE state = 'live'");
    t.is(blobs.length, rows.length);
    t.true(rows.length >= 4);
  });
}

test('a copy that was killed continues, the collector waits, and no server starts on a part', async (t) => {
  const { s3, place, copy, inBucket } = await setUp(t);
  const server = await serveOn(t, place, { gc: { grace: '0s' } });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'A' }, { id: 'B' }, { id: 'C' }, { id: 'D' });
  const rows = await databaseOf(server).select("SELECT digest FROM blobs WHERE state = 'live'");
  let puts = 0;
  s3.fault = (request) => (isPut(request) && (puts += 1) > 2 ? 'silent' : undefined);
  const child = spawn(process.execPath, [main, 'storage', 'copy', '--to', 's3'], {
    env: { PATH: process.env['PATH'], ...place.environment },
    stdio: 'ignore',
  });
  t.teardown(() => child.kill('SIGKILL'));
  await until(() => puts > 2, 60_000);
  t.is((await server.fetch('/v1/packages/A/1.0.0', { method: 'DELETE' })).status, 204);
  server.clock.now = Date.now() + 10_000_000;
  t.like(await runJob(server, 'gc'), { blobs: 0, held: 1 });
  child.kill('SIGKILL');
  await once(child, 'exit');
  const stored = [...s3.objects.keys()].filter((key) => key.startsWith('blobs/'));
  t.true(stored.length > 0 && stored.length < rows.length, String(stored.length));
  const early = await t.throwsAsync(serveOn(t, place, inBucket));
  t.regex(early.message, /run "entrepot storage copy --to"/);

  s3.fault = () => undefined;
  s3.requests.length = 0;
  const again = await copy('s3');
  t.deepEqual([again.code, again.stderr], [0, '']);
  t.is(s3.requests.filter(isPut).length, rows.length - stored.length, 'only the rest');
  t.regex((await copy('s3')).stdout, /copied 0, 0 B/);
});

test('damaged and missing blobs of the source are named and not copied; a blob that is whole in the target is not read', async (t) => {
  const { s3, place, copy } = await setUp(t);
  const server = await serveOn(t, place);
  const repository = new TestRepository(server, 'team/app');
  const [flipped, cut, missing, sound] = [
    await repository.blob('one'),
    await repository.blob('two'),
    await repository.blob('three'),
    await repository.blob('four'),
  ];
  await repository.image('1.0', { layers: [flipped, cut, missing, sound] });
  await damages.flipped(filesOf(server, flipped.digest).stored);
  await damages.truncated(filesOf(server, cut.digest).stored);
  await damages.missing(filesOf(server, missing.digest).stored);
  const copied = await copy('s3');
  t.is(copied.code, 1);
  t.regex(copied.stderr, /except 3 blobs that are missing or damaged in the source itself: sha256:/);
  for (const [kind, { digest }] of [
    ['damaged', flipped],
    ['damaged', cut],
    ['missing', missing],
  ] as const) {
    t.true(copied.stdout.includes(`${kind} ${digest}: `), `${kind} ${copied.stdout}`);
    t.false(
      [...s3.objects.keys()].some((key) => key.endsWith(digest.slice('sha256:'.length))),
      kind,
    );
  }
  t.is(copied.stdout.match(/not copied/g)?.length, 3, 'each is tried once, although there is a second pass');
  const key = [...s3.objects.keys()].find((each) => each.endsWith(sound.digest.slice('sha256:'.length)))!;
  t.is(s3.objects.get(key)?.bytes.toString(), 'four');
  // A part of it is not the blob.
  s3.objects.set(key, { ...s3.objects.get(key)!, bytes: Buffer.from('fo') });
  t.regex((await copy('s3')).stderr, /except 3 blobs/);
  t.is(s3.objects.get(key)?.bytes.toString(), 'four');
  await damages.flipped(filesOf(server, sound.digest).stored);
  t.regex((await copy('s3')).stderr, /except 3 blobs/);
});

test('a copy needs a bucket that can be used, and that is no other installation’s', async (t) => {
  const { s3, place, copy } = await setUp(t);
  await serveOn(t, place);
  t.regex((await copy('tape')).stderr, /s3, filesystem/);
  t.regex((await copy('s3', '--rate', 'fast')).stderr, /--rate needs a size/);
  s3.fault = () => ({ code: 'InvalidAccessKeyId', status: 403 });
  t.regex((await copy('s3')).stderr, /^entrepot: ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: /);
  s3.fault = () => undefined;
  s3.objects.set('identity', { bytes: Buffer.from('another'), modified: new Date(), etag: '"x"' });
  t.regex((await copy('s3')).stderr, /belongs to another installation/);
  t.false([...s3.objects.keys()].some((key) => key.startsWith('blobs/')));
  delete place.environment['ENTREPOT_STORAGE_S3_BUCKET'];
  t.regex((await copy('s3')).stderr, /^entrepot: ENTREPOT_STORAGE_S3_BUCKET: /);
});
