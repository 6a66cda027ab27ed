import test from 'ava';
import { Bundles } from '../../src/bundle/bundles.ts';
import type { BundleHeader, BundleList } from '../../src/bundle/format.ts';
import { ImportWatch } from '../../src/bundle/import-watch.ts';
import { BundleRunTable } from '../../src/bundle/runs/run-table.ts';
import type { Database } from '../../src/database/database.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { databaseOf, rowsOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

const settings = { files: [], platforms: [], frameworks: [], referrers: true };
const making = { ...settings, stored: true, policy: false, allowMissing: false };
const options = { unsigned: false, older: false };
const busy = { name: 'TooManyRequests' };

for (const dialect of dialects)
  test(`${dialect}: one making and one import run, and a run whose process died frees its place`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const table = new BundleRunTable(databaseOf(server), server.clock.time);
    const made = await table.make(making);
    await t.throwsAsync(table.make(making), busy);
    const [first, second] = [await table.beginImport(), await table.beginImport()];
    await table.startImport(first, options);
    await t.throwsAsync(table.startImport(second, options), busy);
    t.is((await table.get('imported', second)).state, 'receiving', 'it is still there');
    t.true(await table.rows.beat(first, { bytes: 1, of: 2 }));
    await table.rows.end(first, 'done', { bytes: 2, of: 2 });
    await t.throwsAsync(table.startImport(first, options), { name: 'Invalid' });
    await table.startImport(second, options);
    t.true(await table.cancel('imported', second));
    t.false(await table.rows.beat(second, {}));
    server.clock.now = Date.now() + 61_000;
    t.is((await table.get('made', made)).state, 'lost');
    await table.make(making);
  });

for (const dialect of dialects)
  test(`${dialect}: of starts of one import at the same time, one succeeds`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const table = new BundleRunTable(databaseOf(server), server.clock.time);
    for (let round = 0; round < 5; round += 1) {
      const id = await table.beginImport();
      const starts = await Promise.allSettled(Array.from({ length: 6 }, () => table.startImport(id, options)));
      t.is(starts.filter(({ status }) => status === 'fulfilled').length, 1);
      t.is((await table.get('imported', id)).state, 'running');
      await table.rows.end(id, 'done', {});
    }
  });

test('runs are listed, given up and forgotten, and those whose files are kept are known', async (t) => {
  const server = await startTestServer(t);
  const now = Date.now();
  server.clock.now = now;
  const table = new BundleRunTable(databaseOf(server), server.clock.time);
  const told = async () => {
    const rows = await rowsOf<{ type: string; subject_name: string; subject_reference: string }>(
      server,
      "SELECT type, subject_name, subject_reference FROM events WHERE type LIKE 'job.%' ORDER BY id",
    );
    return rows.map(({ type, subject_name: name, subject_reference: reference }) => `${type} ${name} ${reference}`);
  };
  const filesKept = async () => [...(await table.withFiles())].toSorted();
  const made = await table.make(making);
  t.like(await table.get('made', made), {
    id: made,
    state: 'running',
    settings: making,
    createdAt: now,
    endedAt: null,
  });
  await t.throwsAsync(table.get('imported', made), {
    name: 'NotFound',
    message: 'There is no bundle or import with this ID. The latest 50 are kept.',
  });
  await t.throwsAsync(table.make(making), { message: 'Another bundle is made now. Start this one when it has ended.' });
  t.true(await table.cancel('made', made));
  await table.rows.end(made, 'done', {});

  const begun: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    server.clock.now += 1;
    begun.push(await table.beginImport());
  }
  const [first, second, third] = begun as [string, string, string];
  const many = '3 imports are waiting for segments. Run one of them, or give it up.';
  await t.throwsAsync(table.beginImport(), { name: 'TooManyRequests', message: many });
  t.deepEqual(
    (await table.list('imported')).map(({ id }) => id),
    [third, second, first],
  );
  t.deepEqual(
    (await table.list('made')).map(({ id }) => id),
    [made],
  );
  t.false(await table.cancel('imported', second));
  await t.throwsAsync(table.get('imported', second), { name: 'NotFound' });
  await t.throwsAsync(table.startImport(second, options), { name: 'NotFound' });
  await table.startImport(first, { unsigned: true, older: true });
  t.like(await table.get('imported', first), { state: 'running', settings: { unsigned: true, older: true } });
  await t.throwsAsync(table.receive(first), { name: 'UploadBusy' });
  await t.throwsAsync(table.startImport(third, options), {
    message: 'Another import runs now. Start this one when it has ended.',
  });
  t.deepEqual(await filesKept(), [third, first, made].toSorted());
  t.deepEqual(await told(), [
    `job.started bundle ${made}`,
    `job.cancelled bundle ${made}`,
    `job.cancelled bundle-import ${second}`,
    `job.started bundle-import ${first}`,
  ]);
  await table.rows.end(first, 'done', {});
  await t.throwsAsync(table.receive(first), { message: /^This import is done\./ });
  t.deepEqual(await filesKept(), [third, made].toSorted());

  // A day later, what was not used is expired.
  server.clock.now = now + 86_400_000;
  await table.receive(third);
  t.deepEqual(await filesKept(), [third]);
  server.clock.now += 86_400_000 - 1;
  t.deepEqual(await filesKept(), [third]);
  server.clock.now += 1;
  t.deepEqual(await filesKept(), []);
  t.like(await table.get('imported', third), { state: 'expired', endedAt: server.clock.now });
  t.like(await table.get('imported', first), { state: 'done' });
  for (const use of [table.receive(third), table.startImport(third, options)])
    await t.throwsAsync(use, { name: 'Invalid', message: /^This import was not used for a day/ });

  const bundles: string[] = [];
  for (let count = 0; count < 4; count += 1) {
    server.clock.now += 1;
    bundles.push(await table.make(making));
    await table.rows.end(bundles.at(-1)!, 'done', {});
  }
  t.deepEqual(await filesKept(), bundles.slice(1).toSorted(), 'the latest three');
  const open = await table.beginImport();
  t.deepEqual(await filesKept(), [open, ...bundles.slice(1)].toSorted(), 'an import takes the place of none');
  for (let count = 0; count < 50; count += 1) {
    server.clock.now += 1;
    await table.rows.end(await table.make(making), 'done', {});
  }
  t.is((await table.list('made')).length, 50);
  t.deepEqual(await rowsOf(server, "SELECT COUNT(*) AS count FROM bundle_runs WHERE direction = 'made'"), [
    { count: 50 },
  ]);
  t.is((await table.list('imported')).length, 3, 'those of the other direction are');
});

/** Writes records of bundles, by `clock`. */
function recordsIn(database: Database) {
  const clock = { now: 1000 };
  const bundles = new Bundles(database, () => clock.now);
  const counts = { count: 0, bytes: 0 };
  const summary = {
    packages: counts,
    manifests: counts,
    layers: counts,
    documents: counts,
    segments: 1,
    bytes: 0,
    against: null,
    key: null,
  };
  const write = async (
    name: string,
    state: 'complete' | 'incomplete',
    direction: 'made' | 'imported' = 'imported',
    bytes = 0,
  ) => {
    const header = { source: `source-${name.length}`, sequence: Number(name), created_at: 1 } as BundleHeader;
    const list = { header } as Pick<BundleList, 'header'>;
    await database.transaction((tx) =>
      bundles.write(tx, direction, digestOf(name), list, state, { ...summary, bytes }),
    );
    return digestOf(name).slice('sha256:'.length);
  };
  return { clock, bundles, summary, write };
}

for (const dialect of dialects)
  test(`${dialect}: a server shows what another process imports, also after the clock was set back`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const database = databaseOf(server);
    const { clock, write } = recordsIn(database);
    let shown = 0;
    const watch = new ImportWatch(database, { forgetMemory: () => (shown += 1) });
    const shows = async () => {
      const before = shown;
      await watch.run();
      return shown > before;
    };
    clock.now = Date.now();
    await write('1', 'complete');
    await shows();
    t.false(await shows());
    await write('2', 'incomplete');
    t.false(await shows(), 'nothing of it is shown yet');
    clock.now -= 86_400_000;
    await write('2', 'complete');
    t.true(await shows());
    t.false(await shows());
    await write('3', 'complete');
    t.true(await shows());
    clock.now += 1;
    await write('2', 'complete');
    t.true(await shows(), 'again');
  });

test('bundles are listed by the time of their change, in pages, from both ends', async (t) => {
  const server = await startTestServer(t);
  const database = databaseOf(server);
  const { clock, bundles, summary, write } = recordsIn(database);
  const ids: string[] = [];
  for (const name of ['1', '2', '3']) ids.push(await write(name, 'complete'));
  const same = ids.toSorted();
  clock.now = 2000;
  const later = await write('4', 'incomplete');
  await write('5', 'complete', 'made');
  await write('8', 'incomplete', 'made');
  const oldest = [...same, later];
  const pages = async (size: number, isOldest: boolean) => {
    const found: string[] = [];
    for (let after: [number, string] | undefined; ;) {
      const page = await bundles.list('imported', size, after, isOldest);
      found.push(...page.map(({ id }) => id));
      const last = page.at(-1);
      if (!last || page.length < size) return found;
      after = [last.changedAt, last.id];
    }
  };
  for (const size of [1, 2, 10]) {
    t.deepEqual(await pages(size, true), oldest, String(size));
    t.deepEqual(await pages(size, false), oldest.toReversed(), String(size));
  }
  const latest = await bundles.list('imported', 2);
  t.deepEqual(
    latest.map(({ id }) => id),
    oldest.toReversed().slice(0, 2),
  );
  t.deepEqual([await bundles.latest('imported', 'source-1'), await bundles.latest('made', 'source-1')], [3, 5]);
  t.is(await bundles.latest('imported', 'other'), 0);
  t.like(await bundles.find('imported', digestOf('4')), {
    state: 'incomplete',
    summary,
    createdAt: 1,
    changedAt: 2000,
  });
  t.is(await bundles.find('made', digestOf('4')), undefined);
  const drop = (before: number) => database.transaction((tx) => bundles.dropUnfinished(tx, before));
  t.deepEqual([await drop(2000), await drop(2001), await drop(2001)], [[], [later], []]);
  t.deepEqual(await pages(10, true), same);

  const old = Array.from({ length: 998 }, (_, index) => ({
    id: String(index).padStart(64, '0'),
    direction: 'imported',
    source: 'many',
    sequence: index,
    state: 'complete',
    summary: JSON.stringify(summary),
    created_at: 1,
    changed_at: index + 1,
  }));
  await database.transaction((tx) => tx.insertNew('bundles', old));
  clock.now = 3000;
  await write('6', 'complete');
  const counted = () =>
    rowsOf(server, 'SELECT direction, COUNT(*) AS count, MIN(changed_at) AS oldest FROM bundles GROUP BY direction');
  t.deepEqual(await counted(), [
    { direction: 'imported', count: 1000, oldest: 3 },
    { direction: 'made', count: 2, oldest: 2000 },
  ]);
});

for (const dialect of dialects)
  test(`${dialect}: a bundle that is complete stays so, and one that is not becomes what its end says`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const { clock, bundles, write } = recordsIn(database);
    const states = async () => {
      const [found] = await bundles.list('imported', 1);
      return [found!.state, found!.summary.bytes, found!.createdAt, found!.changedAt];
    };
    await write('1', 'incomplete', 'imported', 5);
    clock.now = 2000;
    await write('1', 'incomplete', 'imported', 6);
    t.deepEqual(await states(), ['incomplete', 5, 1, 2000]);
    await write('1', 'complete', 'imported', 7);
    t.deepEqual(await states(), ['complete', 7, 1, 2000]);
    clock.now = 3000;
    await write('1', 'incomplete', 'imported', 8);
    t.deepEqual(await states(), ['complete', 7, 1, 3000]);
    await write('1', 'complete', 'made', 9);
    t.deepEqual(await states(), ['complete', 7, 1, 3000], 'the other direction has its own');
  });

for (const dialect of dialects)
  test(`${dialect}: the last bundle of a source shows which are older, however many of others came since`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const { clock, bundles, summary, write } = recordsIn(database);
    const [first, last] = [await write('1', 'complete'), await write('2', 'complete')];
    const record = (name: string, sequence: number, changed_at: number) => ({
      id: digestOf(name).slice('sha256:'.length),
      direction: 'imported',
      source: 'of others',
      sequence,
      state: 'complete',
      summary: JSON.stringify(summary),
      created_at: 1,
      changed_at,
    });
    // Content of other tools, too, which has no sequence.
    const rows = Array.from({ length: 1000 }, (_, at) => record(`other ${at}`, at, 1500 + at));
    const plain = { ...record('plain', 0, 1400), source: 'plain' };
    // One that is not complete may go on.
    const open = { ...record('open', 1, 1300), source: 'source-1', state: 'incomplete' };
    for (const some of [[plain, open, ...rows.slice(0, 500)], rows.slice(500)])
      await database.transaction((tx) => tx.insertNew('bundles', some));
    clock.now = 5000;
    await write('77', 'complete');
    t.is(await bundles.latest('imported', 'source-1'), 2);
    const kept = await database.select<{ id: string }>('SELECT id FROM bundles WHERE changed_at < 1502');
    t.deepEqual(kept.map(({ id }) => id).toSorted(), [last, open.id, record('other 1', 0, 0).id].toSorted());
    t.false(kept.some(({ id }) => id === first));
  });
