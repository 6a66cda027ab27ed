import test, { type ExecutionContext } from 'ava';
import type { Transaction } from '../../../../src/database/database.ts';
import { digestOf } from '../../../../src/runtime/digest.ts';
import { readAll } from '../../../../src/storage/files/content.ts';
import { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { Collector } from '../../../../src/storage/upkeep/collector.ts';
import { s3Access, startS3 } from '../../../support/s3.ts';
import { S3Refusal } from '../../../support/s3/refusal.ts';
import { openInstance, openStoreOn, references } from '../../../support/store.ts';
import { within } from '../../../support/until.ts';

// A collector whose first deletion S3 refuses late. It may have stood still meanwhile, and another process may have stored the
// bytes again.

const bytes = Buffer.from('pushed again');
const digest = digestOf(bytes);
const times = { beginWithin: 50, takeOverAfter: 100 };

async function setUp(t: ExecutionContext) {
  const s3 = await startS3(t);
  const driver = await S3Driver.open({ ...s3Access(s3), times: { request: 120_000, pause: 1 } });
  const store = await openStoreOn(t, 'mysql', () => driver);
  let time = 0;
  // Each look at its clock takes the other process 30 ms on.
  const watch = () => (time += 30);
  const { blobs } = await openInstance(t, store, { times: { ...times, watch, now: watch } });
  const push = async (refer: (tx: Transaction) => Promise<unknown>) =>
    blobs.commit([await blobs.stageBytes(bytes)], refer);
  await push(() => Promise.resolve());

  const [reached, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const deletions = { count: 0 };
  s3.fault = ({ method }) => {
    if (method !== 'DELETE' || (deletions.count += 1) > 1) return undefined;
    reached.resolve();
    return { after: answer.promise };
  };
  const clock = { watch: 0, now: 0 };
  const own = { ...times, watch: () => clock.watch, now: () => clock.now };
  const collecting = new Collector(store.database, driver, references, own)
    .collect({ before: Number.MAX_SAFE_INTEGER })
    .catch((error: Error) => error.name);
  await within(reached.promise);
  const refuse = () => answer.reject(new S3Refusal(503, 'SlowDown'));
  return { s3, driver, database: store.database, push, deletions, clock, collecting, refuse };
}

test('a failed deletion is repeated', async (t) => {
  const { s3, database, deletions, collecting, refuse } = await setUp(t);
  refuse();
  t.like(await collecting, { blobs: 1 });
  t.is(deletions.count, 2);
  t.is(s3.objects.size, 0);
  t.deepEqual(await database.select('SELECT digest FROM blobs'), []);
});

for (const [name, clocks] of [
  ['by both clocks', ['watch', 'now']],
  ['by the clock of the system', ['now']],
  ['by the monotonic clock', ['watch']],
] as const) {
  test(`a failed deletion is not repeated after the process stood still, ${name}`, async (t) => {
    const { driver, database, push, deletions, clock, collecting, refuse } = await setUp(t);
    for (const each of clocks) clock[each] += times.takeOverAfter / 2;
    const row = { repository_id: 1, digest, linked_at: 0 };
    await within(push((tx) => tx.insertNew('repository_blobs', [row])));
    refuse();
    t.is(await collecting, 'StorageUnavailable');
    t.is(deletions.count, 1);
    t.like(await database.select('SELECT digest, state FROM blobs'), [{ digest, state: 'live' }]);
    t.true(bytes.equals(await readAll(await driver.open(digest, bytes.length), bytes.length)));
  });
}
