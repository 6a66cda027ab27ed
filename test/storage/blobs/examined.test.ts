import test, { type ExecutionContext } from 'ava';
import { BlobStore } from '../../../src/storage/blobs/blob-store.ts';
import { deletionTimes } from '../../../src/storage/blobs/states.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { openStoreOn } from '../../support/store.ts';

// When the bytes of a blob are examined, and what a check of the storage needs.

async function setUp(t: ExecutionContext) {
  const { database, driver, paths } = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  // The memory of examinations takes 0 for no time.
  const state = { now: 1, isDamaged: true, examined: [] as string[] };
  const names = new Map<Digest, string>();
  const blobs = new BlobStore(database, driver, paths, Date.now, {
    times: { ...deletionTimes, watch: () => state.now },
    examine: ({ digest }, hash) => {
      state.examined.push(`${names.get(digest)}${hash ? ' with its digest' : ''}`);
      return Promise.resolve(state.isDamaged);
    },
  });
  const commit = async (name: string, size: number) => {
    const arrival = await blobs.stageBytes(Buffer.alloc(size, name));
    await blobs.commit([arrival], () => Promise.resolve());
    names.set(arrival.digest, name);
    return arrival.digest;
  };
  return { database, driver, blobs, state, commit };
}

test('a blob that looks damaged is examined once a minute, until it is sound or stored again', async (t) => {
  const { driver, blobs, state, commit } = await setUp(t);
  const [small, large] = [await commit('small', 100), await commit('large', 300_000)];
  t.deepEqual([await blobs.isWhole(small), await blobs.isWhole(large)], [true, true]);
  t.deepEqual(state.examined, []);
  await driver.delete(small);
  driver.damage(large, Buffer.alloc(299_999));
  for (let time = 0; time < 2; time += 1)
    t.deepEqual([await blobs.isWhole(small), await blobs.isWhole(large)], [false, false]);
  t.deepEqual(state.examined.splice(0), ['small with its digest', 'large']);
  state.now += 60_001;
  await t.throwsAsync(blobs.open(large, 300_000), { name: 'ContentDamaged' });
  t.false(await blobs.isWhole(large));
  t.deepEqual(state.examined.splice(0), ['large']);

  await commit('large', 300_000);
  t.true(await blobs.isWhole(large));
  driver.damage(large, Buffer.alloc(1));
  t.false(await blobs.isWhole(large));
  t.deepEqual(state.examined.splice(0), ['large'], 'these bytes are new');

  state.isDamaged = false;
  state.now += 60_001;
  t.true(await blobs.isWhole(large), 'it was repaired meanwhile');
  await t.throwsAsync(blobs.open(large, 300_000), { name: 'ContentDamaged' });
  t.deepEqual(state.examined.splice(0), ['large', 'large', 'large'], 'each time, because it was sound');
});

test('bytes are not examined without a live row, or while the storage as a whole cannot be read', async (t) => {
  const { database, driver, blobs, state, commit } = await setUp(t);
  const digest = await commit('blob', 300_000);
  await driver.delete(digest);
  const change = (to: string) => database.transaction((tx) => tx.run('UPDATE blobs SET state = ?', [to]));
  for (const other of ['pending', 'deleting']) {
    await change(other);
    t.false(await blobs.isWhole(digest));
    await t.throwsAsync(blobs.open(digest, 300_000), { name: 'BlobUnknown' });
    driver.damage(digest, Buffer.alloc(300_000, 'blob'));
    t.false(await blobs.isWhole(digest), 'although the bytes are there');
    driver.damage(digest, Buffer.alloc(5));
    await t.throwsAsync(blobs.open(digest, 300_000), { name: 'BlobUnknown' });
    await driver.delete(digest);
  }
  await change('live');
  driver.faults.before = (operation) => {
    if (operation === 'check') throw new Error('away');
  };
  await t.throwsAsync(blobs.open(digest, 300_000), { name: 'StorageUnavailable' });
  t.deepEqual(state.examined, []);
  t.false(await blobs.isWhole(digestOf('never stored')));
});

test('the digest is computed for blobs of up to 256 KiB; without examinations, missing bytes are damage', async (t) => {
  const { database, driver, blobs, state, commit } = await setUp(t);
  const digests = [await commit('small', 2 ** 18), await commit('large', 2 ** 18 + 1)];
  for (const digest of digests) await driver.delete(digest);
  for (const digest of digests) t.false(await blobs.isWhole(digest));
  t.deepEqual(state.examined, ['small with its digest', 'large']);
  const paths = new Paths(await folderUntilEnd(t));
  t.false(await new BlobStore(database, driver, paths, Date.now).isWhole(digests[0]!));
});

test('the storage can be read if one of some blobs can, and blobs that are missing say nothing', async (t) => {
  const { driver, blobs, commit } = await setUp(t);
  await blobs.checkReads();
  const digests = [await commit('one', 10), await commit('two', 300_000)];
  let failing: readonly Digest[] = digests;
  let isAway = false;
  driver.faults.before = (operation, digest) => {
    if (operation === 'check' && isAway) throw new Error('away');
    if (operation === 'open' && failing.includes(digest!)) throw new Error('unreadable');
  };
  await t.throwsAsync(blobs.checkReads(), { message: 'unreadable' });
  for (const each of digests) {
    failing = [each];
    await blobs.checkReads();
  }
  failing = [];
  for (const each of digests) await driver.delete(each);
  await blobs.checkReads();
  isAway = true;
  await t.throwsAsync(blobs.checkReads(), { message: 'away' });
});
