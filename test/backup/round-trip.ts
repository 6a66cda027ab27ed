import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { Pushes } from '../faults/pushes.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, flushUsage, runJob, tokenOf } from '../support/inside.ts';
import { TestFeed } from '../support/feed.ts';
import { emptyPlace, manifestOf, serveOn } from './support.ts';

/** All that was acknowledged before a backup can be pulled after the restore of it, also from another database. */
export async function backUpAndRestore(t: ExecutionContext, from: Dialect, to: Dialect, name: string): Promise<void> {
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
}
