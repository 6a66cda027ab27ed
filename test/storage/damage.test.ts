import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { DamageCheck, examineWith } from '../../src/storage/damage.ts';
import { Overtaken } from '../../src/storage/pending.ts';
import { findBlobs, keepLive, newGeneration } from '../../src/storage/states.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { MemoryDriver } from '../support/memory-driver.ts';
import { dialects } from '../support/databases.ts';
import { openStoreOn, quickTimes, references } from '../support/store.ts';
import { until, within } from '../support/until.ts';

// What happens between the reads of a check and its changes.

/** Larger than what a push reads again. */
const good = Buffer.alloc(300_000, 'good');
const bad = Buffer.alloc(300_000, 'bad');

for (const dialect of dialects) {
  const setUp = async (t: ExecutionContext, kind: 'hosted' | 'mirrored') => {
    const store = await openStoreOn(t, dialect, () => new MemoryDriver(), { times: quickTimes });
    const { database, blobs, driver } = store;
    const commit = async () => {
      const arrival = await blobs.stageBytes(good);
      await blobs.commit([arrival], async (tx) => {
        if (kind === 'hosted')
          await tx.insertNew('repository_blobs', [{ repository_id: 1, digest: arrival.digest, linked_at: 0 }]);
        else await tx.insertNew('mirror_entries', [mirrorEntry(arrival.digest)]);
      });
      return arrival.digest;
    };
    await database.transaction((tx) =>
      tx.insert('repositories', { account_id: 1, name: 'team/app', created_at: 0, updated_at: 0 }),
    );
    const digest = await commit();
    const [row] = await findBlobs(database, [digest]);
    const check = new DamageCheck(database, driver, references);
    const remains = async () => ({
      entries: (await database.select('SELECT id FROM mirror_entries')).length,
      rows: await findBlobs(database, [digest]),
    });
    return { ...store, commit, digest, row: row!, check, remains };
  };

  test(`${dialect}: bytes that replace wrong ones before these are moved stay, with their entries`, async (t) => {
    const { driver, digest, row, check, remains } = await setUp(t, 'mirrored');
    driver.damage(digest, bad);
    driver.faults.before = (operation) => {
      if (operation === 'setAside') driver.damage(digest, good);
    };
    t.is(await check.check(row, { hash: true, keepMissing: false }), undefined);
    t.like(await remains(), { entries: 1, rows: [{ digest, state: 'live' }] });
    t.deepEqual(driver.contents.get(digest), good);
  });

  test(`${dialect}: bytes that are put after they were missing stay, with their entries`, async (t) => {
    const { driver, digest, row, check, remains } = await setUp(t, 'mirrored');
    await driver.delete(digest);
    let looks = 0;
    driver.faults.before = (operation) => {
      if (operation === 'stat' && (looks += 1) === 2) driver.damage(digest, good);
    };
    t.is(await check.check(row, { hash: true, keepMissing: false }), undefined);
    t.is(looks, 2);
    t.like(await remains(), { entries: 1, rows: [{ digest, state: 'live' }] });
  });

  test(`${dialect}: missing bytes keep their entries only if the check says so`, async (t) => {
    const { driver, digest, row, check, remains } = await setUp(t, 'mirrored');
    await driver.delete(digest);
    t.like(await check.check(row, { hash: true, keepMissing: true }), { kind: 'missing', mirrored: true });
    t.deepEqual(await remains(), { entries: 1, rows: [row] });
    t.like(await check.check(row, { hash: true, keepMissing: false }), { kind: 'missing', mirrored: true });
    t.deepEqual(await remains(), { entries: 0, rows: [] });
  });

  test(`${dialect}: a push whose bytes are found wrong and moved before it ends puts them again`, async (t) => {
    const { driver, digest, row, check, commit } = await setUp(t, 'hosted');
    driver.damage(digest, bad);
    let isFirst = true;
    driver.faults.after = async (operation) => {
      if (operation !== 'stat' || !isFirst) return;
      isFirst = false;
      // The push has just seen bytes of the right size.
      t.like(await check.check(row, { hash: true, keepMissing: true }), { kind: 'corrupt' });
    };
    await commit();
    t.false(isFirst);
    t.deepEqual(driver.contents.get(digest), good);
  });

  for (const kind of ['corrupt', 'missing'] as const) {
    test(`${dialect}: while a check works on ${kind} bytes, the database does not wait`, async (t) => {
      const { database, driver, digest, row, check } = await setUp(t, 'hosted');
      if (kind === 'corrupt') driver.damage(digest, bad);
      else await driver.delete(digest);
      const written: string[] = [];
      const write = async (operation: string) => {
        if (operation === 'delete') return;
        const sql = 'UPDATE blobs SET stored_at = stored_at + 1 WHERE digest = ?';
        await within(
          database.transaction((tx) => tx.run(sql, [digest])),
          20_000,
        );
        written.push(operation);
      };
      driver.faults = { before: write, after: write };
      t.like(await check.check(row, { hash: true, keepMissing: false }), { kind });
      const last = kind === 'corrupt' ? 'setAside' : 'stat';
      t.deepEqual(written.slice(-2), [last, last]);
    });
  }

  test(`${dialect}: a push that has seen wrong bytes cannot end between their move and the end of the check`, async (t) => {
    const { database, driver, digest, row, check, commit } = await setUp(t, 'hosted');
    driver.damage(digest, bad);
    let isOvertaken = false;
    const transaction = database.transaction.bind(database);
    database.transaction = ((...args: Parameters<typeof transaction>) =>
      transaction(...args).catch((error: unknown) => {
        isOvertaken ||= error instanceof Overtaken;
        throw error;
      })) as typeof transaction;
    const [seen, moved] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let stats = 0;
    driver.faults.after = async (operation) => {
      if (operation === 'stat' && (stats += 1) === 1) {
        seen.resolve();
        await moved.promise;
      } else if (operation === 'setAside') {
        moved.resolve();
        await until(() => isOvertaken || isPushed);
      }
    };
    let isPushed = false;
    const pushed = commit().finally(() => (isPushed = true));
    await seen.promise;
    const checked = check.check(row, { hash: true, keepMissing: true });
    t.like(await within(checked), { kind: 'corrupt' });
    await within(pushed);
    t.deepEqual(driver.contents.get(digest), good);
  });

  test(`${dialect}: bytes that are being stored, or moved because they are wrong, get no new reference`, async (t) => {
    const { database, driver, digest, row, check } = await setUp(t, 'mirrored');
    const keep = () => database.transaction((tx) => keepLive(tx, digest, 0));
    await database.transaction((tx) => tx.run("UPDATE blobs SET state = 'pending'"));
    t.false(await keep(), 'while the bytes are being stored');
    await database.transaction((tx) => tx.run("UPDATE blobs SET state = 'live'"));
    t.true(await keep());
    driver.damage(digest, bad);
    driver.faults.after = async (operation) => {
      if (operation === 'setAside') t.false(await within(keep()));
    };
    t.like(await check.check(row, { hash: true, keepMissing: true }), { kind: 'corrupt' });
    t.is(driver.aside.size, 1);
  });

  test(`${dialect}: a push takes over the mark of a check that was killed, and keeps the row live`, async (t) => {
    const { database, blobs, driver, digest, commit } = await setUp(t, 'hosted');
    await database.transaction((tx) => tx.run('UPDATE blobs SET generation = ?', [-newGeneration()]));
    await driver.delete(digest);
    // A commit that fails later takes nothing back of what was there before.
    const arrival = await blobs.stageBytes(good);
    await t.throwsAsync(within(blobs.commit([arrival], () => Promise.reject(new Error('no')))), { message: 'no' });
    t.like(await findBlobs(database, [digest]), [{ state: 'live' }]);
    await within(commit());
    t.deepEqual(driver.contents.get(digest), good);
  });
}

test('a blob whose deletion begins before the mark is not moved', async (t) => {
  const { database, blobs, driver } = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const arrival = await blobs.stageBytes(good);
  await blobs.commit([arrival], () => Promise.resolve());
  const [row] = await findBlobs(database, [arrival.digest]);
  driver.damage(arrival.digest, bad);
  driver.faults.before = async (operation) => {
    // Its deletion has begun.
    if (operation === 'setAside') await database.transaction((tx) => tx.run("UPDATE blobs SET state = 'deleting'"));
  };
  const check = new DamageCheck(database, driver, references);
  t.is(await within(check.check(row!, { hash: true, keepMissing: true })), undefined);
  t.is(driver.aside.size, 0);
});

test('a file that the disk cannot read is corrupt; another failure ends the check', async (t) => {
  const { database, blobs, driver } = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const arrival = await blobs.stageBytes(good);
  await blobs.commit([arrival], () => Promise.resolve());
  const [row] = await findBlobs(database, [arrival.digest]);
  const check = new DamageCheck(database, driver, references);
  const open = driver.open.bind(driver);
  let code = 'ENOMEM';
  driver.open = async (digest, size) => {
    const content = await open(digest, size);
    return { ...content, read: () => Promise.reject(Object.assign(new Error(code), { code })) };
  };
  await t.throwsAsync(check.check(row!, { hash: true, keepMissing: true }), { code: 'ENOMEM' });
  t.is(driver.aside.size, 0);
  code = 'EIO';
  t.like(await check.check(row!, { hash: true, keepMissing: true }), { kind: 'corrupt' });
  t.is(driver.aside.size, 1);
});

test('wrong bytes that cannot be moved are still damage, and the log says why', async (t) => {
  const { database, blobs, driver } = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const arrival = await blobs.stageBytes(good);
  await blobs.commit([arrival], () => Promise.resolve());
  const [row] = await findBlobs(database, [arrival.digest]);
  driver.damage(arrival.digest, bad);
  driver.faults.before = (operation) => {
    if (operation === 'setAside') throw new Error('read-only');
  };
  const lines: string[] = [];
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  t.true(await examineWith(new DamageCheck(database, driver, references), log)(row!, true));
  t.is(lines.length, 1);
  t.regex(lines[0]!, /read-only.*could not be moved to the quarantine/);
});
