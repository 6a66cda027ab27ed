import { readdir } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { ReservationLost } from '../../../src/storage/blobs/blob-reservations.ts';
import { MemoryDriver, type DriverOperation } from '../../support/memory-driver.ts';
import { openStoreOn } from '../../support/store.ts';
import { until, within } from '../../support/until.ts';

// What a commit does if others change its rows, and what it takes back when it fails.

async function setUp(t: ExecutionContext) {
  const clock = { looks: 0 };
  // The clock stands still: what waits for a time waits for ever.
  const watch = () => {
    clock.looks += 1;
    return 0;
  };
  const times = { beginWithin: 50, takeOverAfter: 100, watch, now: () => 0 };
  const opened = await openStoreOn(t, 'sqlite', () => new MemoryDriver(), { now: () => 50, times });
  const { database, driver, blobs, paths } = opened;
  const done: DriverOperation[] = [];
  /** Does `work` with the rows at each operation of this kind, before or after its effect. */
  const at = (when: 'before' | 'after', operation: DriverOperation, work: () => unknown) => {
    driver.faults[when] = async (each) => {
      if (when === 'before') done.push(each);
      if (each === operation) await work();
    };
  };
  at('before', 'check', () => undefined);
  return {
    database,
    driver,
    clock,
    done,
    at,
    change: (sql: string) => database.transaction((tx) => tx.run(sql, [])),
    insert: (text: string | Buffer, state: string) =>
      database.transaction((tx) =>
        tx.insert('blobs', { digest: digestOf(text), size: text.length, state, generation: 7, stored_at: 1 }),
      ),
    rows: () =>
      database.select<{ state: string; generation: number }>('SELECT state, generation FROM blobs ORDER BY digest'),
    push: async (bytes: string | Buffer) => {
      const arrival = await blobs.stageBytes(Buffer.from(bytes));
      try {
        await blobs.commit([arrival], () => Promise.resolve());
      } finally {
        t.deepEqual(await readdir(paths.staging), []);
      }
    },
  };
}

const lost = () => {
  throw new Error('the response is lost');
};

test('a commit whose row is removed again and again gives up after 20 puts', async (t) => {
  const { at, change, push, done, driver } = await setUp(t);
  at('after', 'put', () => change('DELETE FROM blobs'));
  const error = await t.throwsAsync(within(push('content')), { instanceOf: ReservationLost });
  t.is(error.message, `${digestOf('content')} was removed while it was being stored`);
  t.is(done.filter((each) => each === 'put').length, 20);
  t.false(done.includes('delete'), 'the bytes may be those of another commit');
  t.is(driver.contents.size, 1);
});

test('a commit that has lost its row does not wait for the put of another one', async (t) => {
  const { at, change, push, driver, rows } = await setUp(t);
  driver.isRemote = true;
  let puts = 0;
  at('after', 'put', async () => {
    if ((puts += 1) === 1) await change('UPDATE blobs SET generation = 9');
  });
  await within(push(Buffer.alloc(2 ** 20)));
  t.is(puts, 2);
  t.deepEqual(await rows(), [{ state: 'live', generation: 9 }]);
});

test('bytes of a put that did not end are put again', async (t) => {
  const { insert, push, driver, done, rows } = await setUp(t);
  await insert('content', 'pending');
  driver.damage(digestOf('content'), Buffer.from('garbage'));
  driver.damage(digestOf('content'), Buffer.from('content'));
  await push('content');
  t.deepEqual(done, ['put'], 'they may not be durable yet');
  t.deepEqual(await rows(), [{ state: 'live', generation: 7 }]);
});

test('a push reads stored bytes of up to 256 KiB, and replaces wrong ones', async (t) => {
  const { push, driver, done } = await setUp(t);
  for (const [size, isReplaced] of [
    [2 ** 18, true],
    [2 ** 18 + 1, false],
  ] as const) {
    const [bytes, wrong] = [Buffer.alloc(size, 'a'), Buffer.alloc(size, 'b')];
    await push(bytes);
    driver.damage(digestOf(bytes), wrong);
    done.length = 0;
    await push(bytes);
    t.deepEqual(done.includes('open'), isReplaced);
    t.true(driver.contents.get(digestOf(bytes))!.equals(isReplaced ? bytes : wrong));
    t.is(driver.aside.has(digestOf(bytes)), isReplaced);
  }
});

test('a push fails if the stored bytes cannot be read, and leaves them', async (t) => {
  const { push, driver, at, rows } = await setUp(t);
  await push('content');
  at('before', 'open', () => {
    throw new Error('unreadable');
  });
  await t.throwsAsync(push('content'), { message: 'unreadable' });
  t.deepEqual([driver.contents.size, driver.aside.size, (await rows())[0]!.state], [1, 0, 'live']);
});

test('a failed commit deletes its bytes, also if its row was removed before the put', async (t) => {
  const { at, change, push, driver, rows, done } = await setUp(t);
  at('after', 'put', lost);
  await t.throwsAsync(push('one'), { message: 'the response is lost' });
  t.deepEqual(done, ['put', 'delete']);
  at('before', 'put', () => change('DELETE FROM blobs'));
  await t.throwsAsync(push('content'), { message: 'the response is lost' });
  t.deepEqual([driver.contents.size, await rows()], [0, []]);
});

test('a failed commit waits for a deletion that began before its put', async (t) => {
  const { at, change, push, driver, rows, clock } = await setUp(t);
  at('before', 'put', () => change("UPDATE blobs SET state = 'deleting'"));
  at('after', 'put', lost);
  let isOver = false;
  const failing = t.throwsAsync(push('content'), { message: 'the response is lost' }).finally(() => (isOver = true));
  // It looks again and again.
  await until(() => clock.looks > 8 || isOver);
  t.deepEqual([isOver, driver.contents.size], [false, 1]);
  await change('DELETE FROM blobs');
  await within(failing);
  t.deepEqual([driver.contents.size, await rows()], [0, []]);
});

for (const [what, sql, left] of [
  ['made live', "UPDATE blobs SET state = 'live'", { state: 'live' }],
  ['taken over', 'UPDATE blobs SET generation = 9', { state: 'pending', generation: 9 }],
] as const) {
  test(`a failed commit leaves bytes whose row another one has ${what}`, async (t) => {
    const { at, change, push, driver, rows } = await setUp(t);
    at('before', 'put', () => change(sql));
    at('after', 'put', lost);
    await t.throwsAsync(push('content'), { message: 'the response is lost' });
    t.is(driver.contents.size, 1);
    t.like(await rows(), [left]);
  });
}

test('a failed commit leaves bytes whose row was there before it', async (t) => {
  const { at, insert, push, driver, rows } = await setUp(t);
  await insert('content', 'pending');
  at('after', 'put', lost);
  await t.throwsAsync(push('content'), { message: 'the response is lost' });
  t.is(driver.contents.size, 1);
  t.deepEqual(await rows(), [{ state: 'pending', generation: 7 }]);
});
