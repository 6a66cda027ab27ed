import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import {
  folderOf,
  loseUpload,
  readUpload,
  tooManySessions,
  UploadLease,
  uploadUnknown,
} from '../../../src/oci/uploads/upload-lease.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { until, within } from '../../support/until.ts';

const now = 1_000_000;
const key = { accountId: 1, repository: 'app', id: 'm' };

/** A lease of the session `m`, which has 100 bytes. */
async function open(t: ExecutionContext, dialect: Dialect) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  const session = (id: string, received: number, changes: object = {}) =>
    database.transaction((tx) =>
      tx.insertNew('uploads', [
        {
          id,
          account_id: 1,
          repository: 'app',
          received,
          reserved: received,
          created_at: now,
          updated_at: now,
          ...changes,
        },
      ]),
    );
  await session('m', 100);
  const lease = await UploadLease.take(
    database,
    () => now,
    key,
    () => undefined,
  );
  t.teardown(() => lease.stop());
  const rows = async () => {
    const found = await database.select<{ id: string; reserved: number }>(
      'SELECT id, reserved FROM uploads ORDER BY id',
    );
    return found.map(({ id, reserved }) => `${id} ${reserved}`);
  };
  const run = (sql: string) => database.transaction((tx) => tx.run(sql));
  const reserve = (least: number, most: number, bytes: number) =>
    lease.reserve(least, most, {
      bytes,
      refusal: (unfinished) => new DomainError('QuotaExceeded', `${unfinished} bytes are unfinished`),
    });
  return { database, session, lease, rows, run, reserve };
}

for (const dialect of dialects) {
  test(`${dialect}: a session may have what the other sessions of its account leave`, async (t) => {
    const { session, rows, reserve } = await open(t, dialect);
    // A living writer counts with what it has reserved, a dead one and a session without one with what has arrived.
    await session('a', 10, { reserved: 40, writer: 'living', writer_until: now + 1 });
    await session('b', 20, { reserved: 900, writer: 'dead', writer_until: now });
    await session('z', 30, { reserved: 900 });
    await session('n', 5, { account_id: 2 });
    t.is(await reserve(100, 1000, 500), 410);
    t.is(await reserve(410, 1000, 500), 410, 'its own reservation is no other');
    t.is(await reserve(100, 200, 500), 200);
    t.deepEqual(await rows(), ['a 40', 'b 900', 'm 200', 'n 5', 'z 900']);
    await t.throwsAsync(reserve(411, 1000, 500), { message: '290 bytes are unfinished' });
    t.deepEqual(await rows(), ['a 40', 'b 900', 'm 200', 'n 5', 'z 900']);
  });

  test(`${dialect}: nothing is reserved, kept or ended for a session that another writer has, or that is cancelled`, async (t) => {
    const { database, session, lease, rows, run, reserve } = await open(t, dialect);
    await session('z', 30);
    await t.notThrowsAsync(lease.check());
    const fails = async () => {
      const unknown = { name: 'UploadUnknown' };
      await t.throwsAsync(reserve(100, 1000, 500), unknown);
      await t.throwsAsync(lease.check(), unknown);
      await t.throwsAsync(lease.release(200, null), unknown);
      await t.throwsAsync(
        database.transaction((tx) => lease.end(tx)),
        unknown,
      );
    };
    await run("UPDATE uploads SET writer = 'another' WHERE id = 'm'");
    await fails();
    t.deepEqual(await rows(), ['m 100', 'z 30']);
    await run("DELETE FROM uploads WHERE id = 'm'");
    await fails();
    t.deepEqual(await rows(), ['z 30']);
  });

  test(`${dialect}: a released session has its new size and no writer, and an ended one is gone`, async (t) => {
    const { database, session, lease, rows } = await open(t, dialect);
    await session('z', 30);
    await lease.release(200, null, 1);
    const [released] = await database.select('SELECT received, torn, writer, writer_until FROM uploads ORDER BY id');
    t.deepEqual({ ...released }, { received: 200, torn: 1, writer: null, writer_until: null });
    t.deepEqual(await rows(), ['m 200', 'z 30']);
    const again = await UploadLease.take(
      database,
      () => now,
      key,
      () => undefined,
    );
    await database.transaction((tx) => again.end(tx));
    again.stop();
    t.deepEqual(await rows(), ['z 30']);
  });

  test(`${dialect}: only the session with a key is read, lost or taken`, async (t) => {
    const { database, session, lease } = await open(t, dialect);
    lease.stop();
    const [folder, digest] = ['here', `sha256:${'a'.repeat(64)}`];
    await session('n', 7, { folder, digest, torn: 1 });
    await session('o', 8, { lost: 1, folder });
    const own = { ...key, id: 'n' };
    const row = { id: 'n', account_id: 1, received: 7, digest, torn: 1, writer: null, writer_until: null };
    t.deepEqual({ ...(await readUpload(database, own)) } as unknown, row);
    t.deepEqual([await folderOf(database, own), await folderOf(database, key)], [folder, undefined]);
    const take = (wanted: typeof key) =>
      UploadLease.take(
        database,
        () => now,
        wanted,
        () => undefined,
      );
    for (const other of [
      { ...own, id: 'x' },
      { ...own, accountId: 2 },
      { ...own, repository: 'other' },
      { ...own, id: 'o' },
    ]) {
      const unknown = { name: 'UploadUnknown' };
      await t.throwsAsync(readUpload(database, other), unknown);
      await t.throwsAsync(take(other), unknown);
      t.is(await folderOf(database, other), undefined);
      await loseUpload(database, other);
    }
    const taken = await take(own);
    t.deepEqual({ ...taken.row } as unknown, { ...row, writer: taken.row.writer, writer_until: now + 6000 });
    t.is(typeof taken.row.writer, 'string');
    taken.stop();
    await loseUpload(database, own);
    await t.throwsAsync(readUpload(database, own), { name: 'UploadUnknown' });
    t.deepEqual(
      (await database.select('SELECT id, lost, writer, writer_until FROM uploads ORDER BY id')).map((each) => ({
        ...each,
      })),
      [
        { id: 'm', lost: 0, writer: lease.row.writer, writer_until: now + 6000 },
        { id: 'n', lost: 1, writer: null, writer_until: null },
        { id: 'o', lost: 1, writer: null, writer_until: null },
      ],
    );
  });

  test(`${dialect}: a lease that has expired is taken at once, and one that is renewed is not`, async (t) => {
    const { database, session, run } = await open(t, dialect);
    await session('dead', 10, { reserved: 90, writer: 'dead', writer_until: now });
    await session('living', 20, { reserved: 90, writer: 'living', writer_until: now + 1 });
    const take = (id: string) =>
      UploadLease.take(
        database,
        () => now,
        { ...key, id },
        () => undefined,
      );
    const taken = await take('dead');
    taken.stop();
    t.is(taken.row.torn, 1, 'its writer may have the file open');
    const busy = t.throwsAsync(take('living'), { name: 'UploadBusy' });
    let renewals = 1;
    const renewing = setInterval(() => {
      renewals += 1;
      void run(`UPDATE uploads SET writer_until = ${now + renewals} WHERE id = 'living'`);
    }, 100);
    await within(busy);
    clearInterval(renewing);
    const rows = await database.select('SELECT id, reserved, updated_at, torn FROM uploads ORDER BY id');
    t.deepEqual(
      rows.slice(0, 2).map((each) => ({ ...each })),
      [
        { id: 'dead', reserved: 10, updated_at: now, torn: 1 },
        { id: 'living', reserved: 90, updated_at: now, torn: 0 },
      ],
    );
  });
}

test('a lease is renewed while its request runs, and its loss is told once it is lost', async (t) => {
  const { database, run } = await open(t, 'sqlite');
  let time = now + 100;
  let [lost, failures] = [0, 0];
  await run("UPDATE uploads SET writer = NULL WHERE id = 'm'");
  const failing = changedDatabase(database, {
    transaction: (work, options) => {
      if (time === now + 100 || failures > 0) return database.transaction(work, options);
      failures += 1;
      return Promise.reject(new Error('the database is away'));
    },
  });
  const lease = await UploadLease.take(
    failing,
    () => time,
    key,
    () => (lost += 1),
  );
  t.teardown(() => lease.stop());
  time = now + 5000;
  const untilOf = async () =>
    (
      await database.get<{ until: number }>('SELECT writer_until AS until FROM uploads WHERE updated_at > ?', [
        now + 100,
      ])
    )?.until;
  await until(async () => (await untilOf()) === time + 6000);
  t.deepEqual([failures, lost], [1, 0], 'a renewal that failed is repeated');
  await run("DELETE FROM uploads WHERE id = 'm'");
  await until(() => lost === 1);
});

test('the refusals of uploads say which one, or when to try again', (t) => {
  t.deepEqual(uploadUnknown('x'.repeat(50)).detail, { upload: 'x'.repeat(36) });
  const { name, retryAfter } = tooManySessions(1000);
  t.deepEqual([name, retryAfter], ['TooManyRequests', 60]);
});
