import test from 'ava';
import { DiskReserve } from '../../../src/storage/files/disk-reserve.ts';

const reserve = 1600;
const full = { name: 'StorageFull' };

function setUp(free: number) {
  const disk = { free };
  const reports: boolean[] = [];
  const room = new DiskReserve(
    '/',
    reserve,
    () => Promise.resolve(disk.free),
    (isFull) => reports.push(isFull),
  );
  return { disk, reports, room };
}

test('writes in progress count, so that together they leave the reserve', async (t) => {
  const { room } = setUp(reserve + 100);
  const [begun, held] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const first = room.write(60, () => {
    begun.resolve();
    return held.promise;
  });
  await begun.promise;
  await t.throwsAsync(
    room.write(60, () => Promise.resolve()),
    full,
  );
  await t.throwsAsync(room.admit(60), full);
  held.resolve();
  await first;
  await room.write(60, () => Promise.resolve());
  await t.throwsAsync(
    room.write(100, () => Promise.reject(new Error('broken'))),
    { message: 'broken' },
  );
  await t.notThrowsAsync(room.admit(100), 'a write that failed has ended too');
});

test('expected upstream content counts for upstream content only, until it has arrived', async (t) => {
  const { room } = setUp(reserve + 100);
  const rest = room.expect(90);
  t.false(await room.has(11));
  t.true(await room.has(10));
  await t.notThrowsAsync(room.admit(100), 'it refuses no push');
  rest(40);
  t.true(await room.has(60));
  t.false(await room.has(61));
  rest(0);
  t.true(await room.has(100));
});

test('content that is removed when it is sent may use half of the reserve', async (t) => {
  const { room } = setUp(reserve);
  t.false(await room.has(1));
  t.true(await room.hasForAMoment(reserve / 2));
  t.false(await room.hasForAMoment(reserve / 2 + 1));
  const rest = room.expect(100);
  t.true(await room.hasForAMoment(reserve / 2 - 100));
  t.false(await room.hasForAMoment(reserve / 2 - 99));
  rest(0);
});

test('uploads are refused while the reserve is not free, and an operator sees how much is', async (t) => {
  const { disk, room } = setUp(reserve);
  await t.notThrowsAsync(room.check());
  t.deepEqual(await room.measure(), { free: reserve, reserve });
  disk.free = reserve - 1;
  await t.throwsAsync(room.check(), full);
  const gone = new DiskReserve('/', reserve, () => Promise.reject(new Error('ENOENT')));
  for (const work of [gone.check(), gone.measure(), gone.admit(1), gone.has(1)])
    await t.throwsAsync(work, { name: 'StorageUnavailable', message: /The data folder of this server cannot be/ });
  t.true((await new DiskReserve('/', reserve).measure()).free >= 0);
});

test('a full disk is reported once, and as no longer full when a sixteenth more than the reserve is free', async (t) => {
  const { disk, room, reports } = setUp(reserve);
  const admit = async (free: number) => {
    disk.free = free;
    await room.admit(0).catch(() => undefined);
    return reports.splice(0);
  };
  t.deepEqual(await admit(reserve), []);
  t.deepEqual(await admit(reserve - 1), [true]);
  t.deepEqual(await admit(reserve - 1), []);
  t.deepEqual(await admit(reserve + 99), []);
  t.deepEqual(await admit(reserve + 100), [false]);
  t.deepEqual(await admit(reserve + 1), []);
});
