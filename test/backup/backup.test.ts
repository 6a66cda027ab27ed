import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { openArchive } from '../../src/backup/archive.ts';
import { backUp, type BackupTarget } from '../../src/backup/backup.ts';
import { openFolder, readFolder } from '../../src/backup/folder.ts';
import { readTables } from '../../src/database/tables.ts';
import type { Digest } from '../../src/runtime/digest.ts';
import { folderStorage } from '../../src/server/place.ts';
import { dialects, openUntilEnd } from '../support/databases.ts';
import { flipBit } from '../support/damage.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, runJob } from '../support/inside.ts';
import { TestFeed } from '../support/feed.ts';
import { digestOf, TestRepository } from '../support/registry.ts';
import { blobKey, s3Environment, s3Storage, startS3 } from '../support/s3.ts';
import { until } from '../support/until.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { missingIn } from '../support/withdrawn.ts';
import { backUpAndRestore } from './round-trip.ts';
import { emptyPlace, serveOn } from './support.ts';

test('sqlite to sqlite by folder: all that was acknowledged before the backup can be pulled after the restore', (t) =>
  backUpAndRestore(t, 'sqlite', 'sqlite', 'folder'));

test('a place that is not empty is left alone', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'First', version: '1.0.0' });
  const target = join(place.folder, 'backup.tar');
  t.is((await entrepot(place.environment, 'backup', target)).code, 0);
  const rows = await entrepot(place.environment, 'restore', target);
  t.is(rows.code, 1);
  t.regex(rows.stderr, /the database is not empty/);
  const other = await emptyPlace(t, 'sqlite');
  const bytes = await entrepot({ ...place.environment, ENTREPOT_DATABASE_URL: other.url }, 'restore', target);
  t.is(bytes.code, 1);
  t.regex(bytes.stderr, /the storage is not empty/);
  t.is((await new TestFeed(server).fetch('/package/first/1.0.0/first.1.0.0.nupkg')).status, 200);
  const { stderr } = await entrepot(place.environment, 'backup', target);
  t.regex(stderr, /backup.tar exists already/);
});

test('a backup that lasts longer than staged files are kept names all content at its end', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const { core, references } = (await serveOn(t, place)).installation;
  const { database, blobs } = core;
  const digests = Array.from({ length: 2000 }, (_, index) => digestOf(String(index)));
  const row = { size: 1, state: 'live', stored_at: 0, generation: 1 };
  for (let start = 0; start < digests.length; start += 500) {
    const some = digests.slice(start, start + 500);
    await database.transaction((tx) =>
      tx.insertNew(
        'blobs',
        some.map((digest) => ({ digest, ...row })),
      ),
    );
  }
  const named: string[] = [];
  const target: BackupTarget = {
    begin: () => Promise.resolve(undefined),
    putRows: () => Promise.resolve(),
    has: () => Promise.resolve(true),
    isSound: () => Promise.resolve(true),
    putBlob: () => Promise.resolve(),
    putMissing: () => Promise.resolve(),
    finish: async (_manifest, all) => {
      const { files } = await blobs.expireStaged(Number.MAX_SAFE_INTEGER, () => Promise.resolve(false));
      t.true(files > 0);
      for await (const { digest } of all()) named.push(digest);
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  await backUp({ ...core, references }, target, { mirrored: true, rate: 2 ** 40 });
  t.deepEqual(named, digests.toSorted());
});

test('an incremental backup copies only new blobs, and removes those that no row names any more', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place, { gc: { grace: '0s' } });
  const feed = new TestFeed(server);
  const folder = join(place.folder, 'backup');
  await feed.publish({ id: 'Old', version: '1.0.0' }, { id: 'Kept', version: '1.0.0' });
  const back = (...words: string[]) => entrepot(place.environment, 'backup', folder, ...words);
  t.regex((await back('--incremental')).stdout, /(\d+) blobs.*copied \1,/);
  t.regex((await back()).stderr, /has a backup already.*--incremental/);
  t.regex((await back('--incremental')).stdout, /copied 0, 0 B/);
  t.is((await server.fetch('/v1/packages/Old/1.0.0', { method: 'DELETE' })).status, 204);
  await feed.publish({ id: 'New', version: '1.0.0' });
  server.clock.now = Date.now() + 10_000_000;
  await runJob(server, 'gc');
  // What a backup left that was killed.
  await writeFile(join(folder, 'staging', 'left'), 'x');
  t.regex((await back('--incremental')).stdout, / 4 blobs.*copied 2,/);
  t.is((await readdir(join(folder, 'rows'))).length, 1, 'one state');
  const files = await readdir(join(folder, 'blobs'), { recursive: true, withFileTypes: true });
  t.is(files.filter((each) => each.isFile()).length, 4);
  t.deepEqual([(await entrepot({}, 'verify', folder)).code, await readdir(join(folder, 'staging'))], [0, []]);
  const other = await openFolder({ path: folder, ...folderStorage(folder) }, true);
  t.regex((await back('--incremental')).stderr, /another backup writes to/);
  await other[Symbol.asyncDispose]();
  t.is((await back('--incremental')).code, 0);
  const refused = await entrepot(place.environment, 'backup', join(place.folder, 'x.tar'), '--incremental');
  t.regex(refused.stderr, /--incremental needs a folder/);
  t.regex((await entrepot(place.environment, 'backup', place.data)).stderr, /is not empty, and has no backup/);
});

test('a folder that a backup renews while it is read is named so, and not as damaged', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'One', version: '1.0.0' });
  const path = join(place.folder, 'backup');
  const back = () => entrepot(place.environment, 'backup', path, '--incremental');
  t.is((await back()).code, 0);
  const { paths, driver } = folderStorage(path);
  const read = async () => {
    let members = 0;
    for await (const { bytes } of readFolder({ path, paths, driver })) {
      for await (const each of bytes) t.true(each.length > 0);
      if ((members += 1) === 1) t.is((await back()).code, 0);
    }
  };
  const renewed = { name: 'Invalid', message: `${path} was renewed by a backup while it was read. Read it again` };
  await t.throwsAsync(read(), renewed);
  await driver.close();
  t.is((await entrepot({}, 'verify', path)).code, 0);
});

test('a restore of what is not there leaves its place as it was', async (t) => {
  const folder = await folderUntilEnd(t);
  const environment = { ENTREPOT_DATA: join(folder, 'data'), ENTREPOT_UPSTREAMS: '[]' };
  for (const source of ['none.tar', 'none']) {
    const failed = await entrepot(environment, 'restore', join(folder, source));
    t.is(failed.code, 1);
    t.regex(failed.stderr, /^entrepot: \S+ cannot be read: .*no such file/);
  }
  t.deepEqual(await readdir(folder), []);
  t.is((await entrepot(environment, 'token', 'create', '--name', 'x')).code, 0, 'no restore is unfinished');
});

test('of content in S3, a damaged object is left out and named, and a damaged local copy is not read', async (t) => {
  const s3 = await startS3(t);
  const place = await emptyPlace(t, 'sqlite');
  Object.assign(place.environment, s3Environment(s3));
  const server = await serveOn(t, place, { storage: s3Storage(s3) });
  const repository = new TestRepository(server, 'team/app');
  const kept = await repository.blob(randomBytes(300_000));
  const damaged = await repository.blob(randomBytes(300_000));
  const copies = join(place.data, 'cache');
  await until(async () => (await readdir(copies)).length === 2);
  await flipBit(join(copies, kept.digest.replace(':', '-')));
  const target = join(place.folder, 'backup.tar');
  t.like(await entrepot(place.environment, 'backup', target), { code: 0, stderr: '' });

  await rm(join(copies, damaged.digest.replace(':', '-')));
  const key = blobKey(damaged.digest as Digest);
  const stored = s3.objects.get(key)!;
  const bytes = Buffer.from(stored.bytes);
  bytes[0]! ^= 1;
  s3.objects.set(key, { ...stored, bytes });
  for (const name of ['second.tar', 'folder']) {
    const made = join(place.folder, name);
    const { code, stderr } = await entrepot(place.environment, 'backup', made);
    t.is(code, 1);
    t.true(stderr.includes(`1 blobs are missing or damaged in the storage itself: ${damaged.digest}.`), stderr);
    const { stdout } = await entrepot({}, 'verify', made);
    t.regex(stdout, new RegExp(`^(missing|damaged) ${damaged.digest}: already when the backup was made\n`));
  }
});

test('incremental backups that fail leave no more than the rows of the last one beside the earlier backup', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const { core, references } = (await serveOn(t, place)).installation;
  const folder = join(place.folder, 'backup');
  t.is((await entrepot(place.environment, 'backup', folder)).code, 0);
  for (let failed = 1; failed <= 3; failed += 1) {
    await using target = await openFolder({ path: folder, ...folderStorage(folder) }, true);
    const options = { mirrored: true, rate: 2 ** 40, onRows: () => Promise.reject(new Error('cut off')) };
    await t.throwsAsync(backUp({ ...core, references }, target, options), { message: 'cut off' });
    t.is((await readdir(join(folder, 'rows'))).length, 2, String(failed));
  }
  t.is((await entrepot({}, 'verify', folder)).code, 0);
  t.is((await entrepot(place.environment, 'backup', folder, '--incremental')).code, 0);
  t.is((await readdir(join(folder, 'rows'))).length, 1);
});

test('a backup keeps the reserve of the disk free, and only the rows of blobs until its end', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const { core, references } = (await serveOn(t, place)).installation;
  const full = { ...place.environment, ENTREPOT_STORAGE_RESERVE: '1048576GiB' };
  const target = join(place.folder, 'backup.tar');
  const refused = await entrepot(full, 'backup', target);
  t.is(refused.code, 1);
  t.regex(refused.stderr, /disk of this server is almost full/);
  t.deepEqual(await readdir(place.folder), ['data']);

  let staged: number | undefined;
  const onRows = async () => {
    staged = (await readdir(join(place.data, 'staging'))).length;
  };
  await using archive = await openArchive(target);
  await backUp({ ...core, references }, archive, { mirrored: true, rate: 2 ** 40, onRows });
  t.is(staged, 1);
});

async function versionsOf(feed: TestFeed): Promise<string[]> {
  return (await feed.json('/package/lib/index.json')).versions;
}

/** The status of a download. */
async function pull(feed: TestFeed, id: string, version: string): Promise<number> {
  const response = await feed.fetch(`/package/${id}/${version}/${id}.${version}.nupkg`);
  await response.arrayBuffer();
  return response.status;
}

for (const dialect of dialects) {
  test(`${dialect}: without mirrored content, what cannot be fetched again is in the backup: withdrawn names, and upstreams that are offline`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const packages = { Lib: ['1.0.0', '2.0.0'], Other: ['1.0.0'] };
    for (const [id, versions] of Object.entries(packages))
      await up.offer({ id, versions: versions.map((version) => ({ version })) });
    const place = await emptyPlace(t, dialect);
    const settings = { freshFor: '5m', negativeFor: '2m' };
    const server = await serveOn(t, place, { upstreams: [up.as('up.test', settings)] });
    server.clock.now = Date.now();
    const feed = new TestFeed(server);
    await versionsOf(feed);
    for (const [id, versions] of Object.entries(packages))
      for (const version of versions) t.is(await pull(feed, id.toLowerCase(), version), 200);
    await up.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
    up.upstream.on('/flat/lib/2.0.0/lib.2.0.0.nupkg', answer(404));
    for (let seen = 0; seen < 2; seen += 1) {
      server.clock.now += 6 * 60_000;
      t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0']);
    }
    t.deepEqual(await missingIn(server), ['2.0.0 marked']);

    const stored = async (upstreams: unknown[]) => {
      const target = join(place.folder, `${upstreams.length}.tar`);
      const environment = { ...place.environment, ENTREPOT_UPSTREAMS: JSON.stringify(upstreams) };
      t.like(await entrepot(environment, 'backup', target, '--without-mirrored'), { code: 0, stderr: '' });
      const other = await emptyPlace(t, dialect);
      t.is((await entrepot(other.environment, 'restore', target)).code, 0);
      t.is((await entrepot(other.environment, 'verify')).code, 0);
      return serveOn(t, other, { upstreams: [up.as('up.test', { ...settings, mode: 'offline' })] });
    };
    const online = new TestFeed(await stored([]));
    t.deepEqual(await versionsOf(online), ['1.0.0', '2.0.0']);
    t.is(await pull(online, 'lib', '2.0.0'), 200);
    t.not(await pull(online, 'other', '1.0.0'), 200);
    const offline = new TestFeed(await stored([up.as('up.test', { mode: 'offline' })]));
    t.is(await pull(offline, 'other', '1.0.0'), 200);
  });
}

test('a check of a backup writes no rows to the folder of temporary files, except those of blobs', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  const word = { kind: 'nupkg', upstream: 'u'.repeat(200), name: 'n'.repeat(200) };
  const words = Array.from({ length: 1000 }, (_, index) => ({ ...word, suffix: String(index) }));
  await databaseOf(server).transaction((tx) => tx.insertNew('mirror_words', words));
  const archive = join(place.folder, 'backup.tar');
  t.is((await entrepot(place.environment, 'backup', archive)).code, 0);
  const command = `ulimit -f 256; exec "$0" "$1" verify "$2"`;
  const main = join(import.meta.dirname, '../../bin/entrepot.js');
  const environment = { PATH: process.env['PATH'], TMPDIR: await folderUntilEnd(t) };
  const { stdout } = await promisify(execFile)('sh', ['-c', command, process.execPath, main, archive], {
    env: environment,
  });
  t.regex(stdout, /^checked the backup of /);
});

test('a start on a restore that is not finished leaves the database without tables', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  await new TestFeed(await serveOn(t, place)).publish({ id: 'First', version: '1.0.0' });
  const archive = join(place.folder, 'backup.tar');
  t.is((await entrepot(place.environment, 'backup', archive)).code, 0);
  const part = join(place.folder, 'part.tar');
  await writeFile(part, (await readFile(archive)).subarray(0, 20_000));
  const other = await emptyPlace(t, 'sqlite');
  t.regex((await entrepot(other.environment, 'restore', part)).stderr, /is truncated/);
  await t.throwsAsync(serveOn(t, other), { message: /a restore into this place is not finished/ });
  const tables = (await readTables(await openUntilEnd(t, other.url))).map(({ name }) => name);
  t.deepEqual(tables, [], 'a backup of an older version needs its own');
  t.is((await entrepot(other.environment, 'restore', archive)).code, 0);
  const feed = new TestFeed(await serveOn(t, other));
  t.is((await feed.fetch('/package/first/1.0.0/first.1.0.0.nupkg')).status, 200);
});
