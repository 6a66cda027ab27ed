import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import test from 'ava';
import { openFolder } from '../../src/backup/folder.ts';
import { folderStorage } from '../../src/server/place.ts';
import type { Dialect } from '../../src/database/database.ts';
import { Pushes } from '../faults/pushes.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, flushUsage, runJob, tokenOf } from '../support/inside.ts';
import { TestFeed } from '../support/feed.ts';
import { emptyPlace, manifestOf, serveOn } from './support.ts';

const ways: [from: Dialect, to: Dialect, name: string][] = [
  ['sqlite', 'mysql', 'backup.tar'],
  ['mysql', 'sqlite', 'backup.tar'],
  ['sqlite', 'sqlite', 'folder'],
  ['mysql', 'mysql', 'folder'],
];

for (const [from, to, name] of ways) {
  test(`${from} to ${to} by ${name}: all that was acknowledged before the backup can be pulled after the restore`, async (t) => {
    const place = await emptyPlace(t, from);
    const server = await serveOn(t, place, { gc: { grace: '0s' } });
    const theirs = await TestFeed.ofAccount(server, 'team');
    await theirs.publish({ id: 'Team.Only', version: '1.0.0' });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Kept', version: '1.0.0', description: 'Größe — 漢字 𝒳' });
    await feed.publish({ id: 'Gone', version: '1.0.0' });
    t.is((await server.fetch('/v1/packages/Gone/1.0.0', { method: 'DELETE' })).status, 204);
    await flushUsage(server);
    const beyond = { account_id: 999_999, hour: 1, hosted_bytes: '9007199254740993', mirrored_bytes: -1 };
    await databaseOf(server).transaction((tx) => tx.insertNew('storage_samples', [beyond]));
    const pushes = new Pushes();
    await pushes.push(server.url, 2);
    const before = pushes.before();
    const stop = new AbortController();
    const pushing = pushes.run([server.url], 2, stop.signal);
    const collecting = (async () => {
      for (; !stop.signal.aborted; await sleep(20)) await runJob(server, 'gc');
    })();
    const target = join(place.folder, name);
    const made = await entrepot(place.environment, 'backup', target);
    t.deepEqual([made.code, made.stderr], [0, '']);
    t.regex(made.stdout, /rows, \d+ blobs, .*copied/);
    stop.abort();
    await Promise.all([pushing, collecting]);
    t.is((await stat(target)).mode & 0o077, 0, 'other users cannot read the backup');
    t.is((await entrepot({}, 'verify', target)).code, 0);

    const other = await emptyPlace(t, to);
    const restored = await entrepot(other.environment, 'restore', target);
    t.deepEqual([restored.code, restored.stderr], [0, '']);
    const again = join(other.folder, 'again.tar');
    t.deepEqual((await entrepot(other.environment, 'backup', again)).stderr, '');
    const { tables } = await manifestOf(target);
    t.deepEqual((await manifestOf(again)).tables, tables, 'every row is the same');
    t.is(tables.find((each) => each.name === 'storage_samples')!.rows, 1);
    const verified = await entrepot(other.environment, 'verify');
    t.deepEqual([verified.code, verified.stderr], [0, '']);

    const copy = await serveOn(t, other);
    const { lost, halfVisible, defects } = await before.check(copy.url);
    t.deepEqual([lost, halfVisible, defects], [0, 0, []]);
    const copied = new TestFeed(copy, theirs.token);
    t.is((await copied.fetch('/package/team.only/1.0.0/team.only.1.0.0.nupkg')).status, 200, 'tokens work');
    t.is((await new TestFeed(copy).fetch('/package/team.only/1.0.0/team.only.1.0.0.nupkg')).status, 404);
    t.is((await new TestFeed(copy).json('/search?q=kept')).totalHits, 1, 'search');
    const claims = await entrepot(other.environment, 'claim', 'list');
    t.regex(claims.stdout, /gone/i, 'the name of what was deleted is not asked upstream');
    const usage = (await (await copy.fetch('/v1/account')).json()) as { usage: { requests: number } };
    t.true(usage.usage.requests >= 3, JSON.stringify(usage));
    const audit = (await (await copy.fetch('/v1/audit?type=package.deleted')).json()) as { items: object[] };
    t.is(audit.items.length, 1);
    // New rows get new keys.
    await new TestFeed(copy).publish({ id: 'After', version: '1.0.0' });
    t.is((await tokenOf(copy, ['read'])).slice(0, 4), 'ent_');
    t.deepEqual(await readdir(join(other.data, 'staging')), []);
  });
}

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

test('a restore of what is not there leaves its place as it was', async (t) => {
  const folder = await folderUntilEnd(t);
  const environment = { ENTREPOT_DATA: join(folder, 'data'), ENTREPOT_UPSTREAMS: '[]' };
  for (const source of ['none.tar', 'none']) {
    const failed = await entrepot(environment, 'restore', join(folder, source));
    t.is(failed.code, 1);
    t.regex(failed.stderr, /no such file/);
  }
  t.is((await entrepot(environment, 'token', 'create', '--name', 'x')).code, 0, 'no restore is unfinished');
});
