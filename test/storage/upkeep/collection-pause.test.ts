import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { Collector } from '../../../src/storage/upkeep/collector.ts';
import { CollectionPause } from '../../../src/storage/upkeep/collection-pause.ts';
import type { Database } from '../../../src/database/database.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import { changedDatabase, dialects } from '../../support/databases.ts';
import { openStore, references, type Store } from '../../support/store.ts';
import { until } from '../../support/until.ts';

/** Stores `count` blobs that nothing refers to. */
async function storeUnreferenced({ blobs }: Store, count: number): Promise<Digest[]> {
  const digests: Digest[] = [];
  for (let each = 0; each < count; each += 1) {
    const arrival = await blobs.stageBytes(Buffer.from(`unreferenced ${each}`));
    await blobs.commit([arrival], () => Promise.resolve());
    digests.push(arrival.digest);
  }
  return digests;
}

const all = { before: Number.MAX_SAFE_INTEGER };

async function insertIdentity(database: Database): Promise<void> {
  const row = { id: 1, identity: 'made', state: 'paired' };
  await database.transaction((tx) => tx.insertNew('storage_identity', [row]));
}

for (const dialect of dialects) {
  test(`${dialect}: no collector deletes bytes while a hold lives, and all do after its end`, async (t) => {
    const store = await openStore(t, dialect);
    const { database, driver } = store;
    await insertIdentity(database);
    const [digest] = await storeUnreferenced(store, 2);
    const collector = new Collector(database, driver, references);
    {
      await using hold = await CollectionPause.take(database, 30_000);
      const end = await database.get<{ expires_at: number }>('SELECT expires_at FROM storage_holds');
      const renewed = 'SELECT expires_at FROM storage_holds WHERE expires_at > ?';
      await until(async () => (await database.get(renewed, [end!.expires_at])) !== undefined);
      t.deepEqual(await collector.collect(all), { blobs: 0, bytes: 0, held: 1 });
      t.deepEqual((await collector.collect({ ...all, dryRun: true })).blobs, 2, 'a dry run shows what is free');
      t.false(hold.signal.aborted);
      t.truthy(await driver.stat(digest!));
    }
    t.like(await collector.collect(all), { blobs: 2, held: undefined });
    t.is(await driver.stat(digest!), undefined);
  });

  test(`${dialect}: the hold of a dead process expires, and a hold that has expired ends its work`, async (t) => {
    const store = await openStore(t, dialect);
    const { database, driver } = store;
    await insertIdentity(database);
    await storeUnreferenced(store, 1);
    await using hold = await CollectionPause.take(database, 3000);
    await database.transaction((tx) => tx.run('UPDATE storage_holds SET expires_at = expires_at - 100000'));
    t.like(await new Collector(database, driver, references).collect(all), { blobs: 1, held: undefined });
    await until(() => hold.signal.aborted);
    t.regex((hold.signal.reason as Error).message, /lease.*has expired.*Start the backup again/);
  });

  test(`${dialect}: after the clock was set back, the hold of a dead process lasts one lease`, async (t) => {
    const store = await openStore(t, dialect);
    const { database, driver } = store;
    await insertIdentity(database);
    await storeUnreferenced(store, 1);
    const collect = () => new Collector(database, driver, references).collect(all);
    const change = (by: number) =>
      database.transaction((tx) => tx.run('UPDATE storage_holds SET expires_at = expires_at + ?', [by]));
    const hold = await CollectionPause.take(database, 120_000);
    await change(86_400_000);
    const end = async () => (await database.get<{ end: number }>('SELECT expires_at AS end FROM storage_holds'))!.end;
    const before = await end();
    await new Collector(database, driver, references).collect({ ...all, dryRun: true });
    t.is(await end(), before, 'a dry run changes nothing');
    t.like(await collect(), { blobs: 0, held: 1 });
    t.true((await end()) < before);
    await change(-121_000);
    t.like(await collect(), { blobs: 1, held: undefined });
    await hold[Symbol.asyncDispose]();
  });

  test(`${dialect}: a hold that is taken while a collector looks for blobs keeps them`, async (t) => {
    const store = await openStore(t, dialect);
    const { database, driver } = store;
    await insertIdentity(database);
    const [digest] = await storeUnreferenced(store, 1);
    const holds: CollectionPause[] = [];
    const begin = database.transaction.bind(database);
    // The first transaction of a collection marks blobs.
    database.transaction = async (work, options) => {
      database.transaction = begin;
      holds.push(await CollectionPause.take(database, 60_000));
      return begin(work, options);
    };
    t.like(await new Collector(database, driver, references).collect(all), { blobs: 0 });
    t.truthy(await driver.stat(digest!));
    for (const hold of holds) await hold[Symbol.asyncDispose]();
    t.is(holds.length, 1);
  });

  test(`${dialect}: a hold leaves other ones, and removes those that have expired`, async (t) => {
    const { database } = await openStore(t, dialect);
    await insertIdentity(database);
    const others = [
      { id: 'dead', expires_at: 1 },
      { id: 'live', expires_at: Date.now() * 2 },
    ];
    await database.transaction((tx) => tx.insertNew('storage_holds', others));
    const ids = async () =>
      (await database.select<{ id: string }>('SELECT id FROM storage_holds')).map(({ id }) => id).toSorted();
    {
      await using _ = await CollectionPause.take(database, 60_000);
      const [own, live, ...more] = await ids();
      t.deepEqual([own!.length, live, more], [36, 'live', []]);
    }
    t.deepEqual(await ids(), ['live']);
  });

  test.serial(`${dialect}: a hold outlives a short outage of the database, and no longer one`, async (t) => {
    const { database } = await openStore(t, dialect);
    await insertIdentity(database);
    let isDown = false;
    let transactions = 0;
    const failing = changedDatabase(database, {
      transaction: async (work, options) => {
        if (isDown) throw new Error('down');
        const result = await database.transaction(work, options);
        transactions += 1;
        return result;
      },
    });
    const lease = 600_006;
    const start = globalThis.setInterval;
    const renewals: (() => void)[] = [];
    globalThis.setInterval = ((work: () => void, time: number) => {
      if (time === lease / 6) renewals.push(work);
      return start(work, time);
    }) as typeof setInterval;
    const long = await CollectionPause.take(failing, lease).finally(() => (globalThis.setInterval = start));
    t.is(renewals.length, 1);
    isDown = true;
    renewals[0]!();
    await turn();
    isDown = false;
    t.false(long.signal.aborted);
    const other = { id: 'other', expires_at: Date.now() * 2 };
    await database.transaction((tx) => tx.insertNew('storage_holds', [other]));
    for (let count = 2; count < 4; count += 1) {
      // A call while a renewal runs does nothing.
      await until(() => {
        if (transactions < count) renewals[0]!();
        return transactions >= count;
      });
    }
    const others = await database.select("SELECT expires_at FROM storage_holds WHERE id = 'other'");
    t.like(others, [{ expires_at: other.expires_at }]);
    await long[Symbol.asyncDispose]();
    t.is((await database.select('SELECT id FROM storage_holds')).length, 1);

    const short = await CollectionPause.take(failing, 60);
    isDown = true;
    await until(() => short.signal.aborted);
    isDown = false;
    await short[Symbol.asyncDispose]();
  });
}
