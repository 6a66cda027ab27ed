import test from 'ava';
import { pino } from 'pino';
import { currentOrigin } from '../../src/runtime/caller.ts';
import { isInBackground } from '../../src/database/time-limits.ts';
import { BackgroundRuns } from '../../src/jobs/background-runs.ts';
import { PrefetchRuns } from '../../src/jobs/prefetch-runs.ts';
import { PrefetchTable } from '../../src/jobs/prefetch-table.ts';
import { RunRows } from '../../src/jobs/run-rows.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { testClock } from '../support/clock.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { testLog } from '../support/mirror.ts';
import { until, within } from '../support/until.ts';

// Runs that users start: their rows, and what becomes of each.

for (const dialect of dialects) {
  test(`${dialect}: the row of a run has its progress until it ends, is cancelled once, and is lost without heartbeats`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const clock = testClock(1_000_000);
    const rows = new RunRows(database, 'prefetch_runs', clock.time);
    const make = async (slot: string | null) => {
      const row = rows.made('running', { a: 1 }, slot);
      await database.transaction((tx) => tx.insertNew('prefetch_runs', [{ ...row, account_id: 1, input: null }]));
      return row.id;
    };
    const read = async (id: string) => {
      const columns = 'slot, state, cancelled, created_at, beat_at, ended_at, settings, progress';
      const row = await database.get<Record<string, unknown>>(`SELECT ${columns} FROM prefetch_runs WHERE id = ?`, [
        id,
      ]);
      return Object.values(row!);
    };
    const id = await make('0');
    t.regex(id, /^[\da-f-]{36}$/);
    const slot = (await read(id))[0];
    t.deepEqual((await read(id)).slice(1), ['running', 0, 1_000_000, 1_000_000, null, '{"a":1}', '{}']);
    clock.now! += 5;
    t.true(await rows.beat(id, { known: 1 }));
    t.true(await rows.beat(id, { known: 1 }), 'also if nothing changes');
    t.deepEqual((await read(id)).slice(1), ['running', 0, 1_000_000, 1_000_005, null, '{"a":1}', '{"known":1}']);
    t.false(await rows.beat('none', {}));

    t.false(await rows.isCancelled(id));
    const stop = () => database.transaction((tx) => rows.stop(tx, id));
    t.deepEqual([await stop(), await stop()], [true, false]);
    t.true(await rows.isCancelled(id));
    t.false(await rows.isCancelled('none'));
    clock.now! += 5;
    t.false(await rows.beat(id, { known: 2 }), 'it should end');
    t.deepEqual((await read(id)).slice(4), [1_000_005, null, '{"a":1}', '{"known":1}']);
    await rows.end(id, 'cancelled', { known: 3 });
    t.deepEqual(await read(id), [null, 'cancelled', 1, 1_000_000, 1_000_010, 1_000_010, '{"a":1}', '{"known":3}']);
    clock.now! += 5;
    await rows.end(id, 'done', { known: 4 });
    t.is((await read(id))[1], 'cancelled', 'it ends once');

    const silent = await make('1');
    const began = clock.now!;
    const state = async () => {
      await rows.loseDeadNow();
      return (await read(silent)).slice(0, 2);
    };
    clock.now = began + 60_000;
    t.deepEqual((await state())[1], 'running');
    clock.now = began - 60_000;
    t.deepEqual((await state())[1], 'running', 'a clock may be a little behind');
    clock.now = began - 60_001;
    t.deepEqual(await state(), [null, 'lost']);
    t.is((await read(silent))[5], began - 60_001);
    const other = await make('1');
    clock.now += 60_001;
    t.false(await database.transaction((tx) => rows.stop(tx, silent)));
    await rows.loseDeadNow();
    t.deepEqual((await read(other)).slice(0, 2), [null, 'lost']);
    t.not(slot, null);
  });
}

/** Rows that keep what is written to them. */
function keptRows(state: { goesOn?: boolean; cancelled?: boolean } = {}) {
  const ends: unknown[] = [];
  const beats: unknown[] = [];
  const rows: Pick<RunRows, 'beat' | 'isCancelled' | 'end'> = {
    beat: (id, progress) => {
      beats.push([id, { ...progress }]);
      return Promise.resolve(state.goesOn ?? true);
    },
    isCancelled: () => Promise.resolve(state.cancelled ?? false),
    end: (id, outcome, progress) => {
      ends.push([id, outcome, { ...progress }]);
      return Promise.resolve();
    },
  };
  return { rows: rows as RunRows, ends, beats };
}

const explain = (error: unknown) => new DomainError('Invalid', `explained: ${(error as Error).message}`);

test('a run ends with its state, or with the reason of its failure, and everything that follows knows it', async (t) => {
  const { rows, ends } = keptRows();
  const { log, lines } = testLog();
  const runs = new BackgroundRuns('import', rows, log);
  const order: string[] = [];
  const steps = (id: string) => ({
    ending: (state: string) => Promise.resolve(void order.push(`${id} ending ${state} ${ends.length}`)),
    ended: () => Promise.resolve(void order.push(`${id} ended ${ends.length}`)),
  });
  const origins: unknown[] = [];
  runs.start(
    '1',
    { error: 'before' },
    {
      ...steps('1'),
      run: () => {
        origins.push(currentOrigin().actor, isInBackground());
        return Promise.resolve('done');
      },
      facts: { bytes: 5 },
    },
  );
  await until(() => runs.count === 0);
  runs.start('2', {}, { ...steps('2'), run: () => Promise.reject(new DomainError('Invalid', 'The file is damaged.')) });
  await until(() => runs.count === 0);
  runs.start('3', {}, { run: () => Promise.reject(new Error('secret')) });
  await until(() => runs.count === 0);
  runs.start('4', {}, { run: () => Promise.reject(new Error('x')), explain });
  await until(() => runs.count === 0);
  t.deepEqual(origins, [{ kind: 'system', id: null, name: 'import' }, true]);
  t.deepEqual(ends, [
    ['1', 'done', { error: 'before' }],
    ['2', 'failed', { error: 'The file is damaged.' }],
    ['3', 'failed', { error: 'The server failed. Its log has the details.' }],
    ['4', 'failed', { error: 'explained: x' }],
  ]);
  t.deepEqual(order, ['1 ending done 0', '1 ended 1', '2 ending failed 1', '2 ended 2']);
  const logged = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  t.deepEqual(
    logged.map(({ level, import: id, state, msg }) => [level, id, state, msg]),
    [
      [30, '1', 'done', 'import'],
      [30, '2', 'failed', 'import'],
      [50, '3', undefined, 'a run of import failed'],
      [30, '3', 'failed', 'import'],
      [30, '4', 'failed', 'import'],
    ],
  );
  t.is(logged[0]!['bytes'], 5);
});

test('a run that a user cancels is stopped, and one that ends by itself in that moment is cancelled or done', async (t) => {
  const { rows, ends, beats } = keptRows({ goesOn: false, cancelled: true });
  const runs = new BackgroundRuns('import', rows, pino({ level: 'silent' }));
  const progress: { known: number; error?: string } = { known: 1 };
  const signals: boolean[] = [];
  runs.start('1', progress, {
    beat: () => Promise.resolve(void (progress.known += 1)),
    run: ({ stop, closing, any }) =>
      new Promise<string>((_resolve, reject) => {
        stop.addEventListener('abort', () => {
          signals.push(stop.aborted, closing.aborted, any.aborted);
          reject(new Error('broken off'));
        });
      }),
  });
  await until(() => runs.count === 0);
  t.deepEqual(signals, [true, false, true]);
  t.deepEqual(beats[0], ['1', { known: 2 }]);
  t.deepEqual(ends, [['1', 'cancelled', { known: 2, error: undefined }]]);
  runs.start('2', {}, { run: () => Promise.resolve('interrupted') });
  await until(() => runs.count === 0);
  runs.start('3', {}, { run: () => Promise.resolve('done') });
  await within(runs.close());
  t.deepEqual(ends.slice(1), [
    ['2', 'cancelled', {}],
    ['3', 'done', {}],
  ]);
});

test('a process reads the files of two prefetches at a time', async (t) => {
  const { log } = testLog();
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const table = new PrefetchTable(database, Date.now);
  const asked: unknown[] = [];
  const config = { platforms: [], frameworks: ['net8.0'], referrers: true, concurrency: 1, rateLimitShare: 80 };
  const runs = new PrefetchRuns({
    table,
    read: (files: unknown) => {
      asked.push(files);
      return Promise.resolve([]);
    },
    config,
    log,
    now: Date.now,
    upstreams: [],
    protocols: [],
  } as unknown as ConstructorParameters<typeof PrefetchRuns>[0]);
  t.is(runs.table, table);
  t.deepEqual(runs.defaults, config);
  const [one, two] = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
  const first = runs.receive(() => one.promise);
  const second = runs.receive(() => two.promise);
  const refused = await t.throwsAsync<DomainError>(
    runs.receive(() => Promise.resolve('three')),
    {
      name: 'TooManyRequests',
      message: 'Other files for a prefetch are being read. Try again.',
    },
  );
  t.is(refused.retryAfter, 10);
  one.reject(new Error('broken off'));
  await t.throwsAsync(first, { message: 'broken off' });
  t.is(await runs.receive(() => Promise.resolve('three')), 'three');
  two.resolve('two');
  t.is(await second, 'two');
  const settings = { dryRun: true, platforms: [], frameworks: [], referrers: true, kind: 'list', files: ['a.txt'] };
  await t.throwsAsync(runs.start(1, settings, [{ file: 'a.txt', text: '' }]), {
    name: 'Invalid',
    message: 'The files list no package and no image from an upstream.',
  });
  t.deepEqual(asked, [[{ file: 'a.txt', text: '', kind: 'list' }]]);
  t.deepEqual(await table.list(), []);
  await runs.close();
});
