import { unlink, writeFile } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { readAll } from '../../../src/storage/files/content.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import { deletionTimes } from '../../../src/storage/blobs/states.ts';
import { BlobStore } from '../../../src/storage/blobs/blob-store.ts';
import { keptOverhead } from '../../../src/storage/files/content.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { openStore, openStoreOn } from '../../support/store.ts';

const bytes = Buffer.from('stored bytes');

async function storeOne(t: ExecutionContext) {
  const clock = { now: 0 };
  const { blobs, driver } = await openStore(t, 'sqlite', Date.now, { ...deletionTimes, watch: () => clock.now });
  const arrival = await blobs.stageBytes(bytes);
  await blobs.commit([arrival], () => Promise.resolve());
  const read = async () => readAll(await blobs.open(arrival.digest, bytes.length), bytes.length);
  return { clock, path: driver.pathOf(arrival.digest), read };
}

test('a small blob is read from the disk once, and damaged bytes are neither served nor cached', async (t) => {
  const { path, read } = await storeOne(t);
  await writeFile(path, 'damaged byte');
  await t.throwsAsync(read(), { name: 'ContentDamaged' });
  await writeFile(path, bytes);
  t.deepEqual(await read(), bytes);
  await unlink(path);
  t.deepEqual(await read(), bytes, 'from memory');
});

test('memory does not hide a damage for longer than 5 seconds', async (t) => {
  const damages: [string, (path: string) => Promise<void>][] = [
    ['missing', (path) => unlink(path)],
    ['of another size', (path) => writeFile(path, 'short')],
    ['of the same size', (path) => writeFile(path, 'damaged byte')],
  ];
  for (const [name, damage] of damages) {
    const { clock, path, read } = await storeOne(t);
    t.deepEqual(await read(), bytes);
    clock.now += 5000;
    t.deepEqual(await read(), bytes, 'still there');
    await damage(path);
    clock.now += 4999;
    t.deepEqual(await read(), bytes, 'from memory');
    clock.now += 1;
    await t.throwsAsync(read(), { name: 'ContentDamaged' }, name);
  }
});

test('a small blob keeps no memory of other buffers', async (t) => {
  const { blobs } = await openStore(t, 'sqlite');
  for (const length of [1, 300, 5000]) {
    const arrival = await blobs.stageBytes(Buffer.alloc(length, 1));
    await blobs.commit([arrival], () => Promise.resolve());
    const content = await blobs.open(arrival.digest, length);
    t.is(content.bytes!.buffer.byteLength, length);
  }
});

/** A storage in memory, and the requests to it of each open. */
async function watched(t: ExecutionContext, smallBytes?: number) {
  const store = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const { driver } = store;
  const blobs = new BlobStore(store.database, driver, store.paths, Date.now, {
    smallBytes,
    times: { ...deletionTimes, watch: () => 0 },
  });
  const commit = async (size: number, fill = 1) => {
    const arrival = await blobs.stageBytes(Buffer.alloc(size, fill));
    await blobs.commit([arrival], () => Promise.resolve());
    return arrival.digest;
  };
  const requests = async (digest: Digest, size: number, checked?: boolean) => {
    const done: string[] = [];
    driver.faults.before = (operation) => void done.push(operation);
    const content = await blobs.open(digest, size, checked);
    driver.faults = {};
    content.close();
    return done;
  };
  return { driver, blobs, commit, requests };
}

test('a remote storage is asked about bytes in memory only by a read that must be right', async (t) => {
  const { driver, blobs, commit, requests } = await watched(t);
  driver.isRemote = true;
  const digest = await commit(100);
  t.deepEqual(await requests(digest, 100), ['open']);
  t.deepEqual(await requests(digest, 100), []);
  t.deepEqual(await requests(digest, 100, true), ['stat', 'stat', 'open'], 'the version was not known');
  t.deepEqual(await requests(digest, 100, true), ['stat']);
  await driver.delete(digest);
  await t.throwsAsync(blobs.open(digest, 100, true), { name: 'ContentDamaged' });
  await t.throwsAsync(blobs.open(digest, 100), { name: 'ContentDamaged' }, 'the bytes are forgotten');
});

test('a push of bytes that are in a remote storage finds out their version', async (t) => {
  const { driver, commit, requests } = await watched(t);
  driver.isRemote = true;
  const digest = await commit(100);
  await commit(100);
  t.deepEqual(await requests(digest, 100), []);
  t.deepEqual(await requests(digest, 100, true), ['stat']);
});

test('a remote storage without bytes that are in memory, of no known version, has lost them', async (t) => {
  const { driver, blobs, commit, requests } = await watched(t);
  driver.isRemote = true;
  const digest = await commit(100);
  t.deepEqual(await requests(digest, 100), ['open']);
  await driver.delete(digest);
  await t.throwsAsync(blobs.open(digest, 100, true), { name: 'ContentDamaged' });
});

test('blobs up to 256 KiB stay in memory, as many as it has room for', async (t) => {
  const { commit, requests } = await watched(t);
  const [small, large] = [await commit(2 ** 18), await commit(2 ** 18 + 1)];
  t.deepEqual(await requests(small, 2 ** 18), ['stat', 'open']);
  t.deepEqual(await requests(small, 2 ** 18), []);
  for (let time = 0; time < 2; time += 1) t.deepEqual(await requests(large, 2 ** 18 + 1), ['open']);

  for (const missing of [0, 1]) {
    const few = await watched(t, 2 * (100 + keptOverhead) - missing);
    const digests = [await few.commit(100, 1), await few.commit(100, 2)];
    for (const each of digests) await few.requests(each, 100);
    t.deepEqual(await few.requests(digests[0]!, 100), missing === 0 ? [] : ['stat', 'open']);
  }
});
