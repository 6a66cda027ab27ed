import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { migrate } from '../../../src/database/migrate.ts';
import type { Processes } from '../../../src/database/processes.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import { BlobReservations, makeLive, ReservationLost } from '../../../src/storage/blobs/blob-reservations.ts';
import { removeBlobs } from '../../../src/storage/blobs/removal.ts';
import type { Driver } from '../../../src/storage/drivers/driver.ts';
import {
  deletionTimes,
  DeletionWatch,
  findBlobs,
  keepLive,
  liveBlobs,
  lockBlobs,
  newGeneration,
  sampleBlobs,
  takeOver,
  type BlobRow,
  type DeletionTimes,
} from '../../../src/storage/blobs/states.ts';
import { allOf } from '../../support/all-of.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { within } from '../../support/until.ts';

// The changes of single rows of `blobs`, without a store around them.

type Row = BlobRow & { stored_at?: number; deleted_by?: string | null; deleted_generation?: number | null };

/** Digests in order, each of which begins with one of 16 digits. */
const digests = Array.from({ length: 16 }, (_, index): Digest => `sha256:${index.toString(16).repeat(64)}`);
const [first, second, third, fourth] = digests as [Digest, Digest, Digest, Digest];

async function setUp(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  return {
    database,
    insert: (...rows: Row[]) =>
      database.transaction(async (tx) => {
        for (const row of rows) await tx.insertNew('blobs', [{ stored_at: 1, ...row }]);
      }),
    rows: () => database.select<Row>('SELECT digest, size, state, generation, stored_at FROM blobs ORDER BY digest'),
  };
}

/** Times whose clock shows `shown` one after another, then always the last. */
function clockOf(...shown: number[]) {
  const state = { looks: 0 };
  const watch = () => shown[Math.min(state.looks++, shown.length - 1)]!;
  return { state, times: { ...deletionTimes, watch } satisfies DeletionTimes };
}

test.serial('a row that is being deleted is looked at after longer and longer pauses', async (t) => {
  const { database, insert } = await setUp(t);
  await insert({ digest: first, size: 1, state: 'deleting', generation: 7 });
  const pauses: unknown[] = [];
  const real = timers.setTimeout;
  const replace = (by: typeof real) => {
    timers.setTimeout = by;
    syncBuiltinESMExports();
  };
  t.teardown(() => replace(real));
  replace(async <T>(pause?: number, value?: T): Promise<T> => {
    pauses.push(pause);
    if (pauses.length === 8) await database.transaction((tx) => tx.run('DELETE FROM blobs', []));
    return value as T;
  });
  await new BlobReservations(database, () => 5, clockOf(0).times).announce(new Map([[first, 1]]));
  t.deepEqual(pauses, [5, 10, 20, 40, 80, 160, 200, 200]);
});

for (const [size, longest] of [
  [2 ** 20, 510.485_76],
  [1_000_000_000, 10_500],
  [2_950_000_000, 30_000],
  [1e12, 30_000],
] as const) {
  test(`a put of ${size} bytes by another commit is awaited for ${longest} ms`, async (t) => {
    const { database, insert } = await setUp(t);
    await insert({ digest: first, size, state: 'pending', generation: 7 });
    const { state, times } = clockOf(100, 100 + longest - 0.01, 100 + longest);
    const reservations = new BlobReservations(database, () => 5, times);
    const sizes = new Map([[first, size]]);
    t.like(await within(reservations.announce(sizes, true)), [{ digest: first, state: 'pending', isNew: false }]);
    t.is(state.looks, 3);
    await reservations.announce(sizes);
    t.is(state.looks, 5, 'not awaited at all');
  });
}

test('the put of a smaller blob is not awaited', async (t) => {
  const { database, insert } = await setUp(t);
  const size = 2 ** 20 - 1;
  await insert({ digest: first, size, state: 'pending', generation: 7 });
  const { state, times } = clockOf(0);
  await new BlobReservations(database, () => 5, times).announce(new Map([[first, size]]), true);
  t.is(state.looks, 2);
});

test('rows are inserted and announced in the order of their digests, and only what was not there is new', async (t) => {
  const { database, insert, rows } = await setUp(t);
  await insert(
    { digest: second, size: 2, state: 'live', generation: 7 },
    { digest: third, size: 3, state: 'pending', generation: 8 },
    { digest: digests[9]!, size: 9, state: 'live', generation: 9 },
  );
  const reservations = new BlobReservations(database, () => 50, clockOf(0).times);
  t.deepEqual(await reservations.announce(new Map()), []);
  const sizes = [fourth, third, first, second].map((digest) => [digest, digests.indexOf(digest) + 1] as const);
  const announced = await reservations.announce(new Map(sizes));
  t.deepEqual(
    announced.map(({ digest, size, state, isNew }) => [digest, size, state, isNew]),
    [
      [first, 1, 'pending', true],
      [second, 2, 'live', false],
      [third, 3, 'pending', false],
      [fourth, 4, 'pending', true],
    ],
  );
  t.is(announced[0]!.generation, announced[3]!.generation);
  t.like(await rows(), [
    { digest: first, stored_at: 50 },
    { digest: second, stored_at: 1, generation: 7 },
    { digest: third, stored_at: 50, generation: 8 },
    { digest: fourth, stored_at: 50 },
    { state: 'live', size: 9, generation: 9, stored_at: 1 },
  ]);
  const inserted = 'SELECT digest FROM blobs WHERE stored_at = 50 AND generation <> 8 ORDER BY rowid';
  t.deepEqual(await database.select(inserted), [{ digest: first }, { digest: fourth }], 'as the collector locks them');
});

test('a row whose deletion was given up is pending again, with the size that is put now', async (t) => {
  const { database, insert, rows } = await setUp(t);
  await insert(
    { digest: first, size: 1, state: 'deleting', generation: 7 },
    { digest: second, size: 1, state: 'deleting', generation: 7 },
    { digest: third, size: 1, state: 'live', generation: 7 },
  );
  // Seen at 100, and again when its time has passed.
  const { times } = clockOf(100, 100, 100, 200, 200);
  const reservations = new BlobReservations(database, () => 50, { ...times, takeOverAfter: 100 });
  t.like(await within(reservations.announce(new Map([[first, 5]]))), [
    { digest: first, size: 5, state: 'pending', isNew: true },
  ]);
  const [taken, ...others] = await rows();
  t.like(taken, { size: 5, state: 'pending', stored_at: 50 });
  t.not(taken!.generation, 7);
  t.like(others, [
    { size: 1, state: 'deleting', generation: 7 },
    { size: 1, state: 'live', generation: 7 },
  ]);
});

test('only the row of the same bytes is made live, and none that is deleted', async (t) => {
  const { database, insert, rows } = await setUp(t);
  const reserved = { digest: first, size: 1, state: 'pending', generation: 7 } as const;
  await insert(
    reserved,
    { ...reserved, digest: second },
    { ...reserved, digest: third, state: 'deleting' },
    { ...reserved, digest: fourth, generation: 8 },
  );
  const live = (...wanted: Digest[]) =>
    database.transaction((tx) =>
      makeLive(
        tx,
        wanted.map((digest) => ({ ...reserved, digest, isNew: true })),
        50,
      ),
    );
  await live(first);
  for (const each of [third, fourth, digests[9]!])
    await t.throwsAsync(live(each), {
      instanceOf: ReservationLost,
      message: `${each} was removed while it was being stored`,
    });
  t.deepEqual(
    (await rows()).map(({ state, stored_at }) => [state, stored_at]),
    [
      ['live', 50],
      ['pending', 1],
      ['deleting', 1],
      ['pending', 1],
    ],
  );
});

test('a live blob is kept, no other one is', async (t) => {
  const { database, insert, rows } = await setUp(t);
  await insert(
    { digest: first, size: 1, state: 'live', generation: 7 },
    { digest: second, size: 1, state: 'live', generation: 7 },
    { digest: third, size: 1, state: 'pending', generation: 7 },
  );
  const keep = (digest: Digest) => database.transaction((tx) => keepLive(tx, digest, 50));
  t.deepEqual([await keep(first), await keep(third), await keep(fourth)], [true, false, false]);
  t.deepEqual(
    (await rows()).map(({ stored_at }) => stored_at),
    [50, 1, 1],
  );
});

test('only the rows of a deletion that nobody has taken over yet are taken over', async (t) => {
  const { database, insert, rows } = await setUp(t);
  const row = { digest: first, size: 1, state: 'deleting', generation: 7 } as const;
  const seen = [row, { ...row, digest: second }, { ...row, digest: third, generation: 6 }];
  await insert(
    row,
    { ...row, digest: second, state: 'pending' },
    { ...row, digest: third },
    { ...row, digest: fourth },
  );
  const taken = await database.transaction((tx) => takeOver(tx, seen, 9));
  t.deepEqual(taken, [{ ...row, generation: 9 }]);
  t.deepEqual(
    (await rows()).map(({ generation }) => generation),
    [9, 7, 7, 7],
  );
  const [again] = await database.transaction((tx) => takeOver(tx, taken));
  t.not(again!.generation, 9);
  t.is((await rows())[0]!.generation, again!.generation);
  t.true(newGeneration() !== newGeneration() && newGeneration() > 0);
});

test('live blobs are found in pages and as samples, others are not', async (t) => {
  const { database, insert } = await setUp(t);
  const row = { size: 1, state: 'live', generation: 7 } as const;
  await insert(...digests.map((digest, index): Row => ({ ...row, digest, state: index === 5 ? 'pending' : 'live' })));
  const live = digests.filter((_, index) => index !== 5);
  const pages: Digest[][] = [];
  for await (const page of liveBlobs(database, 7)) pages.push(page.map(({ digest }) => digest));
  t.deepEqual(pages, [live.slice(0, 7), live.slice(7, 14), live.slice(14)]);
  const [after] = await allOf(liveBlobs(database, 2, fourth));
  t.deepEqual(
    after!.map(({ digest }) => digest),
    live.slice(4, 6),
  );
  const found = new Set<Digest>();
  // Each begins at one of 65536 places.
  for (let time = 0; time < 50; time += 1) {
    const samples = await sampleBlobs(database, 3);
    t.is(new Set(samples.map(({ digest }) => digest)).size, 3);
    for (const { digest } of samples) found.add(digest);
  }
  t.true(found.size > 3);
  t.false(found.has(digests[5]!));
  t.is((await sampleBlobs(database, 100)).length, 15);
  const wanted = [third, first];
  t.deepEqual(await findBlobs(database, wanted), [
    { ...row, digest: first },
    { ...row, digest: third },
  ]);
  t.deepEqual(await lockBlobs(database, wanted), await findBlobs(database, wanted));
});

test('deletions of ended processes are given up at once, of silent ones after a time, of others after a longer one', async (t) => {
  const { database, insert } = await setUp(t);
  const row = { size: 1, state: 'deleting', generation: 7 } as const;
  await insert(
    { ...row, digest: first, deleted_by: 'ended', deleted_generation: 7 },
    { ...row, digest: second, deleted_by: 'live', deleted_generation: 7 },
    { ...row, digest: third, deleted_by: 'ended', deleted_generation: 6 },
    { ...row, digest: fourth, deleted_by: null, deleted_generation: 7 },
    { ...row, digest: digests[4]!, state: 'live', deleted_by: 'ended', deleted_generation: 7 },
  );
  const all = await findBlobs(database, digests);
  const asked: unknown[] = [];
  for (const [isExact, firstAt] of [
    [true, 0],
    [false, 10],
  ] as const) {
    const processes: Processes = {
      id: 'live',
      isExact,
      gone: (ids, silentFor) => {
        asked.push([ids.toSorted(), silentFor]);
        return Promise.resolve(new Set(['ended']));
      },
    };
    let now = 50;
    const watch = new DeletionWatch({
      beginWithin: 5,
      takeOverAfter: 100,
      watch: () => now,
      now: () => 0,
      processes: () => processes,
    });
    const givenUp = async (after: number) => {
      now = 50 + after;
      return (await watch.givenUp(database, all)).map(({ digest }) => digest);
    };
    t.deepEqual(await givenUp(0), firstAt === 0 ? [first] : []);
    t.deepEqual(await givenUp(9), firstAt === 0 ? [first] : []);
    t.deepEqual(await givenUp(10), [first]);
    t.deepEqual(await givenUp(99), [first]);
    t.deepEqual(await givenUp(100), [first, second, third, fourth]);
    const others = all.map((each) => ({ ...each, generation: 8 }));
    t.deepEqual(await watch.givenUp(database, others.slice(1)), [], 'another deletion');
  }
  t.deepEqual(asked[0], [['ended', 'live'], 100]);
  t.deepEqual(await new DeletionWatch(deletionTimes).givenUp(database, all), []);
});

test('a failed deletion is repeated only in the first half of the time after which others take it over', async (t) => {
  for (const clock of ['watch', 'now'] as const) {
    const { database, insert, rows } = await setUp(t);
    const marked = digests.slice(0, 2).map((digest): BlobRow => ({ digest, size: 1, state: 'pending', generation: 7 }));
    await insert(...marked, { digest: third, size: 1, state: 'live', generation: 7 });
    const driver: Driver = new MemoryDriver();
    const shown = { watch: 1000, now: 9000 };
    const times = { beginWithin: 20, takeOverAfter: 100, watch: () => shown.watch, now: () => shown.now };
    const may: boolean[] = [];
    const failure = new Error('unreachable');
    driver.delete = (digest, mayRepeat) => {
      if (digest !== first) return Promise.resolve();
      for (const later of [0, 49, 1]) {
        shown[clock] += later;
        may.push(mayRepeat!());
      }
      return Promise.reject(failure);
    };
    const removed = await removeBlobs(database, driver, times, async (tx) => {
      const locked = await lockBlobs(tx, digests.slice(0, 2));
      // The choice does not count.
      shown[clock] += 500;
      return locked;
    });
    t.deepEqual(may, [true, true, false]);
    t.deepEqual(removed, { rows: [marked[1]!], failures: [failure] });
    t.like(await rows(), [
      { digest: first, state: 'deleting' },
      { digest: third, state: 'live' },
    ]);
  }
});

test('no deletion begins when its time is over, and a row that is back or taken over stays', async (t) => {
  const { database, insert, rows } = await setUp(t);
  const all = digests.slice(0, 3).map((digest): BlobRow => ({ digest, size: 1, state: 'live', generation: 7 }));
  await insert(...all);
  const driver = new MemoryDriver();
  const deleted = new Set<Digest | undefined>();
  driver.faults.before = async (_, digest) => {
    deleted.add(digest);
    const change = digest === first ? "state = 'live'" : 'generation = 8';
    if (digest && digest !== third)
      await database.transaction((tx) => tx.run(`UPDATE blobs SET ${change} WHERE digest = ?`, [digest]));
  };
  const remove = (began: number) => {
    const { times } = clockOf(0, began);
    const limits = { ...times, beginWithin: 20, now: () => 0 };
    return removeBlobs(database, driver, limits, (tx) => lockBlobs(tx, digests));
  };
  t.deepEqual(await remove(20), { rows: [], failures: [] });
  t.is(deleted.size, 0);
  t.deepEqual(
    (await rows()).map(({ state }) => state),
    ['deleting', 'deleting', 'deleting'],
  );
  t.is((await remove(19)).rows.length, 3);
  t.deepEqual(deleted, new Set(digests.slice(0, 3)));
  t.like(await rows(), [
    { digest: first, state: 'live', generation: 7 },
    { digest: second, state: 'deleting', generation: 8 },
  ]);
  t.is((await rows()).length, 2);
});

test('the rows of puts and of finished deletions need no sync, the mark of a deletion does', async (t) => {
  const { database, insert } = await setUp(t);
  const fleeting: boolean[] = [];
  const watched = changedDatabase(database, {
    transaction: (work, options) => {
      fleeting.push(options?.fleeting ?? false);
      return database.transaction(work, options);
    },
  });
  await new BlobReservations(watched, () => 5, deletionTimes).announce(new Map([[first, 1]]));
  t.deepEqual(fleeting.splice(0), [true]);
  await insert({ digest: second, size: 1, state: 'live', generation: 7 });
  await removeBlobs(watched, new MemoryDriver(), deletionTimes, (tx) => lockBlobs(tx, [second]));
  t.deepEqual(fleeting.splice(0), [false, true]);
  t.deepEqual(await removeBlobs(watched, new MemoryDriver(), deletionTimes, () => Promise.resolve([])), {
    rows: [],
    failures: [],
  });
  t.deepEqual(fleeting, [false], 'nothing was removed');
});
