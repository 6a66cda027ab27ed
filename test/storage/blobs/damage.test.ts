import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import type { Throttle } from '../../../src/runtime/incoming.ts';
import { DamageCheck, examineWith, logDamage, type Damage } from '../../../src/storage/blobs/damage.ts';
import { findBlobs } from '../../../src/storage/blobs/states.ts';
import { mirrorEntry } from '../../support/builders/mirror-entry.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { dialects } from '../../support/databases.ts';
import { openStoreOn, references } from '../../support/store.ts';

// What happens between the reads of a check and its changes.

/** Larger than what a push reads again. */
const good = Buffer.alloc(300_000, 'good');
const bad = Buffer.alloc(300_000, 'bad');

for (const dialect of dialects) {
  const setUp = async (t: ExecutionContext, kind: 'hosted' | 'mirrored') => {
    const store = await openStoreOn(t, dialect, () => new MemoryDriver());
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
    t.deepEqual(await remains(), { entries: 1, rows: [row] });
    t.deepEqual(driver.contents.get(digest), good);
  });

  test(`${dialect}: other transactions do not wait while the move of wrong bytes is prepared`, async (t) => {
    const { database, driver, digest, row, check } = await setUp(t, 'hosted');
    driver.damage(digest, bad);
    driver.faults.before = async (operation) => {
      if (operation !== 'prepareAside') return;
      const sql = 'UPDATE repositories SET updated_at = 5';
      t.is(await database.transaction((tx) => tx.run(sql, [])), 1);
      t.is(await database.transaction((tx) => tx.run('UPDATE blobs SET stored_at = 5 WHERE digest = ?', [digest])), 1);
    };
    t.like(await check.check(row, { hash: true, keepMissing: false }), { kind: 'corrupt' });
    t.is((await database.get<{ at: number }>('SELECT updated_at AS at FROM repositories'))!.at, 5);
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
    t.deepEqual(await remains(), { entries: 1, rows: [row] });
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
}

for (const dialect of dialects) {
  test(`${dialect}: a check reads the bytes only if it is told to, and says what is missing`, async (t) => {
    const { database, blobs, driver } = await openStoreOn(t, dialect, () => new MemoryDriver());
    const arrival = await blobs.stageBytes(good);
    await blobs.commit([arrival], () => Promise.resolve());
    const { digest } = arrival;
    const [row] = await findBlobs(database, [digest]);
    const check = new DamageCheck(database, driver, references);
    const copies: string[] = [];
    t.is(await check.check(row!, { hash: true, keepMissing: false }), undefined);
    Object.assign(driver, {
      checkCopy: (blob: { digest: string; size: number }) => {
        copies.push(`${blob.digest} ${blob.size}`);
        return Promise.resolve();
      },
    });
    for (const hash of [false, true]) t.is(await check.check(row!, { hash, keepMissing: false }), undefined);
    t.deepEqual(copies, [`${digest} ${good.length}`]);

    const other = Buffer.from(good);
    other[0] = 0;
    driver.damage(digest, other);
    t.is(await check.check(row!, { hash: false, keepMissing: true }), undefined);
    const lines: { level: number }[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(JSON.parse(line) as { level: number }) });
    t.false(await examineWith(check, log)(row!, false));

    driver.faults.before = async (operation) => {
      if (operation === 'open') await driver.delete(digest);
      if (operation === 'check') throw new Error('the storage is away');
    };
    const missing: Damage = { digest, size: good.length, kind: 'missing', hosted: [], mirrored: false };
    t.deepEqual(await check.check(row!, { hash: true, keepMissing: true }), missing);
    t.true(await examineWith(check, log)(row!, false));
    t.deepEqual(lines, []);
    await t.throwsAsync(check.check(row!, { hash: true, keepMissing: false }), { message: 'the storage is away' });
    driver.faults = {};
    t.deepEqual(await check.check(row!, { hash: true, keepMissing: false }), missing);
    t.deepEqual(await findBlobs(database, [digest]), []);
    t.is(await check.check(row!, { hash: true, keepMissing: false }), undefined, 'its row was removed meanwhile');
    driver.damage(digest, bad);
    t.is(await check.check(row!, { hash: true, keepMissing: false }), undefined);
    t.is(driver.aside.size, 0);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: the damage of one blob changes nothing of another`, async (t) => {
    const { database, blobs, driver } = await openStoreOn(t, dialect, () => new MemoryDriver());
    await database.transaction((tx) =>
      tx.insert('repositories', { account_id: 1, name: 'team/app', created_at: 0, updated_at: 0 }),
    );
    const [hosted, mirrored] = [await blobs.stageBytes(good), await blobs.stageBytes(Buffer.alloc(300_000, 'other'))];
    await blobs.commit([hosted, mirrored], async (tx) => {
      await tx.insertNew('repository_blobs', [{ repository_id: 1, digest: hosted.digest, linked_at: 0 }]);
      await tx.insertNew('mirror_entries', [mirrorEntry(mirrored.digest)]);
    });
    const rowOf = async ({ digest }: { digest: Digest }) => (await findBlobs(database, [digest]))[0];
    const [hostedRow, mirroredRow] = [(await rowOf(hosted))!, (await rowOf(mirrored))!];
    const check = new DamageCheck(database, driver, references);
    driver.damage(hosted.digest, bad);
    const spent: number[] = [];
    const throttle = { spend: (bytes: number) => Promise.resolve(void spent.push(bytes)) } as unknown as Throttle;
    const options = { hash: true, keepMissing: false, throttle };
    const found = await check.check(hostedRow, options);
    t.like(found, { digest: hosted.digest, size: 300_000, kind: 'corrupt', mirrored: false });
    t.is(found?.hosted.length, 1);
    t.deepEqual(spent, [262_144, 37_856], 'the rate limit counts what is read');
    const afterwards = await rowOf(hosted);
    t.not(afterwards?.generation, hostedRow.generation);
    t.deepEqual(await rowOf(mirrored), mirroredRow);
    await driver.delete(mirrored.digest);
    const missing: Damage = { digest: mirrored.digest, size: 300_000, kind: 'missing', hosted: [], mirrored: true };
    t.deepEqual(await check.check(mirroredRow, options), missing);
    t.deepEqual([await rowOf(mirrored), await rowOf(hosted)], [undefined, afterwards]);
    const failure = Object.assign(new Error('not allowed'), { code: 'EACCES' });
    t.deepEqual(await check.unopened(mirroredRow, failure), { ...missing, kind: 'unreadable', mirrored: false });
    t.like(await check.unopened(hostedRow, failure), { kind: 'unreadable', hosted: found!.hosted, mirrored: false });
  });
}

test('the log says what to do about a damage', (t) => {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ base: null, timestamp: false }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const damage: Damage = { digest: digestOf('some'), size: 4, kind: 'corrupt', hosted: [], mirrored: false };
  logDamage(log, { ...damage, kind: 'unreadable', hosted: ['package A 1.0.0'], mirrored: true });
  logDamage(log, { ...damage, hosted: ['package A 1.0.0'], mirrored: true });
  logDamage(log, { ...damage, mirrored: true });
  logDamage(log, { ...damage, hosted: [] });
  const { digest } = damage;
  t.deepEqual(lines, [
    { level: 50, digest, hosted: ['package A 1.0.0'], msg: 'stored content cannot be opened; check its permissions' },
    {
      level: 50,
      digest,
      kind: 'corrupt',
      hosted: ['package A 1.0.0'],
      msg: 'hosted content is damaged; push it again',
    },
    { level: 40, digest, kind: 'corrupt', msg: 'mirrored content is damaged; the next request fetches it again' },
  ]);
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
