import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { BlobStore } from '../../../src/storage/blobs/blob-store.ts';
import { CachedDriver } from '../../../src/storage/drivers/cached-driver.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { openStore } from '../../support/store.ts';

// The copies of what was put. Those of what was read are in the tests of S3.

for (const [what, fails, copies] of [
  ['a put keeps its file as a copy when the disk has it', false, 1],
  ['a put succeeds without a copy when the disk cannot sync it', true, 0],
] as const) {
  test(what, async (t) => {
    const { blobs, data } = await openStore(t, 'sqlite');
    const origin = new MemoryDriver();
    const { cache } = new Paths(data);
    const driver = new CachedDriver(origin, cache, 2 ** 20, () => Promise.resolve(true));
    await driver.prepare();
    const { staged, digest } = await blobs.stageBytes(Buffer.from('content'));
    t.teardown(() => staged.discard());
    const sync = staged.sync.bind(staged);
    let syncs = 0;
    staged.sync = async () => {
      t.deepEqual(await readdir(cache), [], 'before the copy');
      syncs += 1;
      await sync();
      if (fails) throw Object.assign(new Error('the disk has failed'), { code: 'EIO' });
    };
    await driver.put(digest, staged);
    t.is(syncs, 1);
    t.is(origin.contents.get(digestOf('content'))?.toString(), 'content');
    t.is((await readdir(cache)).length, copies);
  });
}

test('a push of bytes that are stored already leaves a local copy of them, and sends nothing', async (t) => {
  const { blobs: first, data, database, paths } = await openStore(t, 'sqlite');
  const origin = new MemoryDriver();
  const { cache } = new Paths(data);
  const driver = new CachedDriver(origin, cache, 2 ** 20, () => Promise.resolve(true));
  const blobs = new BlobStore(database, driver, paths, Date.now);
  await blobs.prepare();
  const bytes = Buffer.alloc(300_000, 'a');
  /** Resolves to how often the file was synced. */
  const push = async (fails = false) => {
    const arrival = await first.stageBytes(bytes);
    const sync = arrival.staged.sync.bind(arrival.staged);
    let syncs = 0;
    arrival.staged.sync = async () => {
      syncs += 1;
      await sync();
      if (fails) throw Object.assign(new Error('the disk has failed'), { code: 'EIO' });
    };
    await blobs.commit([arrival], () => Promise.resolve());
    return syncs;
  };
  await push();
  const copies = await readdir(cache);
  for (const name of copies) await rm(join(cache, name));
  let puts = 0;
  origin.faults.before = (operation) => void (puts += operation === 'put' ? 1 : 0);
  t.is(await push(), 1);
  t.deepEqual(await readdir(cache), copies);
  t.is(await push(), 0, 'the copy is there');
  t.deepEqual([await readdir(cache), puts], [copies, 0]);
  await rm(join(cache, copies[0]!));
  t.is(await push(true), 1);
  t.deepEqual(await readdir(cache), [], 'no copy of bytes that the disk may not have');
});

test('a file that is larger than all copies together is neither synced nor kept, and removes no copy', async (t) => {
  const { blobs, data } = await openStore(t, 'sqlite');
  const { cache } = new Paths(data);
  const driver = new CachedDriver(new MemoryDriver(), cache, 3, () => Promise.resolve(true));
  await driver.prepare();
  const small = await blobs.stageBytes(Buffer.from('abc'));
  t.teardown(() => small.staged.discard());
  await driver.put(small.digest, small.staged);
  const kept = await readdir(cache);
  t.is(kept.length, 1, 'a file as large as all copies together');
  const { staged, digest } = await blobs.stageBytes(Buffer.from('content'));
  t.teardown(() => staged.discard());
  staged.sync = () => Promise.resolve(t.fail());
  await driver.put(digest, staged);
  t.deepEqual(await readdir(cache), kept);
});
