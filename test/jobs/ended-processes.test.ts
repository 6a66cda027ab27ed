import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { pino } from 'pino';
import { migrate } from '../../src/database/migrate.ts';
import type { Processes } from '../../src/database/processes.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { Jobs } from '../../src/jobs/jobs.ts';
import { Runs } from '../../src/jobs/runs.ts';
import { Schedule } from '../../src/jobs/schedule.ts';
import { Collector } from '../../src/storage/upkeep/collector.ts';
import { deletionTimes } from '../../src/storage/blobs/states.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { openStore, references } from '../support/store.ts';
import { until, within } from '../support/until.ts';

// What a process has left behind when it was killed is taken over as soon as it has ended, not after a time.

const program = join(import.meta.dirname, '../support/processes/run-job.ts');
/** Longer than any test. */
const lease = 600_000;

test('a run whose process was killed starts again at once, also a run by hand, and that of a live process does not', async (t) => {
  const url = await temporaryDatabase(t, 'sqlite');
  const database = await openUntilEnd(t, url);
  await migrate(database);
  const processes = database.processes!;
  const child = spawn(process.execPath, [program, url, String(lease)], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  await within(once(child.stdout, 'data'), 20_000);
  const runs = new Runs(database, Date.now, () => processes);
  const [held] = await runs.held();
  t.not(held?.process ?? null, null);
  t.false(await runs.isLeft(held!, 0), 'its process lives');
  const folder = `${url.slice('sqlite:'.length)}.processes`;
  t.deepEqual(await readdir(folder), [held!.process]);
  child.kill('SIGKILL');
  await once(child, 'exit');
  const started: string[] = [];
  const jobs = new Jobs({
    runs,
    jobs: ['endless', 'other'].map((name) => ({
      name,
      summary: '',
      // Never due in this test.
      schedule: new Schedule('0 0 29 2 *'),
      canDryRun: false,
      run: () => Promise.resolve(void started.push(name)).then(() => ({})),
    })),
    log: pino({ level: 'silent' }),
    now: Date.now,
    lease,
  });
  t.teardown(() => jobs.close());
  jobs.start();
  await until(() => started.length === 1);
  t.deepEqual(started, ['endless']);
  await until(async () => (await runs.held()).length === 0);
  t.deepEqual(
    (await runs.latest('endless', 2)).map(({ outcome }) => outcome),
    ['done', 'lost'],
  );
  t.deepEqual(await readdir(folder), [processes.id], 'the file of the killed process is removed');
});

for (const dialect of dialects) {
  test(`${dialect}: bytes that an ended process was deleting are stored again at once, those of a live one are not`, async (t) => {
    const [live, dead] = [randomUUID(), randomUUID()];
    const processes: Processes = {
      id: live,
      isExact: true,
      gone: async (ids) => new Set(ids.filter((id) => id === dead)),
    };
    const times = { ...deletionTimes, takeOverAfter: lease, processes: () => processes };
    const { blobs, database, driver } = await openStore(t, dialect, Date.now, times);
    const store = async (text: string) => {
      const staged = await blobs.stage();
      await staged.write(Buffer.from(text));
      await blobs.commit([{ staged, digest: digestOf(text) }], () => Promise.resolve());
    };
    const texts = ['left', 'in progress', 'left by an older version', 'garbage'];
    for (const text of texts) await store(text);
    const leave = (text: string, by: string, behind = 0) =>
      database.transaction((tx) =>
        tx.run(
          `UPDATE blobs SET state = 'deleting', deleted_by = ?, deleted_generation = generation - ? WHERE digest = ?`,
          [by, behind, digestOf(text)],
        ),
      );
    await leave('left', dead);
    await leave('in progress', live);
    await leave('left by an older version', dead, 1);
    await leave('garbage', dead);
    await within(store('left'), 20_000);
    t.is(
      (await database.get<{ state: string }>('SELECT state FROM blobs WHERE digest = ?', [digestOf('left')]))?.state,
      'live',
    );
    const ended = new Set<string>();
    const waiting = ['in progress', 'left by an older version'].map(async (text) => {
      await store(text);
      ended.add(text);
    });
    const collector = new Collector(database, driver, references, times);
    t.is((await collector.collect({ before: 0 })).blobs, 1, 'only the garbage');
    t.is(ended.size, 0);
    await leave('in progress', dead);
    await leave('left by an older version', dead);
    await within(Promise.all(waiting), 20_000);
  });

  test(`${dialect}: bytes that a silent process may still delete are not taken over before it must have ended with them`, async (t) => {
    const silent = randomUUID();
    const processes: Processes = { id: null, isExact: false, gone: (ids) => Promise.resolve(new Set(ids)) };
    let now = 0;
    const times = { ...deletionTimes, watch: () => now, processes: () => processes };
    const { blobs, database, driver } = await openStore(t, dialect, Date.now, times);
    const staged = await blobs.stage();
    await staged.write(Buffer.from('garbage'));
    await blobs.commit([{ staged, digest: digestOf('garbage') }], () => Promise.resolve());
    await database.transaction((tx) =>
      tx.run("UPDATE blobs SET state = 'deleting', deleted_by = ?, deleted_generation = generation", [silent]),
    );
    const collector = new Collector(database, driver, references, times);
    const removedAt = async (time: number) => {
      now = time;
      return (await collector.collect({ before: 0 })).blobs;
    };
    t.is(await removedAt(0), 0);
    t.is(await removedAt(2 * deletionTimes.beginWithin - 1), 0);
    t.is(await removedAt(2 * deletionTimes.beginWithin), 1, 'long before the time for processes that are not known');
  });
}
