import test, { type ExecutionContext } from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Database } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { References, type Holding } from '../../src/storage/blobs/references.ts';
import { hour, hourOf, parsePeriod } from '../../src/usage/period.ts';
import { storageOf } from '../../src/usage/report.ts';
import { measureStored, StorageMeter, type Measures } from '../../src/usage/stored.ts';
import { dialects, dyingDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { longestTurn } from '../support/longest-turn.ts';
import { measures } from '../support/store.ts';
import { until } from '../support/until.ts';

// In a process of its own: it measures the process.

interface Measured {
  database: Database;
  measures: Measures;
  clock: { now: number };
  /** Begins each measurement. Called instead of a look at the blobs. */
  measure: { found: () => Holding[] | Promise<Holding[]> };
  /** Number of measurements. */
  looks: () => number;
}

/** A real database, in which each measurement finds what the test says. */
async function measured(t: ExecutionContext): Promise<Measured> {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const measure: Measured['measure'] = { found: () => [] };
  let looks = 0;
  const references = new References([]);
  references.holdings = async function* () {
    looks += 1;
    yield await measure.found();
  };
  return { database, measures: { references, rows: [] }, clock: { now: 1_000_000 }, measure, looks: () => looks };
}

const hosted = (bytes: number): Holding => ({ account_id: 1, mirrored: 0, bytes });

test('short measurements are repeated for each call, long ones are reused for a while', async (t) => {
  const { database, measures, clock, measure, looks } = await measured(t);
  let cost = 2;
  // Each finds one byte more.
  measure.found = async () => {
    await new Promise(setImmediate);
    clock.now += cost;
    return [hosted(looks()), { account_id: 1, mirrored: 1, bytes: 100 }];
  };
  const stored = new StorageMeter(database, measures, 1, () => clock.now);
  await stored.of(1);
  t.deepEqual(await stored.recent(1), { hosted: 2, mirrored: 100 });
  t.is(looks(), 2);
  cost = 1000;
  const startedAt = clock.now;
  t.deepEqual(await stored.of(1), { hosted: 3, mirrored: 100, asOf: startedAt });
  clock.now = startedAt + 19_999;
  t.deepEqual(await stored.of(1), { hosted: 3, mirrored: 100, asOf: startedAt });
  t.deepEqual(await stored.of(2), { hosted: 0, mirrored: 0, asOf: startedAt });
  clock.now = startedAt + 20_000;
  t.is((await stored.recent(1)).hosted, 3, '`recent` uses the earlier result and does not wait');
  t.deepEqual(await stored.of(1), { hosted: 3, mirrored: 100, asOf: startedAt }, 'and so does `of`');
  await until(async () => (await stored.of(1))?.hosted === 4);
});

test('until the first measurement of a process ends, the last hourly sample is the answer, with its time', async (t) => {
  const { database, measures, measure } = await measured(t);
  await database.transaction(async (tx) => {
    for (const [account_id, at, bytes] of [
      [1, 0, 4],
      [1, hour, 5],
      [2, 2 * hour, 9],
    ] as const)
      await tx.insertNew('storage_samples', [{ account_id, hour: at, hosted_bytes: bytes, mirrored_bytes: bytes + 1 }]);
  });
  const found = Promise.withResolvers<Holding[]>();
  measure.found = () => found.promise;
  const stored = new StorageMeter(database, measures, 1, () => 7_000_000);
  t.deepEqual(await stored.of(1), { hosted: 5, mirrored: 6, asOf: hour });
  t.deepEqual(await stored.recent(1), { hosted: 5, mirrored: 6 });
  found.resolve([hosted(7)]);
  await until(async () => (await stored.of(1))?.hosted === 7);
  t.deepEqual(await stored.of(1), { hosted: 7, mirrored: 0, asOf: 7_000_000 });
});

test('without any sample the bytes are not measured yet, but a limit waits for them', async (t) => {
  const { database, measures, measure } = await measured(t);
  const found = Promise.withResolvers<Holding[]>();
  measure.found = () => found.promise;
  const stored = new StorageMeter(database, measures, 1, () => 7_000_000);
  t.is(await stored.of(1), undefined);
  const limit = stored.recent(1);
  found.resolve([hosted(7)]);
  t.deepEqual(await limit, { hosted: 7, mirrored: 0 });
});

test('a call during a long measurement waits for it; a failed one is discarded', async (t) => {
  const { database, measures, clock, measure, looks } = await measured(t);
  const found = Promise.withResolvers<Holding[]>();
  measure.found = () => found.promise;
  const stored = new StorageMeter(database, measures, 1, () => clock.now);
  const first = stored.of(1);
  clock.now += 251;
  const second = stored.of(1);
  await until(() => looks() === 1);
  found.reject(new Error('gone'));
  await t.throwsAsync(first, { message: 'gone' });
  await t.throwsAsync(second, { message: 'gone' });
  t.is(looks(), 1);
  measure.found = () => [hosted(7)];
  t.is((await stored.of(1))?.hosted, 7);
});

test('sqlite: other work can run during a measurement', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const packages = Array.from({ length: 20_000 }, (_, index) => ({
    account_id: 1,
    package_key: `p${index}`,
    package_id: `p${index}`,
    standing: 0,
    created_at: 0,
    updated_at: 0,
  }));
  const blobs = Array.from({ length: 150_000 }, (_, index) => ({ digest: `sha256:${index}`, size: 1, stored_at: 0 }));
  await database.transaction(async (tx) => {
    for (let start = 0; start < blobs.length; start += 2000)
      await tx.insertNew('blobs', blobs.slice(start, start + 2000));
    for (let start = 0; start < packages.length; start += 200)
      await tx.insertNew('packages', packages.slice(start, start + 200));
  });
  const longest = await longestTurn(() => measureStored(database, measures, 1));
  t.true(longest < 50, `${longest} ms`);
});

for (const dialect of dialects) {
  test(`${dialect}: each blob counts once for an account, as hosted rather than mirrored, and is sampled every hour`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const sizes = [1, 10, 100, 1000, 10_000, 100_000];
    const digests = sizes.map((_, index) => `sha256:${index}`);
    await database.transaction(async (tx) => {
      for (const name of ['default', 'other', 'empty']) await tx.insert('accounts', { name, created_at: 0 });
      const blobs = sizes.map((size, index) => ({ digest: digests[index]!, size, stored_at: 0 }));
      await tx.insertNew('blobs', blobs);
      for (const [account, names] of [['1', ['a', 'b']] as const, ['2', ['a']] as const]) {
        for (const name of names) {
          const id = await tx.insert('repositories', {
            account_id: Number(account),
            name,
            created_at: 0,
            updated_at: 0,
          });
          const linked = account === '1' ? [0, 1] : [1, 2];
          await tx.insertNew(
            'repository_blobs',
            linked.map((index) => ({ repository_id: id, digest: digests[index]!, linked_at: 0 })),
          );
        }
      }
      const entry = { upstream: 'u', kind: 'blob', content_type: 't', attributes: '{}', size_bytes: 0 };
      const times = { stored_at: 0, validated_at: 0, used_at: 0 };
      for (const [index, reference] of [
        [1, 'hosted too'],
        [2, 'hosted by another'],
        [3, 'once'],
        [3, 'twice'],
      ] as const) {
        const row = { id: reference, name: 'n', reference, digest: digests[index]!, ...entry, ...times };
        await tx.insert('mirror_entries', row);
      }
    });
    const expected = [
      [1, { hosted: 11, mirrored: 1100 }],
      [2, { hosted: 110, mirrored: 0 }],
    ];
    for (const step of [1, 2, 2000])
      t.deepEqual(
        [...(await measureStored(database, measures, 1, step))].sort(([a], [b]) => a - b),
        expected,
      );

    // Rows in the database count too, in the same steps.
    await database.transaction(async (tx) => {
      const times = { created_at: 0, updated_at: 0 };
      for (const [account, metadata, terms] of [
        [1, 40, 'ä'],
        [1, 2, null],
        [2, 7, 'xy'],
      ] as const) {
        const key = `p${metadata}`;
        const names = { account_id: account, package_key: key, package_id: key };
        await tx.insert('packages', { ...names, standing: 0, ...times, metadata_bytes: metadata, terms });
      }
      const manifest = { media_type: 'm', size_bytes: 0, image_bytes: 0, pushed_at: 0 };
      const repositories = await tx.select<{ id: number; account_id: number }>(
        'SELECT id, account_id FROM repositories',
      );
      for (const { id, account_id } of repositories) {
        const annotations = account_id === 1 ? '{"a":"b"}' : null;
        await tx.insert('manifests', { repository_id: id, digest: 'sha256:none', annotations, ...manifest });
      }
    });
    const withRows = [
      [1, { hosted: 11 + 42 + 5 * 2 + 2 * 9, mirrored: 1100 }],
      [2, { hosted: 110 + 7 + 5 * 2, mirrored: 0 }],
    ];
    for (const step of [1, 2, 2000])
      t.deepEqual(
        [...(await measureStored(database, measures, 1, step))].sort(([a], [b]) => a - b),
        withRows,
      );
    await database.transaction(async (tx) => {
      await tx.run('DELETE FROM packages');
      await tx.run('DELETE FROM manifests');
    });

    const start = Date.UTC(2027, 1, 28, 22);
    let now = start + 1000;
    const stored = new StorageMeter(database, measures, 1, () => now);
    await stored.sample(start - hour);
    await stored.sample(start);
    await database.transaction((tx) => tx.run('DELETE FROM mirror_entries'));
    now += 1000;
    await Promise.all([stored.sample(start), new StorageMeter(database, measures, 1, () => now).sample(start)]);
    now += hour;
    await stored.sample(start + hour);
    const sampled = await database.select<{ account_id: number }>(
      'SELECT account_id FROM storage_samples WHERE hour = ? ORDER BY account_id',
      [start],
    );
    t.deepEqual(
      sampled.map(({ account_id: id }) => id),
      [1, 2, 3],
      'each account, also one without content',
    );
    const february = parsePeriod('2027-02')!;
    const open = await storageOf(database, stored, 1, february, now);
    t.deepEqual(open, {
      current: { hosted: 11, mirrored: 0 },
      peak: 1111,
      average: 561,
      byteHours: 1122,
      asOf: now,
    });
    await database.transaction((tx) => tx.run('DELETE FROM repository_blobs'));
    now = Date.UTC(2027, 2, 1, 0, 0, 0);
    const closed = await storageOf(database, stored, 1, february, now);
    t.deepEqual(closed, { ...open, asOf: now }, 'the last sample counts');
    t.like(await storageOf(database, stored, 1, parsePeriod('2027-03')!, now), { peak: 0, byteHours: 0 });
    t.like(await storageOf(database, stored, 3, february, now), { peak: 0, average: 0 });
  });
}

test('an hour of which a process that died has written some samples gets the others', async (t) => {
  const { database, measures, clock, measure } = await measured(t);
  const ids = Array.from({ length: 450 }, (_, at) => at + 1);
  await database.transaction(async (tx) => {
    for (const some of batches(ids))
      await tx.insertNew(
        'accounts',
        some.map((id) => ({ id, name: `account-${id}`, created_at: 0 })),
      );
  });
  measure.found = () => ids.map((id) => ({ account_id: id, mirrored: 0, bytes: id }));
  const begun = hourOf(clock.now);
  for (const transactions of [1, 2]) {
    const dying = dyingDatabase(database, transactions, true);
    await t.throwsAsync(new StorageMeter(dying, measures, 1, () => clock.now).sample(begun));
  }
  await new StorageMeter(database, measures, 1, () => clock.now).sample(begun);
  const sql = 'SELECT account_id AS id, hosted_bytes AS bytes FROM storage_samples WHERE hour = ? ORDER BY account_id';
  t.deepEqual(
    await database.select(sql, [begun]),
    ids.map((id) => ({ id, bytes: id })),
  );
});

test('what this process stores after a measurement began counts for a limit, but not twice', async (t) => {
  const { database, measures, clock, measure } = await measured(t);
  const added = new Map([[1, 10]]);
  const stored = new StorageMeter(database, measures, 1, () => clock.now, added);
  let cost = 0;
  measure.found = async () => {
    await new Promise(setImmediate);
    // A push during the measurement, whose bytes it finds or not.
    added.set(1, added.get(1)! + 5);
    clock.now += cost;
    return [hosted(100), { account_id: 2, mirrored: 1, bytes: 30 }];
  };
  t.deepEqual(await stored.recent(1), { hosted: 100, mirrored: 0 }, 'a short one has seen all');
  cost = 251;
  t.deepEqual(await stored.recent(1), { hosted: 105, mirrored: 0 }, 'a long one may not have seen what came meanwhile');
  added.set(1, added.get(1)! + 7);
  t.deepEqual(await stored.recent(1), { hosted: 112, mirrored: 0 });
  added.set(2, 1);
  t.deepEqual(await stored.recent(2), { hosted: 1, mirrored: 30 });
  t.deepEqual(await stored.recent(3), { hosted: 0, mirrored: 0 });
  t.deepEqual(await stored.of(1), { hosted: 100, mirrored: 0, asOf: clock.now - 251 }, 'the measured bytes alone');
  // The next one is expected to be long, so the one before is the answer meanwhile.
  clock.now += 20 * 251;
  const { promise, resolve } = Promise.withResolvers<Holding[]>();
  measure.found = () => promise;
  added.set(1, added.get(1)! + 1);
  t.deepEqual(await stored.recent(1), { hosted: 113, mirrored: 0 });
  clock.now -= 21 * 251;
  t.deepEqual(await stored.recent(1), { hosted: 113, mirrored: 0 }, 'also after the clock was set back');
  resolve([hosted(200)]);
  await until(async () => (await stored.of(1))?.hosted === 200);
});

const sample = (id: number, at: number, bytes: number, mirrored = 0) => ({
  account_id: id,
  hour: at,
  hosted_bytes: bytes,
  mirrored_bytes: mirrored,
});

for (const dialect of dialects) {
  test(`${dialect}: the bytes of past days are means of their samples, and those of all accounts of the last hour`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const stored = new StorageMeter(database, measures, 1, () => 0);
    t.is(await stored.sampled(), undefined);
    t.deepEqual(await stored.history(1, 0), []);
    const day = 24 * hour;
    const ids = Array.from({ length: 401 }, (_, at) => at + 1);
    await database.transaction(async (tx) => {
      for (const some of batches(ids))
        await tx.insertNew(
          'accounts',
          some.map((id) => ({ id, name: `account-${id}`, created_at: 0 })),
        );
      for (const some of batches(ids))
        await tx.insertNew(
          'storage_samples',
          some.map((id) => sample(id, 12 * day, id, 2)),
        );
      await tx.insertNew('storage_samples', [
        sample(1, 10 * day, 10, 3),
        sample(1, 10 * day + 5 * hour, 13, 4),
        sample(1, 11 * day - hour, 20, 3),
        sample(1, 11 * day, 7),
        sample(2, 11 * day, 1000),
        // Another instance has begun the next hour.
        sample(2, 12 * day + hour, 5000),
      ]);
    });
    const days = [
      { day: 10 * day, hosted: 14, mirrored: 3 },
      { day: 11 * day, hosted: 7, mirrored: 0 },
      { day: 12 * day, hosted: 1, mirrored: 2 },
    ];
    t.deepEqual(await stored.history(1, 10 * day), days);
    t.deepEqual(await stored.history(1, 10 * day + 1), [{ day: 10 * day, hosted: 17, mirrored: 4 }, ...days.slice(1)]);
    t.deepEqual(await stored.history(1, 12 * day + 1), []);
    t.deepEqual(await stored.sampled(), { hosted: (401 * 402) / 2, mirrored: 802 });
  });
}
