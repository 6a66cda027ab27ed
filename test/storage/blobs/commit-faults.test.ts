import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import type { Dialect, Transaction } from '../../../src/database/database.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { BlobStore } from '../../../src/storage/blobs/blob-store.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { Collector } from '../../../src/storage/upkeep/collector.ts';
import { deletionTimes, findBlobs, takeOver, type DeletionTimes } from '../../../src/storage/blobs/states.ts';
import { changedDatabase, dialects } from '../../support/databases.ts';
import { until } from '../../support/upstreams/faulty-upstream.ts';
import { MemoryDriver, type DriverOperation } from '../../support/memory-driver.ts';
import { openInstance, openStoreOn, references, storedSize, type Store } from '../../support/store.ts';

// Each storage operation of a commit or a collection may fail or never end.

type Each = Store<MemoryDriver> & {
  /** Each read of `watch` advances it by `step`. `wall` is the clock of the system for deletions. */
  clock: { now: number; watch: number; wall: number; step: number; looks: number };
  /** A second process on the same database and storage. */
  other: Store<MemoryDriver>;
  collector(times?: Partial<DeletionTimes>): Collector;
};

const everything = { before: Number.MAX_SAFE_INTEGER };

async function setUp(t: ExecutionContext, dialect: Dialect): Promise<Each> {
  const clock = { now: 1_000_000, watch: 0, wall: 0, step: 0, looks: 0 };
  const watch = () => {
    clock.looks += 1;
    return (clock.watch += clock.step);
  };
  const times = { beginWithin: 50, takeOverAfter: 100, watch, now: () => clock.wall };
  const options = { now: () => clock.now, times };
  const opened = await openStoreOn(t, dialect, () => new MemoryDriver(), options);
  const other = await openInstance(t, opened, options);
  const collector = (changed: Partial<DeletionTimes> = {}) =>
    new Collector(other.database, opened.driver, references, { ...times, ...changed });
  return { ...opened, clock, other, collector };
}

const link = (digest: Digest) => (tx: Transaction) =>
  tx.insertNew('repository_blobs', [{ repository_id: 1, digest, linked_at: 0 }]);
/** The least size for which a push waits for another one. */
const large = 'x'.repeat(2 ** 20);
const nothing = (): Promise<void> => Promise.resolve();

async function push({ blobs }: Pick<Each, 'blobs'>, text: string, refer?: (tx: Transaction) => Promise<unknown>) {
  const arrival = await blobs.stageBytes(Buffer.from(text));
  await blobs.commit([arrival], refer ?? link(arrival.digest));
  return arrival.digest;
}

async function rowsOf({ database }: Each): Promise<{ digest: Digest; state: string }[]> {
  return database.select('SELECT digest, state FROM blobs ORDER BY digest');
}

/** Blocks the next `operation`, before or after its effect, until it is released. */
function hold({ driver }: Each, when: 'before' | 'after', operation: DriverOperation) {
  const [reached, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  driver.faults[when] = async (performed) => {
    if (performed !== operation) return;
    driver.faults[when] = undefined;
    reached.resolve();
    await released.promise;
  };
  return { reached: reached.promise, release: () => released.resolve() };
}

async function expectWhole(t: ExecutionContext, each: Each, text: string): Promise<void> {
  const digest = digestOf(text);
  t.like(await rowsOf(each), [{ digest, state: 'live' }]);
  t.is((await readAll(await each.blobs.open(digest, text.length), text.length)).toString(), text);
  t.is(each.driver.contents.get(digest)?.toString(), text, 'in the driver, not only in the cache');
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, each: Each) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => run(t, await setUp(t, dialect)));

  suite('other transactions can run while bytes are put and deleted', async (t, each) => {
    const passed: DriverOperation[] = [];
    each.driver.faults.before = async (operation) => {
      if (operation !== 'put' && operation !== 'delete') return;
      await each.database.transaction((tx) => tx.insertNew('storage_cursors', [{ name: operation, digest: 'a' }]));
      passed.push(operation);
    };
    await push(each, 'put', nothing);
    t.like(await new Collector(each.database, each.driver, references).collect(everything), { blobs: 1 });
    t.deepEqual(passed, ['put', 'delete']);
  });

  suite(
    'the collector removes the bytes of a push that was killed after its put, but only after the grace',
    async (t, each) => {
      const held = hold(each, 'after', 'put');
      const pushing = push(each, 'slow');
      await held.reached;
      t.deepEqual(await rowsOf(each), [{ digest: digestOf('slow'), state: 'pending' }]);
      t.is(await storedSize(each, digestOf('slow')), undefined, 'not stored yet');
      t.like(await each.collector().collect({ before: each.clock.now }), { blobs: 0 });
      t.like(await each.collector().collect({ before: each.clock.now + 1 }), { blobs: 1 });
      t.is(each.driver.contents.size, 0);
      // The push was not killed, only slower than the grace.
      held.release();
      t.is(await pushing, digestOf('slow'));
      await expectWhole(t, each, 'slow');
    },
  );

  suite('a push whose bytes were collected does not use the row of another push', async (t, each) => {
    const first = hold(each, 'after', 'put');
    const pushing = push(each, 'the same');
    await first.reached;
    t.like(await each.collector().collect(everything), { blobs: 1 });
    const second = hold(each, 'before', 'put');
    const pushingToo = push(each.other, 'the same', nothing);
    await second.reached;
    first.release();
    await pushing;
    await expectWhole(t, each, 'the same');
    second.release();
    await pushingToo;
    await expectWhole(t, each, 'the same');
  });

  suite('a large blob that two instances push at the same time is sent to a remote storage once', async (t, each) => {
    each.driver.isRemote = true;
    const first = hold(each, 'before', 'put');
    const pushing = push(each, large);
    await first.reached;
    let puts = 0;
    each.driver.faults.after = (operation) => void (puts += operation === 'put' ? 1 : 0);
    const pushingToo = push(each.other, large, nothing);
    const before = each.clock.looks;
    // The other one looks again and again.
    await until(() => each.clock.looks > before + 4 || puts > 0);
    first.release();
    await Promise.all([pushing, pushingToo]);
    t.is(puts, 1);
    await expectWhole(t, each, large);
  });

  suite(
    'a push does not wait for a killed one for ever, and not at all if the storage is a folder',
    async (t, each) => {
      each.clock.step = 100;
      for (const isRemote of [true, false]) {
        each.driver.isRemote = isRemote;
        const first = hold(each, 'before', 'put');
        const pushing = push(each, large);
        await first.reached;
        const looks = each.clock.looks;
        await push(each.other, large, nothing);
        t.is(each.clock.looks - looks > 5, isRemote);
        await expectWhole(t, each, large);
        first.release();
        await pushing;
        await each.database.transaction((tx) => tx.run('DELETE FROM repository_blobs', []));
        each.clock.step = 0;
        await each.collector({ takeOverAfter: 0 }).collect(everything);
      }
    },
  );

  suite('a put that succeeds but reports a failure leaves nothing and can be repeated', async (t, each) => {
    each.driver.faults.after = (operation) => {
      if (operation === 'put') throw new Error('the response is lost');
    };
    await t.throwsAsync(push(each, 'lost'), { message: 'the response is lost' });
    t.deepEqual(await rowsOf(each), []);
    t.is(each.driver.contents.size, 0);
    t.deepEqual(await each.database.select('SELECT digest FROM repository_blobs'), []);
    each.driver.faults = {};
    await push(each, 'lost');
    await expectWhole(t, each, 'lost');
  });

  for (const name of ['StorageUnavailable', 'DatabaseUnavailable'] as const)
    suite(`a push that fails with ${name} leaves its bytes to the collector`, async (t, each) => {
      const failing = () => Promise.reject(new DomainError(name, 'away'));
      await t.throwsAsync(push(each, 'left', failing), { name });
      t.deepEqual(await rowsOf(each), [{ digest: digestOf('left'), state: 'pending' }]);
      t.is(each.driver.contents.size, 1);
      t.like(await each.collector().collect(everything), { blobs: 1 });
      t.is(each.driver.contents.size, 0);
    });

  suite('a push of bytes whose earlier push was killed starts their grace again', async (t, each) => {
    const row = { digest: digestOf('again'), size: 5, state: 'pending', generation: 7, stored_at: 5 };
    await each.database.transaction((tx) => tx.insertNew('blobs', [row]));
    const held = hold(each, 'before', 'put');
    const pushing = push(each, 'again');
    await held.reached;
    t.like(await each.collector().collect({ before: each.clock.now }), { blobs: 0 });
    held.release();
    await pushing;
    await expectWhole(t, each, 'again');
  });

  suite('a push of stored bytes writes only its references', async (t, each) => {
    await push(each, 'there', nothing);
    let writes = 0;
    const database = changedDatabase(each.database, {
      transaction: (work, options) => {
        writes += 1;
        return each.database.transaction(work, options);
      },
    });
    const blobs = new BlobStore(database, each.driver, each.paths, Date.now);
    await push({ blobs }, 'there');
    t.is(writes, 1);
    await push({ blobs }, 'new');
    t.is(writes, 3, 'a pending row, and the references');
  });

  suite('if the removal after a failed push fails too, the next push takes over', async (t, each) => {
    each.driver.faults.after = (operation) => {
      if (operation === 'put') throw new Error('the response is lost');
    };
    each.driver.faults.before = (operation) => {
      if (operation === 'delete') throw new Error('unreachable');
    };
    await t.throwsAsync(push(each, 'lost'), { message: 'the response is lost' });
    t.deepEqual(await rowsOf(each), [{ digest: digestOf('lost'), state: 'deleting' }]);
    each.driver.faults = {};
    each.clock.step = 30;
    await push(each.other, 'lost');
    await expectWhole(t, each, 'lost');
  });

  suite('of two processes that take over the same deletion, one succeeds', async (t, each) => {
    const digest = digestOf('given up');
    const row = { digest, size: 1, state: 'deleting', generation: 7, stored_at: 0 };
    await each.database.transaction((tx) => tx.insertNew('blobs', [row]));
    const seen = await findBlobs(each.database, [digest]);
    const taken = await Promise.all(
      [each.database, each.other.database].map((database) => database.transaction((tx) => takeOver(tx, seen))),
    );
    t.is(taken.flat().length, 1);
  });

  suite('a push waits while its bytes are being deleted, and puts them again', async (t, each) => {
    await push(each, 'wanted', nothing);
    const held = hold(each, 'before', 'delete');
    const collecting = each.collector().collect(everything);
    await held.reached;
    let puts = 0;
    each.driver.faults.after = (operation) => {
      if (operation === 'put') puts += 1;
    };
    const pushing = push(each, 'wanted');
    const { looks } = each.clock;
    await until(() => each.clock.looks > looks + 3);
    t.is(puts, 0);
    held.release();
    t.like(await collecting, { blobs: 1 });
    await pushing;
    t.is(puts, 1);
    await expectWhole(t, each, 'wanted');
  });

  suite('a collector that is killed before or after it deletes the bytes blocks no push', async (t, each) => {
    for (const when of ['before', 'after'] as const) {
      await push(each, 'wanted', nothing);
      const held = hold(each, when, 'delete');
      const collecting = each.collector().collect(everything);
      await held.reached;
      each.clock.step = 30;
      await push(each, 'wanted');
      each.clock.step = 0;
      await expectWhole(t, each, 'wanted');
      // As if only its response was late: the row was taken over and is no longer its own.
      if (when === 'after') {
        held.release();
        await collecting;
        await expectWhole(t, each, 'wanted');
      }
      await each.database.transaction((tx) => tx.run('DELETE FROM repository_blobs'));
      await each.collector().collect(everything);
      if (when === 'before') {
        held.release();
        await collecting;
      }
      t.deepEqual(await rowsOf(each), []);
    }
  });

  suite('the next collector finishes the work of a killed one', async (t, each) => {
    for (const text of ['one', 'two', 'three']) await push(each, text, nothing);
    each.driver.faults.before = (operation, digest) => {
      if (operation === 'delete' && digest === digestOf('two')) throw new Error('unreachable');
    };
    const collector = each.collector();
    await t.throwsAsync(collector.collect(everything), { message: 'unreachable' });
    t.deepEqual(await rowsOf(each), [{ digest: digestOf('two'), state: 'deleting' }], 'the others are deleted');
    each.driver.faults = {};
    t.like(await collector.collect(everything), { blobs: 0 }, 'another collector may still be working on it');
    each.clock.watch += 99;
    t.like(await collector.collect(everything), { blobs: 0 });
    each.clock.watch += 1;
    t.like(await collector.collect(everything), { blobs: 1, bytes: 3 });
    t.deepEqual(await rowsOf(each), []);
    t.is(each.driver.contents.size, 0);
  });

  for (const [name, clock] of [
    ['too slow', 'watch'],
    ['on a machine that stood still', 'wall'],
  ] as const) {
    suite(`a collector that is ${name} deletes nothing that others may have taken over`, async (t, each) => {
      for (let index = 0; index < 20; index += 1) await push(each, `blob ${index}`, nothing);
      each.driver.faults.before = (operation) => {
        if (operation === 'delete') each.clock[clock] += 10;
      };
      t.like(await each.collector().collect(everything), { blobs: 16 });
      t.is(each.driver.contents.size, 4);
      t.deepEqual(
        (await rowsOf(each)).map(({ state }) => state),
        ['deleting', 'deleting', 'deleting', 'deleting'],
      );
    });
  }

  suite('stored bytes are not put again, unless they are deleted meanwhile', async (t, each) => {
    const digest = await push(each, 'there', nothing);
    let puts = 0;
    each.driver.faults.before = (operation) => {
      if (operation === 'put') puts += 1;
    };
    await push(each, 'there', nothing);
    t.is(puts, 0);
    const held = hold(each, 'after', 'open');
    const pushing = push(each, 'there');
    await held.reached;
    t.like(await each.collector().collect(everything), { blobs: 1 });
    held.release();
    await pushing;
    t.is(puts, 1);
    await expectWhole(t, each, 'there');
    await each.driver.delete(digest);
    await push(each, 'there');
    t.is(puts, 2, 'bytes that the disk has lost are put again');
    await expectWhole(t, each, 'there');
  });

  suite('pushes and collectors of two processes lose nothing while the storage fails', async (t, each) => {
    const texts = Array.from({ length: 12 }, (_, index) => `content ${index}`);
    const count = { put: 0, delete: 0 };
    each.driver.faults = {
      listLag: 5,
      before: () => sleep(randomInt(4)),
      after: async (operation) => {
        await sleep(randomInt(4));
        if (operation === 'put' && (count.put += 1) % 6 === 0) throw new Error('the response is lost');
        if (operation === 'delete' && (count.delete += 1) % 10 === 0) throw new Error('the response is lost');
      },
    };
    // A real clock: nothing here takes longer than a second.
    const times = { ...deletionTimes, beginWithin: 200, takeOverAfter: 2000 };
    const stores = [];
    for (let index = 0; index < 2; index += 1) stores.push(await openInstance(t, each, { times }));
    const [one, two] = stores as [Store<MemoryDriver>, Store<MemoryDriver>];
    const startedAt = performance.now();
    const wrong: string[] = [];
    const done = { pushed: 0, failed: 0, collected: 0 };
    const isEnough = () => done.pushed > 5 && done.failed > 0 && done.collected > 0;
    // Longer than usual only if the machine is busy.
    const goesOn = () => performance.now() - startedAt < (isEnough() ? 5000 : 60_000);
    const work = async (store: Store<MemoryDriver>, repository: number) => {
      while (goesOn()) {
        const chosen = new Set([texts[randomInt(12)]!, texts[randomInt(12)]!]);
        const arrivals = await Promise.all([...chosen].map((text) => store.blobs.stageBytes(Buffer.from(text))));
        const rows = arrivals.map(({ digest }) => ({ repository_id: repository, digest, linked_at: 0 }));
        try {
          await store.blobs.commit(arrivals, (tx) => tx.insertNew('repository_blobs', rows));
        } catch (error) {
          if ((error as Error).message !== 'the response is lost') wrong.push(String(error));
          done.failed += 1;
          continue;
        }
        done.pushed += 1;
        for (const { digest } of rows) {
          const bytes = each.driver.contents.get(digest);
          if (!bytes || digestOf(bytes) !== digest) wrong.push(`${digest} was acknowledged`);
        }
        await store.database.transaction((tx) =>
          tx.run('DELETE FROM repository_blobs WHERE repository_id = ?', [repository]),
        );
      }
    };
    const collect = async (collector: Collector) => {
      while (goesOn()) {
        const options = { ...everything, pendingBefore: Date.now() - 30 };
        const { blobs } = await collector.collect(options).catch(() => ({ blobs: 0 }));
        done.collected += blobs;
      }
    };
    await Promise.all([
      work(one, 1),
      work(one, 2),
      work(two, 3),
      work(two, 4),
      collect(new Collector(one.database, each.driver, references, times)),
      collect(new Collector(two.database, each.driver, references, times)),
    ]);
    t.deepEqual(wrong, []);
    t.true(isEnough(), JSON.stringify(done));
    each.driver.faults = {};
    await each.collector({ takeOverAfter: 0 }).collect(everything);
    t.deepEqual(await rowsOf(each), []);
    t.is(each.driver.contents.size, 0);
    t.log(dialect, done);
  });
}
