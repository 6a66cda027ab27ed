import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { isDomainError } from '../../src/runtime/errors.ts';
import { BackgroundTask } from '../../src/runtime/background-task.ts';
import { serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { openMirror, readEntry } from '../support/mirror.ts';
import { until } from '../support/until.ts';

const body = randomBytes(300_000);

async function setUp(t: ExecutionContext) {
  const server = await startFaultyUpstream(t);
  server.on('/thing', serve(body));
  server.on('/other', serve(body));
  return { server, ...(await openMirror(t, server.url, { data: await folderUntilEnd(t, inMemory) })) };
}

test('the rate of a task holds for all its fetches together; a client is not slowed', async (t) => {
  const { mirror, resource, server } = await setUp(t);
  const task = new BackgroundTask(new AbortController().signal, 150_000);
  const startedAt = performance.now();
  const fetches = task.run(() =>
    Promise.all(['/thing', '/other'].map(async (path) => readEntry(await mirror.open(resource(path))))),
  );
  server.on('/client', serve(body));
  t.deepEqual(await readEntry(await mirror.open(resource('/client'))), body);
  t.true(task.received < 600_000, 'the client has all before the task has');
  const [first, second] = await fetches;
  const took = performance.now() - startedAt;
  t.deepEqual(first, body);
  t.deepEqual(second, body);
  t.is(task.received, 600_000);
  t.true(took > 3900, `${took} ms for 4 s of bytes`);
});

test('a very slow task does not count as an upstream that stalls', async (t) => {
  const { mirror, resource, server, upstream } = await setUp(t);
  server.on('/small', serve(body.subarray(0, 3000)));
  const task = new BackgroundTask(new AbortController().signal, 2000);
  const read = await task.run(async () => readEntry(await mirror.open(resource('/small'))));
  t.deepEqual(read, body.subarray(0, 3000));
  t.is(upstream.unavailable(), undefined);
});

test('a cancelled task ends at once, stores nothing, and is no failure of the upstream', async (t) => {
  const { mirror, resource, upstream, staged, blobCount } = await setUp(t);
  const calling = new AbortController();
  const task = new BackgroundTask(calling.signal, 20_000);
  const opened = await task.run(() => mirror.open(resource('/thing')));
  t.is(opened?.outcome, 'miss');
  calling.abort();
  await t.throwsAsync(opened!.complete);
  opened!.content.close();
  // The fetch ends a moment later than its reader.
  await until(async () => (await staged()).length === 0);
  t.true(task.received < body.length, 'it did not go on to the end');
  t.is(upstream.unavailable(), undefined);
  t.is(await blobCount(), 0);
  const error = await t.throwsAsync(task.run(() => mirror.open(resource('/other'))));
  t.true(isDomainError(error, 'Aborted'));
  t.deepEqual(await readEntry(await mirror.open(resource('/other'))), body, 'others go on');
});

test('entries that a task fetches or reads do not count as used', async (t) => {
  const { mirror, resource, entries, database, clock } = await setUp(t);
  const task = new BackgroundTask(new AbortController().signal);
  const brief = resource('/thing', { lifetime: { freshFor: 10, staleFor: 0 } });
  const usedAt = async () => (await database.get<{ used_at: number }>('SELECT used_at FROM mirror_entries'))!.used_at;
  clock.now = 1000;
  await readEntry(await mirror.open(brief));
  await entries.flushUses();
  t.is(await usedAt(), 1000);
  clock.now = 2000;
  await task.run(async () => readEntry(await mirror.open(brief)));
  await task.run(async () => readEntry(await mirror.open(brief)));
  await entries.flushUses();
  t.is(await usedAt(), 1000);
  await readEntry(await mirror.open(brief));
  await entries.flushUses();
  t.is(await usedAt(), 2000);
});
