import fs, { constants, readdir, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import test, { type ExecutionContext } from 'ava';
import { BlobStore } from '../../../src/storage/blobs/blob-store.ts';
import { CachedDriver } from '../../../src/storage/drivers/cached-driver.ts';
import { DiskReserve } from '../../../src/storage/files/disk-reserve.ts';
import { localDisk, type Disk } from '../../../src/storage/files/disk.ts';
import { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { openStoreOn } from '../../support/store.ts';

// Files that are not committed yet, and the checks of the disk.

async function setUp(t: ExecutionContext, reserve?: { free: number; kept: number }) {
  const opened = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const { database, driver, paths } = opened;
  const done: string[] = [];
  const disk: Disk = {
    ...localDisk,
    write: (handle, pieces, position) => {
      done.push(`wrote ${pieces.reduce((sum, { length }) => sum + length, 0)} bytes`);
      return localDisk.write(handle, pieces, position);
    },
    copy: async (from, to) => {
      done.push('copied');
      await localDisk.copy(from, to);
    },
  };
  const room = reserve && new DiskReserve(paths.data, reserve.kept, () => Promise.resolve(reserve.free));
  const blobs = new BlobStore(database, driver, paths, Date.now, { disk, room });
  return { ...opened, blobs, disk, done, staged: () => readdir(paths.staging) };
}

test('a check of the disk writes one byte, leaves no file, and asks the storage', async (t) => {
  const { blobs, disk, driver, done, staged } = await setUp(t);
  await blobs.checkWrites();
  t.deepEqual([done.splice(0), await staged()], [['wrote 1 bytes'], []]);
  const write = disk.write.bind(disk);
  disk.write = () => Promise.reject(new Error('no space'));
  await t.throwsAsync(blobs.checkWrites(), { message: 'no space' });
  t.deepEqual(await staged(), []);
  disk.write = write;
  driver.checkWrites = () => Promise.reject(new Error('read-only'));
  await t.throwsAsync(blobs.checkWrites(), { message: 'read-only' });
});

test('the folder of staged files must be there and be a folder', async (t) => {
  const { blobs, paths } = await setUp(t);
  await t.notThrowsAsync(blobs.checkStaging());
  await rm(paths.staging, { recursive: true });
  await t.throwsAsync(blobs.checkStaging(), { code: 'ENOENT' });
  const unstaged = await blobs.stage();
  t.true(unstaged.isOffDisk);
  await unstaged.discard();
  await writeFile(paths.staging, '', { mode: 0o700 });
  await t.throwsAsync(blobs.checkStaging(), { message: `${paths.staging} is not a folder` });
  const upstream = await blobs.stage(['sha256'], true);
  t.true(upstream.isOffDisk, 'upstream content is sent from memory');
  t.true(upstream.continueInMemory(64 * 2 ** 20));
  await upstream.discard();
  const hashed = await blobs.stage();
  t.deepEqual([hashed.isOffDisk, hashed.continueInMemory(0)], [true, false]);
  await hashed.discard();
  await t.throwsAsync(blobs.stageHosted(1));
  await rm(paths.staging);
  await symlink(paths.staging, paths.staging);
  await t.throwsAsync(blobs.stage(), { code: 'ELOOP' }, 'no failure of the disk');
});

test.serial('the folder of staged files must be writable, but a disk may be read-only for a time', async (t) => {
  const { blobs, paths } = await setUp(t);
  const { access } = fs;
  const asked: unknown[] = [];
  let code = 'EROFS';
  const replace = (by: typeof access) => {
    fs.access = by;
    syncBuiltinESMExports();
  };
  t.teardown(() => replace(access));
  replace((path, mode) => {
    asked.push([path, mode]);
    return Promise.reject(Object.assign(new Error(code), { code }));
  });
  await t.notThrowsAsync(blobs.checkStaging());
  code = 'EACCES';
  await t.throwsAsync(blobs.checkStaging(), { code });
  t.deepEqual(asked[0], [paths.staging, constants.W_OK | constants.X_OK]);
});

test.serial('upstream content is sent from memory while the disk has no room for another file', async (t) => {
  const { blobs } = await setUp(t);
  const create = StagedFile.create.bind(StagedFile);
  StagedFile.create = () => Promise.reject(Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' }));
  t.teardown(() => void (StagedFile.create = create));
  const staged = await blobs.stage();
  t.true(staged.isOffDisk);
  await staged.discard();
});

test('a check of reads opens the storage itself, not a copy, and closes what it has opened', async (t) => {
  const { blobs, database, driver, paths } = await setUp(t);
  const cached = new CachedDriver(driver, paths.cache, 1000, () => Promise.resolve(true));
  const over = new BlobStore(database, cached, paths, Date.now);
  await over.prepare();
  const arrival = await blobs.stageBytes(Buffer.from('content'));
  await over.commit([arrival], () => Promise.resolve());
  t.is((await readdir(paths.cache)).length, 1);
  const open = driver.open.bind(driver);
  let closed = 0;
  driver.open = async (digest, size) => ({ ...(await open(digest, size)), close: () => void (closed += 1) });
  await over.checkReads();
  t.is(closed, 1);
  driver.faults.before = (operation) => {
    if (operation === 'open') throw new Error('unreadable');
  };
  await t.throwsAsync(over.checkReads(), { message: 'unreadable' });
});

test('no file of which a part is in memory is committed, nor those that came with it', async (t) => {
  const { blobs, driver, staged } = await setUp(t);
  for (const isFirst of [true, false]) {
    const whole = await blobs.stageBytes(Buffer.from('whole'));
    const part = await blobs.stage(['sha256'], true);
    await part.write(Buffer.from('on the disk'));
    t.true(part.continueInMemory(10));
    await part.write(Buffer.from('in memory'));
    const arrivals = [whole, { staged: part, digest: await part.digest() }];
    const commit = blobs.commit(isFirst ? arrivals : arrivals.toReversed(), () => Promise.resolve(t.fail()));
    await t.throwsAsync(commit, { name: 'StorageUnavailable' });
    t.deepEqual([driver.contents.size, await staged()], [0, []]);
  }
});

test('hosted content leaves the reserve free, byte for byte', async (t) => {
  const { blobs, done, staged } = await setUp(t, { free: 1100, kept: 1000 });
  await t.throwsAsync(blobs.stageHosted(101), { name: 'StorageFull' });
  await t.throwsAsync(blobs.stageBytes(Buffer.alloc(101)), { name: 'StorageFull' });
  t.deepEqual(await staged(), []);
  const file = await blobs.stageHosted(100, ['sha512']);
  await t.throwsAsync(file.write(Buffer.alloc(101)), { name: 'StorageFull' });
  await file.write(Buffer.alloc(100, 'x'));
  t.deepEqual(done.splice(0), ['wrote 100 bytes']);
  await file.close();
  const again = await blobs.reopen(file.id, 100);
  t.is((await stat(again.path)).size, 100);
  t.deepEqual(done, [], 'not copied');
  await t.throwsAsync(again.write(Buffer.alloc(101)), { name: 'StorageFull' });
  await again.close();
  const { ino } = await stat(again.path);
  const detached = await blobs.reopen(file.id, 100, true);
  t.deepEqual(done, ['copied']);
  t.not((await stat(detached.path)).ino, ino);
  t.deepEqual(await detached.bytes(), Buffer.alloc(100, 'x'));
  await detached.close();
  await blobs.discardStaged(file.id);
  await t.notThrowsAsync(blobs.discardStaged(file.id));
  t.deepEqual(await staged(), []);
});

test('without a reserve, hosted content may use all of the disk', async (t) => {
  const { blobs, done } = await setUp(t);
  await t.notThrowsAsync(blobs.admit(Number.MAX_SAFE_INTEGER));
  const file = await blobs.stageHosted(Number.MAX_SAFE_INTEGER);
  await file.write(Buffer.alloc(3));
  t.deepEqual(done, ['wrote 3 bytes']);
  await file.discard();
});

test('a staged file that changed at the time of the bound does not expire', async (t) => {
  const { blobs } = await setUp(t);
  const { staged } = await blobs.stageBytes(Buffer.from('four'));
  await utimes(staged.path, 1000, 1000);
  const expire = (before: number) => blobs.expireStaged(before, () => Promise.resolve(false));
  t.deepEqual(await expire(1_000_000), { files: 0, bytes: 0 });
  t.deepEqual(await expire(1_000_001), { files: 1, bytes: 4 });
  await staged.close();
});
