import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { UploadLease } from '../../../src/oci/uploads/upload-lease.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

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
}
