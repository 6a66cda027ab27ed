import test, { type ExecutionContext } from 'ava';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { flushEvents, databaseOf, eventsOf, runJob, tokenOf } from '../support/inside.ts';
import { TestFeed } from '../support/feed.ts';
import { testClock } from '../support/clock.ts';
import { scrape } from '../support/metrics.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { TestDisk } from '../support/test-disk.ts';
import { eventually } from '../support/until.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';

// What the metrics say about the parts below HTTP, and to whom.

test('the disk, staged bytes, stored bytes and answers with 507 are shown', async (t) => {
  const disk = new TestDisk();
  const server = await startTestServer(t, {}, { disk, droppedLines: () => 7 });
  const repository = new TestRepository(server, 'team/app');
  const session = await repository.start();
  t.is((await repository.fetch(session, { method: 'PATCH', body: 'x'.repeat(5000) })).status, 202);
  const feed = new TestFeed(server);
  const nupkg = await makeNupkg({ id: 'A', payloadBytes: 20_000 });
  t.is((await feed.push(nupkg)).status, 201);
  await runJob(server, 'sample');
  disk.reported = 1000;
  t.is((await feed.push({ id: 'B' })).status, 507);
  const metrics = await scrape(server);
  t.is(metrics.value('entrepot_staged_bytes'), 5000);
  t.is(metrics.value('entrepot_disk_free_bytes'), 1000);
  t.is(metrics.value('entrepot_disk_reserve_bytes'), 256 * 2 ** 20);
  t.true(metrics.value('entrepot_storage_bytes', { origin: 'hosted' })! >= nupkg.length);
  t.is(metrics.value('entrepot_storage_bytes', { origin: 'mirrored' }), 0);
  t.is(metrics.value('entrepot_http_requests_total', { status: '507', method: 'PUT' }), 1);
  t.is(metrics.value('entrepot_http_requests_total', { status: '507', method: 'PATCH' }), 0, 'begins at 0');
  t.true(metrics.value('entrepot_http_body_bytes_total', { direction: 'in' })! >= 5000 + nupkg.length);
  t.is(metrics.value('entrepot_log_lines_dropped_total'), 7);
});

test('reads, transactions, commands of Redis and its failures are counted', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const server = await startTestServer(t, { redis: { url: redis.url } }, { redisTimeout: 5000 });
  const before = await scrape(server);
  for (let count = 0; count < 5; count += 1) await databaseOf(server).select('SELECT 1');
  await databaseOf(server).transaction(async (tx) => void (await tx.get('SELECT 1')));
  await t.throwsAsync(databaseOf(server).transaction(() => Promise.reject(new Error('no'))));
  const after = await scrape(server);
  const more = (name: string, labels = {}) => after.value(name, labels)! - before.value(name, labels)!;
  t.true(more('entrepot_database_seconds_count', { operation: 'read' }) >= 5);
  t.true(more('entrepot_database_seconds_count', { operation: 'transaction' }) >= 2);
  t.true(more('entrepot_database_seconds_sum', { operation: 'read' }) > 0);
  t.is(after.value('entrepot_redis_failures_total'), 0);
  t.true(after.value('entrepot_redis_seconds_count')! > 0);
  await redis.kill();
  const failed = await eventually(
    () => scrape(server),
    (metrics) => metrics.value('entrepot_redis_failures_total')! > 0,
  );
  t.true(failed.value('entrepot_redis_failures_total')! > 0);
});

test('work that does not yield shows as delay of the event loop', async (t) => {
  const server = await startTestServer(t);
  const late = async () => {
    const metrics = await scrape(server);
    const all = metrics.value('entrepot_event_loop_delay_seconds_count')!;
    return all - metrics.value('entrepot_event_loop_delay_seconds_bucket', { le: '0.25' })!;
  };
  const before = await late();
  for (const end = performance.now() + 600; performance.now() < end;);
  t.true((await eventually(late, (count) => count > before)) > before);
});

test('events that have no position yet are counted, and jobs by outcome, with the time of their last success', async (t) => {
  const jobs = { gc: '0 3 * * *', audit: 'off' };
  // The clock does not pass a due time: a run by schedule would fail, too.
  const server = await startTestServer(t, { jobs }, {}, testClock(1_900_000_000_000));
  eventsOf(server).dispatch = () => Promise.resolve();
  await tokenOf(server, ['read']);
  await server.fetch('/v1/packages', { token: 'wrong' });
  await flushEvents(server, true);
  await runJob(server, 'gc');
  await runJob(server, 'audit');
  databaseOf(server).select = () => Promise.reject(new Error('a broken query'));
  const failing = await t.throwsAsync(runJob(server, 'scrub'));
  t.truthy(failing);
  Reflect.deleteProperty(databaseOf(server), 'select');
  const metrics = await scrape(server);
  t.true(metrics.value('entrepot_events_undispatched')! >= 2);
  const runs = 'entrepot_job_runs_total';
  t.is(metrics.value(runs, { job: 'gc', outcome: 'done' }), 1);
  t.is(metrics.value(runs, { job: 'gc', outcome: 'failed' }), 0, 'begins at 0');
  t.is(metrics.value(runs, { job: 'scrub', outcome: 'failed' }), 1);
  t.is(metrics.value('entrepot_job_items_total', { job: 'scrub', item: 'corrupt' }), 0, 'begins at 0');
  t.is(metrics.value('entrepot_job_last_success_seconds', { job: 'gc' }), 1_900_000_000);
  t.is(metrics.value('entrepot_job_last_success_seconds', { job: 'audit' }), undefined, 'it has no schedule');
});

/** Fails if `text` contains one of `secrets`. */
async function assertSilent(t: ExecutionContext, text: string, secrets: readonly string[]) {
  for (const secret of secrets) t.false(text.includes(secret), `${secret} in ${text.slice(0, 500)}`);
}

test('without a token, /readyz and /metrics name no account, no path and no address of an upstream or database', async (t) => {
  const upstreams = [
    {
      name: 'up.test',
      kind: 'registry',
      url: 'http://127.0.0.1:9/',
      allowPrivateNetwork: true,
      auth: { username: 'robot-user', password: 'robot-password' },
    },
  ];
  const redis = await ownRedis(t);
  await redis.start();
  const settings = { upstreams, limits: { accountStorage: '1MiB' }, redis: { url: redis.url } };
  const server = await startTestServer(t, settings);
  const feed = await TestFeed.ofAccount(server, 'secret-team');
  await feed.publish({ id: 'Secret.Package' });
  await server.fetch(`/v2/up.test/secret-image/blobs/sha256:${'1'.repeat(64)}`);
  const secrets = [
    'secret-team',
    'Secret.Package',
    'secret-image',
    'robot',
    '127.0.0.1',
    new URL(redis.url).port,
    server.data,
    server.token,
  ];
  const paths = ['/readyz', '/metrics', '/readyz?verbose', '/metrics?name[]=entrepot_account_limit_ratio'];
  const ask = async () => {
    const texts: string[] = [];
    for (const path of paths) texts.push(await (await server.fetch(path, { token: null })).text());
    return texts;
  };
  for (const text of await ask()) await assertSilent(t, text, secrets);
  await redis.kill();
  await rm(join(server.data, 'staging'), { recursive: true });
  databaseOf(server).checkReads = () => Promise.reject(new Error(`cannot open ${server.data}/entrepot.db`));
  const [ready, ...rest] = await ask();
  t.regex(ready!, /The database cannot be read/);
  t.regex(ready!, /The storage cannot be written/);
  for (const text of [ready!, ...rest]) await assertSilent(t, text, secrets);
  await server.close();
});
